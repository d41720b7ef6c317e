// The cluster at a glance.

import { drawGangs } from "./gangs.js";
import { ago, chip, clock, count, fill, h, link, percent, s, section, table, verdict, whole } from "./dom.js";

const LOSSES = { node: "a node", pool: "a pool", zone: "a zone", spot: "all spot" };
const SQUARES = 24; // nodes of a pool that are drawn one by one

export function overview({ announce }) {
  const banners = h("div", {}), tiles = h("div", { class: "tiles" }), line = h("div", {}), losses = h("div", {});
  const exposed = h("div", {}), map = h("div", {}), moves = h("div", {}), events = h("div", {}), gangs = h("div", {}), skipped = h("div", {});
  const root = h("div", {}, h("h1", { class: "unseen" }, "Overview"), banners, tiles,
    h("div", { class: "columns" },
      section("Spot share over time", line),
      section("Would not survive the loss of", losses)),
    section("Most exposed workloads", exposed),
    section("Nodes and pools", map),
    h("div", { class: "columns" }, section("Moves", moves), section("What happened", events)),
    section("Not placed", skipped),
    section("Gangs", gangs));
  let told = null;
  return {
    title: "Overview", place: "overview", root,
    ask: (get) => get("overview?with=pools"),
    show(seen) {
      fill(banners, [seen.paused, seen.outages, seen.nodes], drawBanners);
      fill(tiles, [seen.spotShare.spot, seen.spotShare.onDemand, seen.spotShare.wanted, seen.savings, seen.moves.nextTotal, seen.moves.blockedPods, seen.workloads, seen.exposed.declared, seen.moves.runningTotal, seen.nodes.total, seen.nodes.spot], () => drawTiles(seen));
      fill(line, [seen.spotShare.history, line.clientWidth || 640, seen.spotShare.historySource], drawLine);
      fill(losses, [seen.exposed.declared, seen.exposed.assumed], drawLosses);
      fill(exposed, seen.exposed, drawExposed);
      fill(map, seen.pools.pools, () => drawMap(seen.pools));
      fill(moves, [seen.moves, seen.held], drawMoves);
      fill(events, seen.events, drawEvents);
      fill(skipped, seen.skipped, drawSkipped);
      fill(gangs, seen.gangs, drawGangs);
      const news = summary(seen);
      if (told !== null && told !== news) announce(news);
      told = news;
    },
  };
}

const summary = (seen) => `${count(seen.exposed.declared.pool, "workload")} with a declared minimum would not survive the loss of a pool. `
  + `Spot share ${percent(seen.spotShare.share)}. ${seen.outages.length ? `${count(seen.outages.length, "outage")} noted. ` : ""}${seen.paused ? "Moves are paused." : ""}`;

function drawBanners([paused, outages, { lost, lostTotal, leaving, leavingTotal }]) {
  const until = (at) => at === null ? "until `spotweave resume`" : ["until ", clock(at)];
  return [
    paused && h("p", { class: "banner warn" }, h("strong", {}, "Paused "), `by ${paused.by}${paused.reason ? `: ${paused.reason}` : ""} (`, until(paused.until), ")"),
    ...outages.map((each) => h("p", { class: "banner warn" }, h("strong", {}, `${each.class} is out `),
      each.zones.length ? `in ${each.zones.join(", ")} ` : "everywhere ", each.namespace ? `for namespace ${each.namespace} ` : "",
      "until ", clock(each.until), `, noted by ${each.by}`, each.evidence ? `; evidence: ${each.evidence.pod}` : "")),
    lost.length > 0 && h("p", { class: "banner bad" }, h("strong", {}, `${count(lostTotal, "node")} gone: `), names(lost.map((each) => each.name), lostTotal)),
    leaving.length > 0 && h("p", { class: "banner" }, h("strong", {}, `${count(leavingTotal, "node")} leaving: `), names(leaving, leavingTotal)),
  ];
}

const names = (some, total) => some.slice(0, 8).join(", ") + (total > 8 ? ` and ${whole(total - 8)} more` : "");

function drawTiles({ spotShare, savings, workloads, exposed, moves, nodes }) {
  const serving = spotShare.spot + spotShare.onDemand;
  const wanted = spotShare.wanted.spot / (spotShare.wanted.spot + spotShare.wanted.onDemand || 1);
  const worst = exposed.declared.pool;
  return [
    tile("Spot share", percent(spotShare.share), `${whole(spotShare.spot)} of ${count(serving, "serving pod")}; wanted ${percent(wanted)}`),
    tile("Estimated saving", percent(savings.share), `against all on-demand; ${priceSource(savings)}`),
    tile("Workloads with the wanted mix", `${whole(workloads.exact)} of ${whole(workloads.total)}`, extras(workloads)),
    tile("Not safe from a pool's loss", whole(worst), "workloads with a declared minimum", worst ? "bad" : "good"),
    tile("Moves under way", moves.runningTotal, `${whole(moves.nextTotal)} next, ${count(moves.blockedPods, "pod")} blocked`),
    tile("Nodes", nodes.total, `${nodes.spot} spot, ${nodes.total - nodes.spot} on-demand`),
  ];
}

