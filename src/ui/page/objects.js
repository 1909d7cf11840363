// What is wrong by cause, also with objects without a hostname, and counts.

import { fill } from "./answer.js";
import { element, table, throttled } from "./element.js";

export class ObjectsView {
  title = "Objects";

  constructor() {
    this.place = element("div");
    this.content = [element("h1", {}, "Objects"), this.place];
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
    fill(this.place, "status", {}, ({ summary, notes }) => [
      ...notes.map((note) => element("p", { class: "state failing" }, note)),
      element("p", {}, summary.notOk === 0 ? `${summary.objects} objects are OK.` : `${summary.notOk} of ${summary.objects} objects are not OK.`),
      ...wrong(summary),
      element("h2", {}, "Kinds"),
      table("Kinds", ["Kind", "Objects", "Not OK"], summary.kinds.map((of) => [of.kind, String(of.objects), String(of.notOk)])),
    ]);
  }
}

function wrong(summary) {
  if (summary.causes.length === 0) return [];
  const rows = summary.causes.map((cause) => [
    `${cause.condition} ${cause.status}`, cause.reason, String(cause.count), cause.message, cause.objects.join(", "),
  ]);
  const omitted = summary.causesOmitted;
  const more = omitted > 0 ? [element("p", { class: "faint" }, `and ${omitted} more causes`)] : [];
  return [table("What is wrong, by cause", ["Condition", "Reason", "Conditions", "Message", "Objects, as"], rows), ...more];
}
