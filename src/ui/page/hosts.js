// The hosts as the server has them, and what changes.

import { STATES } from "./element.js";

const COLLATOR = new Intl.Collator("en");

export class Hosts extends EventTarget {
  #rows = new Map();
  #sorted = null;
  isKnown = false;

  /** Takes in a message: all hosts, or those that differ. */
  take(message) {
    if (message.whole) this.#rows.clear();
    for (const host of message.gone) this.#rows.delete(host);
    for (const row of message.hosts) this.#rows.set(row.host, completed(row));
    this.#sorted = null;
    this.isKnown = true;
    const changed = new Set(message.whole ? [] : message.hosts.map((row) => row.host));
    this.dispatchEvent(new CustomEvent("change", { detail: { changed, gone: message.gone } }));
  }

  get(host) {
    return this.#rows.get(host);
  }

  /** All rows, the worst first. */
  all() {
    this.#sorted ??= [...this.#rows.values()].sort(
      (a, b) => a.rank - b.rank || COLLATOR.compare(a.host, b.host));
    return this.#sorted;
  }

  /** The rows with all terms of a search, and of one state if one is given. */
  search(text, state) {
    const terms = text.toLowerCase().split(/\s+/).filter((term) => term !== "");
    return this.all().filter((row) =>
      (state === null || row.state === state) && terms.every((term) => matches(row, term)));
  }

  /** The number of hosts in each state. */
  counts() {
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const row of this.#rows.values()) counts[row.state] += 1;
    return counts;
  }
}

/** A row with what lists and searches need of it. */
function completed(row) {
  const gateways = [...new Set(row.places.map((place) => place.gateway))];
  const ends = row.places.flatMap((place) => place.certificate?.validity?.[1] ?? []);
  return {
    ...row,
    rank: STATES.indexOf(row.state),
    gateways,
    expires: ends.length === 0 ? null : Math.min(...ends) * 1000,
    wrong: wrong(row),
    words: [row.host, ...row.namespaces, ...gateways].join(" ").toLowerCase(),
  };
}

/** What is wrong with a host, in a line. */
function wrong(row) {
  const failing = row.places.flatMap((place) => place.failing);
  if (failing.length > 0) return failing[0];
  if (row.faults.length > 0) {
    const fault = row.faults[0];
    return `${fault.reason}: ${fault.message}`;
  }
  switch (row.state) {
    case "failing": return "nothing answers: no route is attached";
    case "waiting": return "a certificate is being issued";
    case "faulty": return "no route is attached at one of its listeners";
    default: return "";
  }
}

function matches(row, term) {
  const [field, value] = term.split(/:(.*)/s);
  switch (field) {
    case "namespace": return row.namespaces.includes(value);
    case "gateway": return row.gateways.includes(value);
    case "policy": return row.policies.some((policy) => policy.split(" ").join("/").toLowerCase() === value);
    default: return row.words.includes(term);
  }
}