// Where spot prices come from, always told: a number without it would be a guess that looks like a fact.
export function priceSource({ sources }) {
  const told = { default: "priced at the default 0.35", "cluster ratio": "priced by the cluster ratio", "node annotation": "priced by node annotations", "price table": "priced by the price table" };
  return Object.keys(sources).map((source) => told[source] ?? source).join(", ") || "no spot pods";
}

const extras = ({ soft, missed, mistaken }) => [[soft, "soft pod"], [missed, "missed pod"], [mistaken, "workload with mistakes", "workloads with mistakes"]]
  .filter(([number]) => number).map(([number, one, many]) => count(number, one, many)).join(", ") || "no soft pods, no missed pods";

const tile = (title, value, detail, kind = "") => h("div", { class: `tile ${kind}` },
  h("p", { class: "tile-title" }, title), h("p", { class: "tile-value" }, String(value)), h("p", { class: "tile-detail" }, detail));

// --- share over time ------------------------------------------------------------------------------------------------

const HEIGHT = 190, LEFT = 50, BOTTOM = 22, TOP = 8, RIGHT = 12;

const SOURCES = { prometheus: "From Prometheus.", memory: "From the memory of this replica, since it started." };

function drawLine([points, WIDTH, source]) {
  if (!points.length) return h("p", { class: "quiet" }, "No pod has been ready yet.");
  const [from, to] = [points[0][0], Math.max(points.at(-1)[0], points[0][0] + 60)];
  const x = (at) => LEFT + (at - from) / (to - from) * (WIDTH - LEFT - RIGHT);
  const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  const path = points.map(([at, share], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(share).toFixed(1)}`).join("");
  const [lastAt, last] = points.at(-1);
  const shares = points.map(([, share]) => share);
  const told = h("p", { class: "quiet small" }, `lowest ${percent(Math.min(...shares))}, highest ${percent(Math.max(...shares))} in the last ${ago(to - from)}`);
  const cross = s("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "line",
    "aria-label": `Spot share over the last ${ago(to - from)}: now ${percent(last)}, lowest ${percent(Math.min(...shares))}, highest ${percent(Math.max(...shares))}` },
    [0, 0.5, 1].map((share) => [
      s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share) }),
      s("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share))]),
    s("text", { x: LEFT, y: HEIGHT - 4 }, moment(from)),
    s("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, moment(to)),
    cross, s("path", { d: path }), s("circle", { cx: x(lastAt), cy: y(last), r: 4 }));
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = from + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * (to - from);
    const near = points.reduce((best, each) => Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best);
    cross.setAttribute("x1", x(near[0]));
    cross.setAttribute("x2", x(near[0]));
    cross.setAttribute("visibility", "visible");
    told.textContent = `${moment(near[0])}: ${percent(near[1])} on spot`;
  });
  return [svg, told, h("p", { class: "quiet small" }, SOURCES[source])];
}

const moment = (at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

// --- exposure -------------------------------------------------------------------------------------------------------

function drawLosses([declared, assumed]) {
  const cell = (number, domain, minimum) => number ? h("a", { href: `#/workloads?only=${domain}&minimum=${minimum}` }, whole(number)) : "0";
  return [
    table("Workloads that would not survive a loss", [
      ["Loss of", ([domain, text]) => text],
      ["declared", ([domain]) => h("span", { class: declared[domain] ? "bad" : "quiet" }, cell(declared[domain], domain, "declared")), "number"],
      ["assumed", ([domain]) => cell(assumed[domain], domain, "assumed"), "number"],
    ], Object.entries(LOSSES), ""),
    h("p", { class: "quiet small" }, "Declared: min-available or a PodDisruptionBudget sets how many replicas must serve. Assumed: the rollout strategy does."),
  ];
}

const drawExposed = ({ workloads, total }) => [
  table("Exposed workloads, worst first", [
    ["Workload", link],
    ["Minimum", (each) => each.assumed ? "assumed" : h("strong", {}, "declared")],
    ["Does not survive", (each) => h("span", { class: each.assumed ? "" : "bad" }, each.losses.join(", "))],
    ["Why", (each) => each.text, "wide extra"],
  ], workloads.slice(0, 10), "Every workload survives the loss of any node, pool or zone, and of all spot."),
  total > 10 && h("p", {}, h("a", { href: "#/workloads?only=exposed&sort=survives" }, `All ${whole(total)} exposed workloads`)),
];

// --- nodes ----------------------------------------------------------------------------------------------------------

function drawMap({ zones, instanceTypes, pools }) {
  if (!pools.length) return h("p", { class: "quiet" }, "The cluster has no nodes.");
  const at = (zone, type) => pools.filter((each) => each.zone === zone && each.instanceType === type);
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Nodes by zone and instance type" },
      h("table", { class: "map" },
        h("caption", { class: "unseen" }, "Nodes by zone and instance type: class, how full, leaving"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Zone"), instanceTypes.map((type) => h("th", { scope: "col" }, type)))),
        h("tbody", {}, zones.map((zone) => h("tr", {}, h("th", { scope: "row" }, zone),
          instanceTypes.map((type) => h("td", {}, at(zone, type).map(drawPool)))))))),
    h("p", { class: "legend small" }, chip("spot"), chip("on-demand"), h("span", {}, "Each square is a node. Its level shows the share of cores that pods request. Hatched: leaving. Crossed: not ready."))
  ];
}

