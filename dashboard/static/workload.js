// One workload: where each pod is and why, what happened, what comes next, what is in the way.

import { chip, count, fill, h, mix, pathOf, percent, section, signed, table, verdict } from "./dom.js";
import { drawEvent, drawHeld, priceSource } from "./overview.js";

const DOMAINS = { node: "a node", pool: "a pool", zone: "a zone", spot: "all spot" };

export function workload(_around, namespace, kind, name) {
  const top = h("div", {}), facts = h("div", {}), pods = h("div", {}), next = h("div", {}), events = h("div", {});
  const root = h("div", {},
    h("p", { class: "path" }, h("a", { href: "#/workloads" }, "Workloads"), " / ", h("a", { href: `#/workloads?q=${encodeURIComponent(`${namespace}/`)}` }, namespace)),
    h("h1", {}, name, " ", h("span", { class: "quiet" }, kind)), top,
    h("div", { class: "columns" }, section("Exposure", facts), section("What comes next", next)),
    section("Pods", pods), section("Timeline", events));
  return {
    title: `${namespace}/${name}`, place: "workloads", root,
    ask: (get) => get(`workloads/${pathOf({ namespace, kind, name })}`),
    show(data) {
      fill(top, [data.workload.wanted, data.workload.actual, data.workload.reason, data.policy, data.workload.mistakes, data.workload.advice], () => drawTop(data));
      fill(facts, [data.workload.exposure, data.workload.savings, data.perils, data.risk, data.needed, data.workload.replicas], () => drawFacts(data));
      fill(next, [data.next, data.blocked, data.released, data.workload.held], () => drawNext(data));
      fill(pods, data.workload.pods, drawPods);
      fill(events, data.events, (all) => all.length ? h("ol", { class: "timeline" }, all.map((each) => drawEvent({ ...each, workload: null })))
        : h("p", { class: "quiet" }, "No move and no interruption since this replica started."));
    },
  };
}

function drawTop({ workload, policy }) {
  const exact = workload.actual.spot === workload.wanted.spot && workload.actual.onDemand === workload.wanted.onDemand;
  const ratio = workload.policy.spotRatio;
  return [
    h("p", { class: "lead" }, verdict(exact, `${mix(workload.actual)} actual, ${mix(workload.wanted)} wanted`), ` (spot + on-demand). ${policy}. `,
      h("a", { href: `#/drill?workload=${encodeURIComponent([workload.namespace, workload.kind, workload.name].join("/"))}&ratio=${encodeURIComponent(ratio)}` }, "Try another ratio")),
    workload.reason && h("p", { class: "banner" }, workload.reason),
    ...workload.mistakes.map((each) => h("p", { class: "banner bad" }, `${each.level} ${each.annotation}: '${each.value}' is ignored; expected ${each.expected}`)),
    workload.advice && h("p", { class: "banner" }, workload.advice),
  ];
}

function drawFacts({ workload, needed, perils, risk }) {
  const { exposure } = workload;
  return [
    h("p", {}, `${needed} of ${workload.replicas} replicas must serve (${exposure.assumed ? "assumed from the rollout strategy" : "declared"}); headroom ${signed(exposure.headroom)}. Estimated saving against all on-demand: ${percent(workload.savings.share)}, ${priceSource(workload.savings)}.`),
    table("Replicas lost at once, and whether the workload survives", [
      ["Loss of", ([, text]) => text],
      ["Replicas", ([domain]) => exposure.blastRadius[domain], "number"],
      ["Survives", ([domain]) => verdict(exposure.survives[domain], exposure.survives[domain] ? "yes" : "no", exposure.assumed)],
    ], Object.entries(DOMAINS), ""),
    h("p", { class: "small" }, `${risk}.`),
    perils.length > 0 && h("ul", { class: "small" }, perils.map((text) => h("li", {}, text))),
  ];
}

function drawNext({ next, blocked, released, workload: { held } }) {
  if (!next.length && !blocked.length && !released.length && !held.length) return h("p", {}, verdict(true, "Nothing to do."));
  return [
    held.length > 0 && [h("h3", {}, "Evictions held"), h("ul", {}, held.map((each) => h("li", {}, drawHeld(each))))],
    released.length > 0 && [h("h3", {}, "Under way"), h("ul", {}, released.map((each) => h("li", {}, `${each.pod} on ${each.node} serves until its replacement is ready`)))],
    next.length > 0 && [h("h3", {}, "Next"), h("ul", {}, next.map((each) => h("li", {}, `${each.how} ${each.pod} (${each.reason})`, each.text ? `: ${each.text}` : "")))],
    blocked.length > 0 && [h("h3", {}, "Blocked"), h("ul", {}, blocked.map((text) => h("li", {}, text)))],
  ];
}

const drawPods = (pods) => [
  table("Pods: where each runs and why", [
    ["Pod", (each) => each.name],
    ["Slot", (each) => each.slot ?? "–", "number extra"],
    ["Class", (each) => each.class ? chip(each.class) : each.given ? [chip(each.given), " wanted"] : "–"],
    ["Node", (each) => each.node ? [each.node, each.leaving ? h("span", { class: "bad" }, " leaving") : ""] : "no node", "extra"],
    ["Pool", (each) => each.pool ?? each.zone ?? "–", "pool-name"],
    ["Serves", (each) => verdict(each.serves, each.serves ? "yes" : "no")],
    ["Why", (each) => each.reason, "wide"],
  ], pods, "This workload has no pods."),
  h("p", { class: "quiet small" }, `${count(pods.length, "pod")}, by slot.`),
];
