// The hosts as the server has them, and what changes.

import { STATES } from "./element.js";

const COLLATOR = new Intl.Collator("en");

/** The worst first, and then by name. */
function order(a, b) {
  return a.rank - b.rank || COLLATOR.compare(a.host, b.host) || (a.host < b.host ? -1 : Number(a.host > b.host));
}

export class Hosts extends EventTarget {
  #rows = new Map();
  /** The rows in order. A change moves the rows that it is about, and no other is compared but to find their places. */
  #sorted = [];
  #counts = none();
  isKnown = false;

  /** Takes in a message: all hosts, or those that differ. */
  take(message) {
    const hosts = message.hosts.map(completed);
    if (message.whole) {
      this.#rows = new Map(hosts.map((row) => [row.host, row]));
      this.#sorted = hosts.sort(order);
      this.#counts = none();
      for (const row of hosts) this.#counts[row.state] += 1;
    } else {
      for (const host of message.gone) this.#remove(host);
      for (const row of hosts) this.#put(row);
    }
    this.isKnown = true;
    const changed = new Set(message.whole ? [] : hosts.map((row) => row.host));
    this.dispatchEvent(new CustomEvent("change", { detail: { changed, gone: message.gone } }));
  }

  #put(row) {
    this.#remove(row.host);
    this.#rows.set(row.host, row);
    this.#sorted.splice(this.#place(row), 0, row);
    this.#counts[row.state] += 1;
  }

  #remove(host) {
    const row = this.#rows.get(host);
    if (row === undefined) return;
    this.#rows.delete(host);
    this.#sorted.splice(this.#place(row), 1);
    this.#counts[row.state] -= 1;
  }

  /** The place of a row in order: the number of rows before it. */
  #place(row) {
    let [from, until] = [0, this.#sorted.length];
    while (from < until) {
      const middle = (from + until) >> 1;
      if (order(this.#sorted[middle], row) < 0) from = middle + 1;
      else until = middle;
    }
    return from;
  }

  get(host) {
    return this.#rows.get(host);
  }

  /** All rows, the worst first. */
  all() {
    return this.#sorted;
  }

  /** The rows with all terms of a search, and of one state if one is given. */
  search(text, state) {
    const terms = text.toLowerCase().split(/\s+/).filter((term) => term !== "");
    if (terms.length === 0 && state === null) return this.#sorted;
    return this.#sorted.filter((row) =>
      (state === null || row.state === state) && terms.every((term) => matches(row, term)));
  }

  /** The number of hosts in each state. */
  counts() {
    return this.#counts;
  }
}

function none() {
  return Object.fromEntries(STATES.map((state) => [state, 0]));
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
