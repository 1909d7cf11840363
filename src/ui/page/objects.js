// The objects whose conditions are not as desired, also those without a hostname, and counts.

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
      table("Kinds", ["Kind", "Objects", "Not OK", "Causes"], summary.kinds.map((of) => [
        of.kind, String(of.objects), String(of.notOk),
        of.causes.map((cause) => `${cause.condition} ${cause.reason}: ${cause.objects}`).join(", "),
      ])),
    ]);
  }
}

function wrong(summary) {
  const rows = summary.conditions.map((row) => [row.object, `${row.condition} ${row.status}`, row.reason, row.message]);
  if (rows.length === 0) return [];
  const more = summary.omitted > 0 ? [element("p", { class: "faint" }, `and ${summary.omitted} more conditions`)] : [];
  return [table("Conditions that are not as desired", ["Object", "Condition", "Reason", "Message"], rows), ...more];
}
