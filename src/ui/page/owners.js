// The owners of hostnames: namespaces with their hosts, and the record of ownership.

import { fill } from "./answer.js";
import { element, some, state, table, throttled } from "./element.js";

const ROWS = 500;

export class OwnersView {
  title = "Owners";
  #hosts;
  #record = [];

  constructor(hosts) {
    this.#hosts = hosts;
    this.namespaces = element("div");
    this.place = element("div");
    this.record = element("div", { "aria-live": "polite" });
    this.search = element("input", { type: "search", input: () => this.#draw() });
    this.content = [
      element("h1", {}, "Owners"), this.namespaces,
      element("h2", {}, "Record of ownership"), this.place,
      element("div", { class: "tools" }, element("label", {}, "Search", this.search)), this.record,
    ];
    this.reload = throttled(2000, () => this.#load());
  }

  show() {
    this.reload();
  }

  hide() {}

  changed() {
    this.reload();
  }

  async #load() {
    this.#record = [];
    await fill(this.place, "owners", {}, (record) => {
      this.#record = record;
      return element("p", { class: "faint" }, "Hostnames and ports on addresses that namespaces share, and those of TenantGateways.");
    });
    this.#draw();
  }

  #draw() {
    const byNamespace = new Map();
    for (const row of this.#hosts.all()) {
      for (const namespace of row.namespaces) {
        const of = byNamespace.get(namespace) ?? { count: 0, worst: row.state, states: {} };
        of.count += 1;
        of.states[row.state] = (of.states[row.state] ?? 0) + 1;
        byNamespace.set(namespace, of);
      }
    }
    const names = [...byNamespace.keys()].sort();
    this.namespaces.replaceChildren(table("Namespaces", ["Namespace", "Hosts", "Worst", "Failing"], names.map((name) => {
      const { count, worst, states } = byNamespace.get(name);
      return [element("a", { href: `#/hosts/namespace:${encodeURIComponent(name)}` }, name), String(count), state(worst), String(states.failing ?? 0)];
    })));
    const text = this.search.value.toLowerCase();
    const found = this.#record.filter((row) => `${row.what} ${row.namespace}`.toLowerCase().includes(text));
    const [rows, more] = some(found, ROWS);
    this.record.replaceChildren(
      table("Record of ownership", ["What", "Namespace", "Protocol", "Since", "Released"],
        rows.map((row) => [row.what, row.namespace, row.protocol ?? "", row.since ?? "", row.released ?? ""])),
      element("p", { class: "faint" }, more));
  }
}
