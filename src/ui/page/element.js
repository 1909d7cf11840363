// Elements of the page. Whatever comes from a source becomes text, never HTML.

/** Makes an element. `null` and `false` among attributes and children are left out. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== false && child !== undefined));
  return made;
}

const SIGNS = { failing: "✖", waiting: "◷", faulty: "▲", ok: "●" };

/** The states of a host, the worst first. */
export const STATES = Object.keys(SIGNS);

/** A state, as a sign and a word. */
export function state(name) {
  return element("span", { class: `state ${name}` }, `${SIGNS[name]} ${name}`);
}

/** A table with a caption for screen readers. A cell is a text or a node. */
export function table(label, heads, rows) {
  const head = element("tr", {}, heads.map((text) => element("th", { scope: "col" }, text)));
  const body = rows.map((cells) => element("tr", {}, cells.map((cell) => element("td", {}, cell ?? ""))));
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
    element("table", {}, element("caption", { class: "unseen" }, label),
      element("thead", {}, head), element("tbody", {}, body)));
}

/** A link to a host's page. */
export function hostLink(host) {
  return element("a", { href: `#/host/${encodeURIComponent(host)}` }, host);
}

/** A time in UTC, to the minute. */
export function time(milliseconds) {
  return new Date(milliseconds).toISOString().replace("T", " ").slice(0, 16) + " UTC";
}

/** The whole days until a time. */
export function daysUntil(milliseconds) {
  return Math.floor((milliseconds - Date.now()) / 86_400_000);
}

/** The first of many items, and how many there are beyond them. */
export function some(items, most) {
  const more = items.length - most;
  return [items.slice(0, most), more > 0 ? `and ${more} more` : ""];
}

/** A function that runs at once, and then at most once in an interval. */
export function throttled(milliseconds, run) {
  let last = -Infinity;
  let timer = null;
  return () => {
    if (timer !== null) return;
    const wait = last + milliseconds - performance.now();
    timer = setTimeout(() => {
      timer = null;
      last = performance.now();
      run();
    }, Math.max(0, wait));
  };
}
