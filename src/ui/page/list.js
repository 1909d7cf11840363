// The view of all hosts: a search, and a list of which only the rows in sight are in the document.

import { STATES, daysUntil, element, state } from "./element.js";

/** Rows beyond the edges, so that a short scroll finds them. */
const BEYOND = 8;

const HEADS = [
  ["State", ""], ["Host", ""], ["Namespace", "wide"], ["Gateway", "wide"], ["Certificate", "wide"], ["What is wrong", ""],
];

export class HostsView {
  title = "Hosts";
  #hosts;
  #rows = [];
  #shown = new Map();
  #selected = null;
  #state = null;
  #height = 40;

  constructor(hosts) {
    this.#hosts = hosts;
    this.search = element("input", {
      type: "search", autocomplete: "off", spellcheck: "false", placeholder: "part of a host, namespace:NAME, gateway:NAMESPACE/NAME",
      input: () => this.#update(), keydown: (event) => this.#searchKey(event),
    });
    this.filters = STATES.map((name) => element("button", {
      type: "button", "aria-pressed": "false", click: () => this.#filter(name),
    }, state(name)));
    this.space = element("div", { class: "space", role: "presentation" });
    const head = element("div", { role: "row", class: "head", "aria-rowindex": "1" },
      HEADS.map(([text, kind]) => element("div", { role: "columnheader", class: kind }, text)));
    this.grid = element("div", {
      role: "grid", tabindex: "0", "aria-label": "Hosts, the worst first", "aria-readonly": "true",
      scroll: () => this.#frame(), keydown: (event) => this.#key(event),
    }, element("div", { role: "rowgroup" }, head), element("div", { role: "rowgroup" }, this.space));
    this.count = element("p", { class: "faint" });
    this.content = [
      element("h1", {}, "Hosts"),
      element("div", { class: "tools" },
        element("label", {}, "Search", this.search), element("kbd", { "aria-hidden": "true" }, "/"),
        ...this.filters),
      this.count, this.grid,
    ];
    this.watcher = new ResizeObserver(() => this.#frame());
  }

  show(search) {
    if (search !== "") this.search.value = search;
    this.watcher.observe(this.grid);
    this.#update();
  }

  hide() {
    this.watcher.disconnect();
  }

  /** Takes in that hosts changed. */
  changed(names) {
    for (const name of names) {
      const row = this.#shown.get(name);
      if (row) row.node.classList.add("changed");
    }
    this.#update();
  }

  #filter(name) {
    this.#state = this.#state === name ? null : name;
    STATES.forEach((of, at) => this.filters[at].setAttribute("aria-pressed", String(of === this.#state)));
    this.#update();
  }

  #update() {
    this.#rows = this.#hosts.search(this.search.value, this.#state);
    const counts = this.#hosts.counts();
    STATES.forEach((of, at) => this.filters[at].replaceChildren(state(of), ` ${counts[of]}`));
    const all = this.#hosts.all().length;
    this.count.textContent = this.#hosts.isKnown
      ? (this.#rows.length === all ? `${all} hosts` : `${this.#rows.length} of ${all} hosts`)
      : "Hosts are being read.";
    this.grid.setAttribute("aria-rowcount", String(this.#rows.length + 1));
    this.#render();
  }

  #frame() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      this.#render();
    });
  }

  /** Puts the rows in sight into the document, and takes the others out of it. */
  #render() {
    const height = parseFloat(getComputedStyle(this.grid).getPropertyValue("--row")) * 16 || this.#height;
    this.#height = height;
    this.space.style.height = `${this.#rows.length * height}px`;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / height) - BEYOND);
    const last = Math.min(this.#rows.length, Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / height) + BEYOND);
    const wanted = new Set();
    for (let at = first; at < last; at += 1) {
      const row = this.#rows[at];
      wanted.add(row.host);
      let shown = this.#shown.get(row.host);
      if (shown === undefined) {
        shown = { node: this.#node(row.host), row: null };
        this.#shown.set(row.host, shown);
        this.space.append(shown.node);
      }
      if (shown.row !== row) {
        shown.row = row;
        shown.node.replaceChildren(...cells(row));
      }
      shown.node.style.transform = `translateY(${at * height}px)`;
      shown.node.setAttribute("aria-rowindex", String(at + 2));
      shown.node.setAttribute("aria-selected", String(row.host === this.#selected));
      shown.node.id = `row-${at}`;
    }
    for (const [host, { node }] of this.#shown) {
      if (!wanted.has(host)) {
        node.remove();
        this.#shown.delete(host);
      }
    }
    const selected = this.#shown.get(this.#selected);
    if (selected) this.grid.setAttribute("aria-activedescendant", selected.node.id);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  #node(host) {
    const node = element("div", { role: "row", click: () => open(host) });
    node.addEventListener("animationend", () => node.classList.remove("changed"));
    return node;
  }

  #searchKey(event) {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      this.grid.focus();
      this.#select(0);
    } else if (event.key === "Escape") {
      this.search.value = "";
      this.#update();
    }
  }

  #key(event) {
    const at = this.#rows.findIndex((row) => row.host === this.#selected);
    const page = Math.max(1, Math.floor(this.grid.clientHeight / this.#height) - 2);
    const moves = {
      ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page,
      Home: 0, End: this.#rows.length - 1,
    };
    if (event.key in moves) {
      event.preventDefault();
      this.#select(moves[event.key]);
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      open(this.#selected);
    } else if (event.key === "Escape") {
      this.search.focus();
    }
  }

  #select(at) {
    if (this.#rows.length === 0) return;
    const index = Math.min(Math.max(at, 0), this.#rows.length - 1);
    this.#selected = this.#rows[index].host;
    const top = index * this.#height;
    // The heads stay on top.
    const sight = this.grid.clientHeight - this.#height;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + this.#height > this.grid.scrollTop + sight) this.grid.scrollTop = top + this.#height - sight;
    this.#render();
  }
}

function open(host) {
  location.hash = `#/host/${encodeURIComponent(host)}`;
}

function cells(row) {
  const cell = (kind, content) => element("div", { role: "gridcell", class: kind, title: typeof content === "string" ? content : null }, content);
  return [
    cell("", state(row.state)),
    cell("", row.host),
    cell("wide", row.namespaces.join(", ")),
    cell("wide", row.gateways.join(", ")),
    cell("wide", certificate(row)),
    cell("", row.wrong),
  ];
}

function certificate(row) {
  if (row.expires === null) return "";
  const days = daysUntil(row.expires);
  return days < 0 ? "expired" : `${days} days`;
}
