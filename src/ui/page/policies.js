// Policies, and the hosts that each affects.

import { fill } from "./answer.js";
import { element, hostLink, some, table, throttled } from "./element.js";

export class PoliciesView {
  title = "Policies";
  #hosts;

  constructor(hosts) {
    this.#hosts = hosts;
    this.place = element("div");
    this.content = [element("h1", {}, "Policies"), this.place];
    this.reload = throttled(2000, () => this.#load());
  }

  show() {
    this.reload();
  }

  hide() {}

  changed() {
    this.reload();
  }

  #load() {
    fill(this.place, "policies", {}, (policies) => this.#drawn(policies));
  }

  #drawn(policies) {
    if (policies.length === 0) return element("p", { class: "faint" }, "There is no policy.");
    const affected = new Map();
    for (const row of this.#hosts.all()) {
      for (const policy of row.policies) affected.set(policy, [...(affected.get(policy) ?? []), row.host]);
    }
    const rows = [...policies].sort((a, b) => b.faults.length - a.faults.length || (a.policy < b.policy ? -1 : 1));
    return table("Policies", ["Policy", "Affects", "What is wrong"], rows.map(({ policy, faults }) => {
      const hosts = affected.get(policy) ?? [];
      const [first, more] = some(hosts, 5);
      const search = policy.split(" ").join("/").toLowerCase();
      const names = first.flatMap((host, at) => at === 0 ? [hostLink(host)] : [", ", hostLink(host)]);
      return [
        policy,
        hosts.length === 0 ? "no host" : element("span", {}, ...names,
          more === "" ? "" : element("a", { href: `#/hosts/policy:${encodeURIComponent(search)}` }, ` ${more}`)),
        faults.map((fault) => `${fault.condition} ${fault.status}, ${fault.reason}: ${fault.message}`).join("; "),
      ];
    }));
  }
}
