// Gangs: their queue, and one of them with its members, its plan and who makes room for it.

import { chip, clock, count, fill, h, percent, section, table, whole } from "./dom.js";
import { drawEvent } from "./overview.js";

const ROWS = 100;
const STATES = ["Blocked", "Failing", "Restarting", "RollingBack", "Waiting", "Evicting", "Reserved", "Placing", "Assembling", "Running"];
const MEANING = { Blocked: "bad", Failing: "bad", Restarting: "bad", RollingBack: "bad", Waiting: "fair", Assembling: "fair", Running: "good" };
const SIGNS = { bad: "✗ ", fair: "… ", good: "✓ " };

const gangPath = (each) => [each.namespace, ...each.name.split("/")].map(encodeURIComponent).join("/");
const gangLink = (each) => h("a", { href: `#/gangs/${gangPath(each)}` }, `${each.namespace}/${each.name}`);

// The time of day; with the date where that is not today's.
function age({ since }) {
  const at = new Date(since), isToday = at.toDateString() === new Date().toDateString();
  return h("time", { datetime: since, title: at.toLocaleString() }, isToday ? at.toLocaleTimeString() : at.toLocaleString([], { dateStyle: "short", timeStyle: "short" }));
}

function stateOf(each) {
  const kind = MEANING[each.state] ?? "";
  return h("span", { class: kind }, h("span", { "aria-hidden": "true" }, SIGNS[kind] ?? "→ "), each.state, each.isLate ? " (late)" : "");
}

const membersOf = ({ members }) => `${members.bound + members.succeeded} of ${members.needed ?? members.bound + members.starting + members.gated}`;
const priorityOf = ({ priority }) => priority.effective === priority.spec ? String(priority.spec) : `${priority.effective} (spec ${priority.spec})`;
const classesOf = (each) => each.classes.length ? each.classes.map((of) => [chip(of), " "]) : "–";

const COLUMNS = [
  ["Gang", gangLink],
  ["State", stateOf, "short"],
  ["On nodes", membersOf, "number extra"],
  ["Priority", priorityOf, "number extra"],
  ["Class", classesOf, "extra"],
  ["Since", age, "short extra"],
  ["Why", (each) => [each.reason, ...each.mistakes.map((text) => h("span", { class: "bad" }, ` ${text}`))], "wide"],
];

const OFF = "Gangs are switched off: the configuration does not say gangs: {enabled: true}.";

// The section of the overview: those that do not simply run.
export function drawGangs({ enabled, total, waiting, waitingTotal, states, late }) {
  if (!enabled && !total) return h("p", { class: "quiet" }, OFF);
  if (!total) return h("p", { class: "quiet" }, "No pod is a member of a gang.");
  const told = STATES.filter((state) => states[state]).map((state) => `${whole(states[state])} ${state}`).join(", ");
  return [
    h("p", {}, `${count(total, "gang")}: ${told}. `, late ? h("span", { class: "bad" }, `${count(late, "gang")} beyond the wait-timeout. `) : "", h("a", { href: "#/gangs" }, "All gangs")),
    table("Gangs that do not simply run", COLUMNS, waiting.slice(0, 10), "All gangs run."),
    waitingTotal > 10 && h("p", {}, h("a", { href: "#/gangs" }, `and ${whole(waitingTotal - 10)} more`)),
  ];
}

// --- all gangs ------------------------------------------------------------------------------------------------------

export function gangs({ again, query }) {
  const wish = { q: query.get("q") ?? "", only: query.get("only") ?? "", offset: 0 };
  let waiting = null, matching = 0;
  const change = (what) => {
    Object.assign(wish, { offset: 0 }, what);
    const kept = new URLSearchParams(Object.entries(wish).filter(([key, value]) => value && key !== "offset"));
    history.replaceState(null, "", `#/gangs?${kept}`);
    again();
  };
  const search = h("input", { type: "search", id: "q", value: wish.q, autocomplete: "off", spellcheck: "false", placeholder: "namespace/gang",
    oninput: () => { clearTimeout(waiting); waiting = setTimeout(() => change({ q: search.value }), 200); } });
  const only = h("select", { id: "only", onchange: () => change({ only: only.value }) },
    ["", ...STATES].map((state) => h("option", { value: state, selected: state === wish.only }, state || "all")));
  const rows = h("div", {}), found = h("p", { class: "quiet", role: "status" });
  const step = (by) => { wish.offset = Math.max(0, Math.min(wish.offset + by, Math.floor((matching - 1) / ROWS) * ROWS)); again(); };
  const back = h("button", { type: "button", onclick: () => step(-ROWS) }, "Previous"), on = h("button", { type: "button", onclick: () => step(ROWS) }, "Next");
  const pages = h("nav", { class: "pages", "aria-label": "Pages of gangs" }, back, on);
  const root = h("div", {}, h("h1", {}, "Gangs"),
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "q" }, "Filter"), search, h("label", { for: "only" }, "State"), only, found),
    h("div", { class: "card" }, rows, pages));
  return {
    title: "Gangs", place: "gangs", root,
    ask: (get) => get(`gangs?${new URLSearchParams({ ...wish, limit: ROWS })}`),
    show(data) {
      matching = data.matching;
      if (data.offset && data.offset >= matching) return step(0);
      const empty = data.total ? "No gang matches the filter." : data.enabled ? "No pod is a member of a gang. Members carry the annotation spotweave.dev/pod-group." : OFF;
      fill(rows, data.gangs, (all) => table("Gangs, those first that need attention", COLUMNS, all, empty));
      const last = Math.min(data.offset + ROWS, matching);
      const text = matching ? `${whole(data.offset + 1)}–${whole(last)} of ${whole(matching)}` : "none";
      if (found.textContent !== text) found.textContent = text;
      pages.hidden = matching <= ROWS;
      back.disabled = data.offset === 0;
      on.disabled = last >= matching;
    },
  };
}

