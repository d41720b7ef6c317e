// Which page is shown, and what it is told every two seconds.

import { overview } from "./overview.js";
import { workloads } from "./workloads.js";
import { workload } from "./workload.js";
import { drill } from "./drill.js";
import { gang, gangs } from "./gangs.js";
import { ago, h } from "./dom.js";

const PACE_SECONDS = 2; // unless the server says otherwise: the more look, the rarer each asks
const PATIENCE_MILLIS = 10000;
const OLD_SECONDS = 10;
const MOST_KNOWN = 20; // answers
const TOKEN = "spotweave-token";
const byId = (id) => document.getElementById(id);
const main = byId("main");

let page = null;
let known = new Map(); // by path: what was told, and its tag
let asked = 0;
let heard = null; // when an answer came, and what it was worth
let last = null; // what is shown
let door = null; // who waits for a token: one promise for all that were refused

class Refused extends Error {}

// --- asking ---------------------------------------------------------------------------------------------------------

async function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  const answer = await fetch(`api/v1/${path}`, {
    headers: { ...(token && { Authorization: `Bearer ${token}` }), ...(known.has(path) && { "If-None-Match": known.get(path).tag }) },
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MILLIS),
  });
  if (answer.status === 401) return (token === sessionStorage.getItem(TOKEN) ? openDoor(token !== null) : Promise.resolve()).then(() => get(path));
  const state = answer.headers.get("Spotweave-State");
  if (state) heard = { at: Date.now(), ...JSON.parse(state) };
  if (answer.status === 304) return known.get(path).raw;
  if (!state) throw new Refused(`${answer.status} ${answer.statusText}: this answer is not from Spotweave`);
  const raw = await answer.json();
  if (!answer.ok) throw new Refused(raw.error);
  if (known.size >= MOST_KNOWN) known.delete(known.keys().next().value);
  known.set(path, { raw, tag: answer.headers.get("ETag") });
  return raw;
}

// A page asks several questions at once: whoever is refused waits for the same token. Without one the door stays open.
function openDoor(wrong) {
  const dialog = byId("door");
  byId("door-wrong").hidden = !wrong;
  door ??= new Promise((done) => {
    const close = () => {
      const token = byId("token").value.trim();
      if (!token) return dialog.showModal();
      dialog.removeEventListener("close", close);
      sessionStorage.setItem(TOKEN, token);
      byId("token").value = "";
      door = null;
      done();
    };
    dialog.addEventListener("close", close);
    dialog.showModal();
  });
  return door;
}

async function poll(round) {
  if (round !== asked || document.hidden) return;
  try {
    const data = await page.ask(get);
    if (round !== asked) return;
    page.show(last = data);
    main.removeAttribute("aria-busy");
    complain(null);
  } catch (error) {
    if (round !== asked) return;
    if (error instanceof Refused) complain(error.message);
    else if (!(error instanceof TypeError || error.name === "TimeoutError")) throw error;
  } finally {
    tellState();
    if (round === asked) setTimeout(poll, pause(), round);
  }
}

// Until the moment at which the server wants all pages to ask; while it says nothing, at our own pace.
function pause() {
  const left = heard ? heard.at + heard.askAgainSeconds * 1000 - Date.now() : 0;
  return left > 0 ? left : PACE_SECONDS * 1000;
}

const again = () => poll(++asked);

function complain(text) {
  let note = byId("complaint");
  if (!note) main.prepend(note = h("p", { id: "complaint", class: "banner warn", role: "alert" }));
  note.hidden = !text;
  if (note.textContent !== (text ?? "")) note.textContent = text ?? "";
}

// --- how much it is worth -------------------------------------------------------------------------------------------

function state() {
  if (!heard) return ["waiting", "Loading …", null];
  const silent = (Date.now() - heard.at) / 1000;
  const age = heard.ageSeconds === null ? null : heard.ageSeconds + silent;
  if (silent > OLD_SECONDS + heard.askAgainSeconds) return ["bad", "No answer", age ?? silent];
  if (!heard.synced) return ["bad", "Not synced", age];
  if (age > OLD_SECONDS + heard.askAgainSeconds) return ["bad", "Old data", age];
  return heard.leading ? ["good", "Live", age] : ["fair", "Live, not the leader", age];
}

function tellState() {
  const [kind, text, age] = state();
  byId("state").dataset.state = kind;
  if (byId("state-text").textContent !== text) byId("state-text").textContent = text; // read aloud, so only what is new
  byId("state-age").textContent = age === null ? "" : ` · ${ago(age)} old`;
  byId("state").title = heard && !heard.leading ? "Another replica leads; it has the history of moves" : "";
}

export function announce(text) {
  const line = h("span", {}, text);
  byId("news").replaceChildren(line);
}

// --- pages ----------------------------------------------------------------------------------------------------------

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decoded);
  const around = { again, announce, query: new URLSearchParams(query), get };
  if (name === "workloads" && rest.length === 3) return workload(around, ...rest);
  if (name === "workloads") return workloads(around);
  if (name === "gangs" && rest.length > 1) return gang(around, rest[0], rest.slice(1).join("/"));
  if (name === "gangs") return gangs(around);
  if (name === "drill") return drill(around);
  return overview(around);
}

function turn(event) {
  if (location.hash === "#main") return main.focus();
  [page, last] = [route(), null];
  document.title = `${page.title} · Spotweave`;
  for (const each of document.querySelectorAll("nav a")) {
    each.toggleAttribute("aria-current", each.dataset.page === page.place);
    if (each.dataset.page === page.place) each.setAttribute("aria-current", "page");
  }
  main.replaceChildren(page.root);
  main.setAttribute("aria-busy", "true");
  if (event) main.focus({ preventScroll: true });
  if (event) scrollTo(0, 0);
  again();
}

// --- light and dark -------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function dress(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  localStorage.setItem("spotweave-theme", theme);
}

byId("theme").addEventListener("click", () => dress(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
dress(THEMES.includes(localStorage.getItem("spotweave-theme")) ? localStorage.getItem("spotweave-theme") : "auto");
document.addEventListener("visibilitychange", () => document.hidden || again());
addEventListener("hashchange", turn);
addEventListener("resize", () => last && page.show(last));
setInterval(tellState, 1000);
turn();
