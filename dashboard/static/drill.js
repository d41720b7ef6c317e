// What if? A node, a pool, a zone or all spot goes; or a workload gets another ratio.

import { count, fill, h, link, mix, percent, section, signed, table, verdict } from "./dom.js";
import { priceSource } from "./overview.js";

const DOMAINS = { node: "A node", pool: "A spot pool", zone: "A zone", spot: "All spot" };

export function drill({ again, get, query }) {
  const asked = Object.keys(DOMAINS).find((domain) => query.has(domain)) ?? "spot";
  const wish = { domain: asked, name: query.get(asked) ?? "", workload: query.get("workload") ?? "", ratio: query.get("ratio") ?? "50%" };
  const [names, list] = [h("datalist", { id: "names" }), h("datalist", { id: "known" })];
  const result = h("div", { "aria-live": "polite" }), answer = h("div", { "aria-live": "polite" });
  const name = h("input", { id: "what", list: "names", value: wish.name, autocomplete: "off", spellcheck: "false", onchange: () => change({ name: name.value }) });
  const named = h("p", { class: "field" }, h("label", { for: "what" }, "Which"), name, names);
  let choices = null;
  const change = (what) => { Object.assign(wish, what); keep(); again(); };
  const keep = () => {
    const kept = new URLSearchParams(wish.domain === "spot" ? { spot: 1 } : { [wish.domain]: wish.name });
    if (wish.workload) { kept.set("workload", wish.workload); kept.set("ratio", wish.ratio); }
    history.replaceState(null, "", `#/drill?${kept}`);
  };
  const pick = (domain) => { name.value = choices?.[`${domain}s`]?.[0] ?? ""; offer(domain); change({ domain, name: name.value }); };
  const offer = (domain) => {
    named.hidden = domain === "spot";
    fill(names, (choices?.[`${domain}s`] ?? []).slice(0, 500), (values) => values.map((value) => h("option", { value })));
  };
  const kinds = h("fieldset", { class: "choice" }, h("legend", {}, "What we lose"), Object.entries(DOMAINS).map(([domain, text]) =>
    h("label", {}, h("input", { type: "radio", name: "domain", value: domain, checked: domain === wish.domain, onchange: () => pick(domain) }), ` ${text}`)));
  const who = h("input", { id: "who", list: "known", value: wish.workload, autocomplete: "off", spellcheck: "false", placeholder: "namespace/kind/name",
    oninput: () => suggest(get, who.value, list), onchange: () => change({ workload: who.value.trim() }) });
  const ratio = h("input", { id: "ratio", value: wish.ratio, size: 6, onchange: () => change({ ratio: ratio.value.trim() }) });
  const root = h("div", {}, h("h1", {}, "Drill"),
    section("What if we lose …", h("div", { class: "form" }, kinds, named), result),
    section("What if the ratio changes", h("div", { class: "form" },
      h("p", { class: "field" }, h("label", { for: "who" }, "Workload"), who, list),
      h("p", { class: "field" }, h("label", { for: "ratio" }, "Spot ratio"), ratio)), answer));
  return {
    title: "Drill", place: "drill", root,
    async ask() {
      choices = await get("drill");
      offer(wish.domain);
      const about = new URLSearchParams(wish.domain === "spot" ? { spot: 1 } : { [wish.domain]: wish.name });
      const other = wish.workload ? `drill?${new URLSearchParams({ workload: wish.workload, ratio: wish.ratio })}` : null;
      const told = (path) => get(path).catch((error) => { if (error instanceof TypeError) throw error; return { error: error.message }; });
      return Promise.all([wish.domain === "spot" || wish.name ? told(`drill?${about}`) : { error: "Choose what to lose." }, other ? told(other) : null]);
    },
    show([lost, changed]) {
      fill(result, worth(lost), drawLoss);
      fill(answer, worth(changed), drawChange);
    },
  };
}

// Without what changes all the time, so that what is read aloud is news.
const worth = (data) => data && { ...data, generatedAt: 0, ageSeconds: 0 };

async function suggest(get, text, list) {
  const found = await get(`workloads?${new URLSearchParams({ q: text, limit: 20 })}`);
  list.replaceChildren(...found.workloads.map((each) => h("option", { value: [each.namespace, each.kind, each.name].join("/") })));
}