// --- one gang -------------------------------------------------------------------------------------------------------

export function gang(_around, namespace, name) {
  const top = h("div", {}), facts = h("div", {}), room = h("div", {}), pods = h("div", {}), events = h("div", {});
  const root = h("div", {},
    h("p", { class: "path" }, h("a", { href: "#/gangs" }, "Gangs"), " / ", h("a", { href: `#/gangs?q=${encodeURIComponent(`${namespace}/`)}` }, namespace)),
    h("h1", {}, name, " ", h("span", { class: "quiet" }, "gang")), top,
    h("div", { class: "columns" }, section("What it asks for", facts), section("Plan and room", room)),
    section("Members", pods), section("Timeline", events));
  return {
    title: `${namespace}/${name}`, place: "gangs", root,
    ask: (get) => get(`gangs/${gangPath({ namespace, name })}`),
    show(data) {
      fill(top, [data.state, data.isLate, data.members, data.reason, data.missing, data.mistakes], () => drawTop(data));
      fill(facts, [data.terms, data.priority, data.classes, data.since], () => drawFacts(data));
      fill(room, [data.plan, data.victims, data.preemptedFor, data.survival], () => drawRoom(data));
      fill(pods, data.pods, (all) => drawMembers(all, data.podsTotal));
      fill(events, data.events, (all) => all.length ? h("ol", { class: "timeline" }, all.map((each) => drawEvent({ ...each, gang: null })))
        : h("p", { class: "quiet" }, "Its state has not changed since this replica started."));
    },
  };
}

const drawTop = (data) => [
  h("p", { class: "lead" }, stateOf(data), `: ${membersOf(data)} members on nodes`, data.missing ? `; ${data.missing} must start for it to be whole` : ""),
  data.reason && h("p", { class: "banner" }, data.reason),
  ...data.mistakes.map((text) => h("p", { class: "banner bad" }, text)),
];

function drawFacts({ terms, priority, classes, since }) {
  const duration = (seconds) => seconds === null ? null : seconds >= 3600 ? `${+(seconds / 3600).toFixed(1)} h` : `${+(seconds / 60).toFixed(1)} min`;
  const told = [
    ["Members that start together", terms.minMember ?? terms.size ?? "from their owner"],
    ["Priority", priorityOf({ priority })],
    ["Class", classes.length ? classes.map((of, index) => [index ? ", then " : "", chip(of)]) : "as their own affinity says"],
    ["Waits at most", terms.waitTimeoutSeconds === null ? "–" : `${duration(terms.waitTimeoutSeconds)}, then ${terms.waitTimeoutThen}`],
    ["Expected to run for", duration(terms.expectedRuntimeSeconds) ?? "–"],
    ["On partial failure", terms.onPartialFailure],
    ["May make room for others", terms.preemptible ? "yes" : "no"],
    ["Since", age({ since })],
  ];
  return table("What the gang asks for", [["Term", ([name]) => name], ["Value", ([, value]) => value]], told, "");
}

function drawRoom({ plan, victims, preemptedFor, survival }) {
  const parts = [
    plan && h("p", {}, `Plan ${plan.id} was made at `, clock(Date.parse(plan.at) / 1000), plan.undone ? ", and is undone." : plan.awaitsVictims ? "; it waits for others to go." : "."),
    victims.length > 0 && [h("h3", {}, `Pods that make room (${whole(victims.length)})`), h("ul", {}, victims.slice(0, 20).map((each) =>
      h("li", {}, `${each.namespace}/${each.pod}${each.gang ? ` of gang ${each.gang}` : ""} on ${each.node ?? "no node"}${each.terminating ? ": ends" : ""}`)))],
    ...preemptedFor.map((other) => h("p", { class: "banner warn" }, `Makes room for gang ${other}.`)),
    survival && h("p", {}, survival.chance === null ? `${survival.lossesPer30Days} losses expected in 30 days.` : `Chance to keep all nodes for its run time: ${percent(survival.chance)}.`,
      survival.pools.length ? ` Spot pools: ${survival.pools.join(", ")}.` : " No spot pool."),
  ].filter(Boolean);
  return parts.length ? parts : h("p", { class: "quiet" }, "No room is kept for it, and nothing is evicted for it.");
}

const drawMembers = (pods, total) => [
  table("Members: where each runs, or what it waits for", [
    ["Pod", (each) => each.pod],
    ["State", (each) => each.state],
    ["Node", (each) => each.node ?? (each.reservedOn ? `kept on ${each.reservedOn}` : "no node")],
    ["Class", (each) => each.class ? chip(each.class) : "–"],
    ["Pool", (each) => each.pool ?? each.zone ?? "–", "pool-name extra"],
    ["Owner", (each) => each.owner ?? "none", "extra"],
    ["Other gates", (each) => each.otherGates.join(", ") || "–", "extra"],
  ], pods, "It has no members."),
  total > pods.length && h("p", { class: "quiet small" }, `and ${whole(total - pods.length)} more`),
];
