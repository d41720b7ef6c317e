// All workloads: sorted, filtered and cut into pages by the server, so that thousands of them cost as much as a hundred.

import { count, fill, h, link, mix, signed, since, verdict } from "./dom.js";

const ROWS = 100;
const FILTERS = [["", "all"], ["exposed", "exposed to any loss"], ["declared", "exposed, with a declared minimum"], ["node", "not safe from a node's loss"],
  ["pool", "not safe from a pool's loss"], ["zone", "not safe from a zone's loss"], ["spot", "not safe from the loss of all spot"],
  ["differs", "mix differs"], ["moving", "moves under way or planned"], ["soft", "with soft pods"], ["mistakes", "with mistakes"]];
const MINIMA = [["", "any"], ["declared", "declared"], ["assumed", "assumed"]];
const DOMAINS = ["node", "pool", "zone", "spot"];
const COLUMNS = [
  ["name", "Workload", "", (each) => [link(each), each.kind === "StatefulSet" ? h("span", { class: "quiet small" }, " sts") : ""]],
  ["replicas", "Replicas", "number extra", (each) => each.replicas],
  ["wanted", "Wanted", "number extra", (each) => mix(each.wanted), "spot + on-demand"],
  ["actual", "Actual", "number", drawActual, "spot + on-demand"],
  ["headroom", "Headroom", "number extra", (each) => `${signed(each.exposure.headroom)}${each.exposure.assumed ? "*" : ""}`, "ready replicas minus those that must serve; * assumed"],
  ...DOMAINS.map((domain) => [domain, `${domain[0].toUpperCase()}${domain.slice(1)} loss`, `number ${domain === "pool" ? "" : "extra"}`, (each) => drawBlast(each, domain), `most replicas lost at once with ${domain === "spot" ? "all spot" : `one ${domain}`}`]),
  ["survives", "Survives", "", drawSurvives],
  ["soft", "Soft", "number extra", (each) => each.soft || "–"],
  ["lastMove", "Last move", "extra", (each) => since(each.lastMove)],
  ["reason", "Why the mix differs", "wide", (each) => each.reason || (each.mistakes.length ? h("span", { class: "bad" }, `${count(each.mistakes.length, "mistake")} in annotations`) : "")],
];

function drawActual(each) {
  const exact = each.actual.spot === each.wanted.spot && each.actual.onDemand === each.wanted.onDemand;
  return h("span", { class: exact ? "" : "bad" }, mix(each.actual), exact ? "" : h("span", { class: "unseen" }, " differs from wanted"));
}

const drawBlast = ({ exposure }, domain) => exposure.survives[domain]
  ? exposure.blastRadius[domain]
  : h("span", { class: exposure.assumed ? "fair" : "bad" }, exposure.blastRadius[domain], h("span", { "aria-hidden": "true" }, "!"), h("span", { class: "unseen" }, " too many"));

function drawSurvives({ exposure }) {
  const survived = DOMAINS.filter((domain) => exposure.survives[domain]);
  if (survived.length === DOMAINS.length) return verdict(true, "all");
  return survived.length ? survived.join(", ") : verdict(false, "none", exposure.assumed);
}

export function workloads({ again, announce, query }) {
  const wish = { q: query.get("q") ?? "", only: query.get("only") ?? "", minimum: query.get("minimum") ?? "", sort: query.get("sort") ?? "name", order: query.get("order") ?? "asc", offset: 0 };
  let waiting = null, matching = 0;
  const change = (what) => {
    Object.assign(wish, { offset: 0 }, what);
    const kept = new URLSearchParams(Object.entries(wish).filter(([key, value]) => value && key !== "offset"));
    history.replaceState(null, "", `#/workloads?${kept}`);
    again();
  };
  const search = h("input", { type: "search", id: "q", value: wish.q, autocomplete: "off", spellcheck: "false", placeholder: "namespace/kind/name",
    oninput: () => { clearTimeout(waiting); waiting = setTimeout(() => change({ q: search.value }), 200); } });
  const only = h("select", { id: "only", onchange: () => change({ only: only.value }) },
    FILTERS.map(([value, text]) => h("option", { value, selected: value === wish.only }, text)));
  const minimum = h("select", { id: "minimum", onchange: () => change({ minimum: minimum.value }) },
    MINIMA.map(([value, text]) => h("option", { value, selected: value === wish.minimum }, text)));
  const heads = COLUMNS.map(([key, title, kind, , note]) => h("th", { scope: "col", class: kind },
    h("button", { type: "button", class: "sort", title: note, "data-key": key, onclick: () => change({ sort: key, order: wish.sort === key && wish.order === "asc" ? "desc" : "asc" }) }, title)));
  const body = h("tbody", {}), found = h("p", { class: "quiet", role: "status" });
  const step = (by) => { wish.offset = Math.max(0, Math.min(wish.offset + by, Math.floor((matching - 1) / ROWS) * ROWS)); again(); region.scrollTo(0, 0); };
  const back = h("button", { type: "button", onclick: () => step(-ROWS) }, "Previous"), on = h("button", { type: "button", onclick: () => step(ROWS) }, "Next");
  const pages = h("nav", { class: "pages", "aria-label": "Pages of workloads" }, back, on);
  const region = h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Workloads" },
    h("table", { class: "sortable" }, h("caption", { class: "unseen" }, "Workloads: mix, headroom, and replicas lost with one node, pool, zone or all spot"),
      h("thead", {}, h("tr", {}, heads)), body));
  const root = h("div", {}, h("h1", {}, "Workloads"),
    h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
      h("label", { for: "q" }, "Filter"), search, h("label", { for: "only" }, "Show"), only, h("label", { for: "minimum" }, "Minimum"), minimum, found),
    h("div", { class: "card" }, region, pages));
  return {
    title: "Workloads", place: "workloads", root,
    ask: (get) => get(`workloads?${new URLSearchParams({ ...wish, limit: ROWS })}`),
    show(data) {
      matching = data.matching;
      if (data.offset && data.offset >= matching) return step(0); // the list has shrunk: its last page
      COLUMNS.forEach(([key], index) => heads[index].setAttribute("aria-sort", key === wish.sort ? (wish.order === "desc" ? "descending" : "ascending") : "none"));
      fill(body, [data.workloads, Math.floor(Date.now() / 30000)], ([rows]) => rows.length ? rows.map(drawRow) : h("tr", {}, h("td", { colspan: COLUMNS.length, class: "quiet" }, empty(data))));
      const last = Math.min(data.offset + ROWS, matching);
      const text = matching ? `${data.offset + 1}–${last} of ${matching.toLocaleString("en")}${matching < data.total ? ` (${data.total.toLocaleString("en")} in total)` : ""}` : "none";
      if (found.textContent !== text) found.textContent = text;
      pages.hidden = matching <= ROWS;
      back.disabled = data.offset === 0;
      on.disabled = last >= matching;
    },
  };
}

const empty = (data) => data.total ? "No workload matches the filter." : "No workload is opted in. Label a namespace: kubectl label namespace NAME spotweave.dev/placement=enabled";

const drawRow = (each) => h("tr", {}, COLUMNS.map(([, , kind, draw], index) => h(index ? "td" : "th", { class: kind, scope: index ? null : "row" }, draw(each))));
