// Small pieces that all pages are made from. Text is always set as text: what comes from the cluster is never markup.

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

// Replaces what is in a container, unless it would be the same; whoever had the focus in it keeps it.
export function fill(container, data, draw) {
  const shown = JSON.stringify(data);
  if (container.shown === shown) return false;
  container.shown = shown;
  const focused = container.contains(document.activeElement) ? mark(document.activeElement) : null;
  const opened = new Set([...container.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  container.replaceChildren(...[draw(data)].flat(Infinity).filter(Boolean));
  for (const each of container.querySelectorAll("details")) if (opened.has(each.dataset.key)) each.open = true;
  if (focused) [...container.querySelectorAll("a, button, [tabindex]")].find((each) => mark(each) === focused)?.focus();
  return true;
}

const mark = (element) => element.getAttribute("href") ?? element.dataset.key ?? element.textContent;

export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  return h("section", { "aria-labelledby": id, class: "card" }, h("h2", { id }, title), ...children);
}

// Columns: [title, cell of a row, class]. The first column's cells are row headers.
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  const cell = (row) => ([, content, kind], index) => index
    ? h("td", { class: kind }, content(row))
    : h("th", { scope: "row", class: kind }, content(row));
  return h("div", { class: rows.length > 25 ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(cell(row)))))));
}

export const pathOf = (each) => [each.namespace, each.kind, each.name].map(encodeURIComponent).join("/");
export const link = (each) => h("a", { href: `#/workloads/${pathOf(each)}` }, `${each.namespace}/${each.name}`);
export const percent = (share) => share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
export const whole = (number) => number.toLocaleString("en");
export const count = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;
export const shareOf = ({ spot, onDemand }) => spot + onDemand ? spot / (spot + onDemand) : null;
export const mix = ({ spot, onDemand }) => `${spot} + ${onDemand}`;
export const signed = (number) => String(number).replace("-", "−");
export const chip = (of) => h("span", { class: `chip ${of}` }, of);

export function ago(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

export const since = (at, now = Date.now() / 1000) => at ? h("time", { datetime: new Date(at * 1000).toISOString(), title: new Date(at * 1000).toLocaleString() }, `${ago(now - at)} ago`) : "–";
export const clock = (at) => h("time", { datetime: new Date(at * 1000).toISOString() }, new Date(at * 1000).toLocaleTimeString());

// Yes and no are words and signs, never colours alone.
export const verdict = (good, text, assumed = false) => h("span", { class: good ? "good" : assumed ? "fair" : "bad" }, h("span", { "aria-hidden": "true" }, good ? "✓ " : "✗ "), text);