function drawPool(pool) {
  const drawn = pool.nodes.slice(0, SQUARES);
  const title = h("span", { class: "pool-title" }, chip(pool.class), ` ${count(pool.count, "node")}, ${percent(pool.fill.cpu)}`);
  return h("div", { class: `pool ${pool.class}` },
    pool.class === "spot" ? h("a", { href: `#/drill?pool=${encodeURIComponent(`${pool.zone}/${pool.instanceType}`)}`, title: "Drill: what if we lose it?" }, title) : title,
    h("ul", { class: "squares" }, drawn.map(drawNode)),
    pool.count > drawn.length && h("span", { class: "quiet small" }, `and ${pool.count - drawn.length} more`),
    pool.leaving > 0 && h("span", { class: "small bad" }, `${pool.leaving} leaving `),
    age(pool) && h("span", { class: "quiet small" }, age(pool)));
}

// In whole hours, so that what is drawn does not change all the time.
function age({ nodes }) {
  const created = nodes.map((each) => each.created).filter(Boolean);
  const hours = created.length ? Math.floor((Date.now() / 1000 - Math.min(...created)) / 3600) : 0;
  return hours ? `oldest ${ago(hours * 3600)}` : "";
}

function drawNode(node) {
  const told = `${node.name}: cpu ${percent(node.fill.cpu)}, memory ${percent(node.fill.memory)}, ${node.leaving ? "leaving" : node.ready ? "ready" : "not ready"}, ${node.created ? ago(Date.now() / 1000 - node.created) : "?"} old`;
  const level = h("span", { class: "level" });
  level.style.height = `${Math.min(100, Math.round((node.fill.cpu ?? 0) * 100))}%`;
  return h("li", { class: `square ${node.leaving ? "leaving" : ""} ${node.ready ? "" : "not-ready"}`, title: told }, level, h("span", { class: "unseen" }, told));
}

// --- moves ----------------------------------------------------------------------------------------------------------

function drawMoves([moves, held]) {
  const idle = !moves.runningTotal && !moves.nextTotal && !moves.skippedTotal && !held.pods;
  if (idle) return h("p", {}, verdict(true, "Nothing to move: every pod runs where it should, or as close to that as possible."));
  return [
    held.pods > 0 && [h("h3", {}, `Evictions held (${whole(held.pods)})`), h("ul", {}, held.evictions.slice(0, 8).map((each) =>
      h("li", {}, link(each), " ", drawHeld(each))))],
    moves.runningTotal > 0 && [h("h3", {}, `Under way (${moves.runningTotal})`), h("ul", {}, moves.running.slice(0, 8).map((each) =>
      h("li", {}, link(each), ` ${each.pod} on ${each.node} serves until its replacement is ready`)))],
    moves.nextTotal > 0 && [h("h3", {}, `Next (${moves.nextTotal})`), h("ul", {}, moves.next.slice(0, 8).map((each) =>
      h("li", {}, `${each.how} ${each.pod} (${each.reason})`, each.text ? `: ${each.text}` : "")))],
    moves.skippedTotal > 0 && [h("h3", {}, "Blocked"), h("ul", {}, moves.blocked.map((each) => h("li", {}, `${count(each.pods, "pod")}: ${each.reason}`))),
      h("details", { "data-key": "blocked" }, h("summary", {}, "Which workloads"), h("ul", {}, moves.skipped.map((each) => h("li", {}, `${each.workload}: ${each.reason}`))))],
  ];
}

// An eviction by others, which waits for the replacement.
export const drawHeld = (each) => [`${each.pod}: since `, clock(each.since), ", until ", clock(each.until), ` at the latest; asked for by ${each.by}`];

const drawSkipped = ({ pods, reasons, reasonsTotal }) => pods
  ? [
    table("Pods of opted-in namespaces that are not placed", [
      ["Namespace", (each) => each.namespace],
      ["Pods", (each) => whole(each.pods), "number"],
      ["Why", (each) => each.text, "wide"],
    ], reasons.slice(0, 10), ""),
    reasonsTotal > 10 && h("p", { class: "quiet small" }, `and ${whole(reasonsTotal - 10)} more rows in api/v1/overview`),
  ]
  : h("p", { class: "quiet" }, "Every pod of the opted-in namespaces is placed.");

const drawEvents = (events) => events.length
  ? h("ol", { class: "timeline" }, events.slice(0, 15).map(drawEvent))
  : h("p", { class: "quiet" }, "Nothing has happened since this replica started.");

export const drawEvent = (each) => h("li", { class: each.what }, clock(each.at), " ", h("span", { class: "what" }, each.what), " ",
  each.workload ? [link(each.workload), ": "] : each.gang ? [`${each.gang.namespace}/${each.gang.name}: `] : "", each.text);