function drawLoss(data) {
  if (data.error) return h("p", { class: "quiet" }, data.error);
  const below = data.fallBelow.declared + data.fallBelow.assumed;
  return [
    h("p", { class: "lead" }, `${count(data.nodes, "node")} and ${count(data.replicas, "replica")} of ${count(data.workloads, "workload")} would be lost. `,
      verdict(!below, below ? `${count(below, "workload")} would fall below their minimum (${data.fallBelow.declared} declared, ${data.fallBelow.assumed} assumed).` : "All workloads would keep their minimum.")),
    h("ul", { class: "plain" }, drawRoom(data.room)),
    table("What each workload would lose", [
      ["Workload", link],
      ["Loses", (each) => each.lost, "number"],
      ["Left", (each) => each.left, "number extra"],
      ["Must serve", (each) => `${each.needed}${each.assumed ? "*" : ""}`, "number"],
      ["", (each) => verdict(!each.fallsBelow, each.fallsBelow ? `${each.needed - each.left} too few` : "enough", each.assumed), "short"],
    ], data.losses, "No opted-in workload has a ready pod there."),
    data.losses.some((each) => each.assumed) && h("p", { class: "quiet small" }, "* assumed from the rollout strategy: neither min-available nor a PodDisruptionBudget is set"),
    data.workloads > data.losses.length && h("p", { class: "quiet" }, `${data.workloads - data.losses.length} more are not listed.`),
  ];
}

function drawRoom({ spot, onDemand, allOnDemand }) {
  const line = (fit, text) => h("li", {}, verdict(fit.fits, text), fit.fits ? "" : ` The smallest pod that does not fit is ${fit.leftOut}: ${fit.reason}.`);
  return [
    spot.pods > 0 && line(spot, `${count(spot.pods, "spot pod")} ${spot.fits ? "fit" : "do not all fit"} on the remaining spot nodes, by resource requests.`),
    onDemand.pods > 0 && line(onDemand, `${count(onDemand.pods, "on-demand pod")} ${onDemand.fits ? "fit" : "do not all fit"} on the remaining on-demand nodes, by resource requests.`),
    spot.pods > 0 && !spot.fits && line(allOnDemand, `All ${allOnDemand.pods} ${allOnDemand.fits ? "would fit" : "would not fit"} on the remaining on-demand nodes alone, by resource requests.`),
  ];
}

function drawChange(data) {
  if (!data) return h("p", { class: "quiet" }, "Choose a workload to see the moves, exposure and cost of another ratio before you set it.");
  if (data.error) return h("p", { class: "quiet" }, data.error);
  const [now, then] = [data.exposure, data.exposureAfter];
  const rows = [
    ["Wanted mix (spot + on-demand)", mix(data.wantedNow), mix(data.wanted)],
    ["Expected mix, after all moves", mix(data.actual), data.then && mix(data.then)],
    ["Cost relative to all on-demand", percent(data.savings.cost), data.savingsAfter && percent(data.savingsAfter.cost)],
    ["Headroom", signed(now.headroom), then && signed(then.headroom)],
    ...Object.entries(DOMAINS).map(([domain, text]) => [`${text}: replicas lost`, told(now, domain), then && told(then, domain)]),
  ];
  return [
    h("p", { class: "lead" }, `At ${data.ratio}: ${count(data.moves, "move")}. `, data.unplaced ? verdict(false, `For ${data.unplaced} of them no node has room now.`) : ""),
    ...data.mistakes.map((text) => h("p", { class: "banner warn" }, text)),
    data.blocked.length > 0 && h("p", {}, `Blocked now: ${data.blocked.join("; ")}.`),
    table("Now and with the new ratio", [["", (row) => row[0]], ["Now", (row) => row[1], "number"], [`At ${data.ratio}`, (row) => row[2] ?? "too many to estimate", "number"]], rows, ""),
    h("p", { class: "quiet small" }, `An estimate, ${priceSource({ sources: { ...data.savings.sources, ...data.savingsAfter?.sources } })}: each pod moves to the emptiest node that can run it.`),
    h("pre", {}, `kubectl -n ${data.namespace} annotate ${data.kind.toLowerCase()}/${data.name} spotweave.dev/spot-ratio=${data.ratio} --overwrite`),
  ];
}

const told = (exposure, domain) => h("span", { class: exposure.survives[domain] ? "" : exposure.assumed ? "fair" : "bad" }, `${exposure.blastRadius[domain]}${exposure.survives[domain] ? "" : " (too many)"}`);
