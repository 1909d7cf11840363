// The page of a host: the steps of a request, what is wrong, its certificate's line of time, its
// last errors and its history.

import { fill } from "./answer.js";
import { drawing, element, state, table, throttled, time } from "./element.js";

const DAY = 86_400_000;

export class HostView {
  #hosts;
  #host;

  constructor(hosts, host) {
    this.#hosts = hosts;
    this.#host = host;
    this.title = host;
    this.heading = element("h1", {}, host);
    this.now = element("div");
    this.more = element("div");
    this.steps = element("div", { "aria-live": "polite" });
    this.errors = element("div");
    this.history = element("div");
    this.url = element("input", { type: "text", inputmode: "url", spellcheck: "false", "aria-label": "URL to explain" });
    this.content = [
      element("p", {}, element("a", { href: "#/hosts" }, "All hosts")),
      this.heading, this.now,
      element("h2", {}, "Steps of a request"),
      element("form", { class: "tools", submit: (event) => this.#asked(event) },
        element("label", {}, "URL", this.url), element("button", {}, "Explain")),
      this.steps, this.more,
      element("h2", {}, "Last errors"), this.errors,
      element("h2", {}, "History"), this.history,
    ];
    this.reload = throttled(1000, () => this.#load());
  }

  show() {
    this.#draw();
    this.reload();
    // Requests fail without a change of the host.
    this.timer = setInterval(() => this.#tell(), 5000);
  }

  hide() {
    clearInterval(this.timer);
  }

  changed(names, gone) {
    if (names.has(this.#host) || gone.includes(this.#host) || names.size === 0) this.#draw();
    if (names.has(this.#host)) this.reload();
  }

  #asked(event) {
    event.preventDefault();
    this.#explain();
  }

  #load() {
    this.#explain();
    this.#tell();
  }

  async #tell() {
    // A controller that does not answer is not asked again meanwhile.
    if (this.isTold) return;
    this.isTold = true;
    const host = this.#host;
    await Promise.all([
      fill(this.errors, "errors", { host }, errors),
      fill(this.history, "history", { host }, history),
    ]);
    this.isTold = false;
  }

  #explain() {
    if (this.url.value === "") return;
    fill(this.steps, "explain", { url: this.url.value, method: "GET" }, chain);
  }

  /** Draws what the row of the host says. */
  #draw() {
    const row = this.#hosts.get(this.#host);
    if (row === undefined) {
      const text = this.#hosts.isKnown ? "No listener and no route has this hostname." : "Hosts are being read.";
      this.now.replaceChildren(element("p", {}, text));
      this.more.replaceChildren();
      return;
    }
    if (this.url.value === "") {
      this.url.value = url(row);
      this.reload();
    }
    this.now.replaceChildren(
      element("p", {}, state(row.state), row.wrong === "" ? "" : ` ${row.wrong}`),
      element("p", { class: "faint" }, `Namespace ${row.namespaces.join(", ")}`));
    this.more.replaceChildren(
      ...faults(row), ...places(row), ...policies(row), ...certificates(row));
  }
}

/** The URL that a person would try first: by HTTPS if there is a place for it. */
function url(row) {
  const known = row.places.filter((place) => !place.unread);
  const place = known.find((of) => of.protocol === "HTTPS") ?? known.find((of) => of.protocol === "HTTP");
  const host = row.host.replace(/^\*/, "any");
  if (place === undefined) return `https://${host}/`;
  const scheme = place.protocol === "HTTPS" ? "https" : "http";
  const usual = scheme === "https" ? 443 : 80;
  return `${scheme}://${host}${place.port === usual ? "" : `:${place.port}`}/`;
}

function chain(explanation) {
  const notes = explanation.notes.map((note) => element("p", { class: "faint" }, note));
  const steps = explanation.links.map((link) => {
    const [kind, sign, word] = link.unread ? ["unread", "?", "not read"] : link.ok ? ["ok", "✓", "holds"] : ["fails", "✖", "fails"];
    return element("li", { class: kind, "data-sign": sign },
      element("b", {}, link.what), element("span", { class: "unseen" }, ` ${word}: `), " ", link.text,
      link.reason ? element("span", { class: "faint" }, ` (reason ${link.reason})`) : null);
  });
  return [...notes, element("ol", { class: "chain" }, steps)];
}

function faults(row) {
  if (row.faults.length === 0) return [];
  const rows = row.faults.map((fault) => [fault.object, `${fault.condition} ${fault.status}`, fault.reason, fault.message]);
  return [element("h2", {}, "What is wrong"), table("What is wrong", ["Object", "Condition", "Reason", "Message"], rows)];
}

function places(row) {
  const rows = row.places.map((place) => [
    place.unread ? `gateway ${place.gateway}: you may not read it` : `${place.protocol} ${place.port}`,
    place.unread ? "" : `${place.parent} listener ${place.listener}`,
    place.redirect ? `redirects to HTTPS on port ${place.redirect}` : place.routes.join(", ") || "no route",
    place.backends.join(", "),
    place.failing.join("; "),
  ]);
  if (rows.length === 0) return [];
  return [element("h2", {}, "Where it is served"), table("Where it is served", ["Port", "Listener", "Routes", "Backends", "Fails"], rows)];
}

function policies(row) {
  if (row.policies.length === 0) return [];
  const items = row.policies.map((policy) => element("li", {}, policy));
  return [element("h2", {}, "Policies"), element("ul", {}, items)];
}

function certificates(row) {
  const bySecret = new Map();
  for (const { certificate } of row.places) if (certificate) bySecret.set(certificate.secret, certificate);
  if (bySecret.size === 0) return [];
  return [element("h2", {}, "Certificate"), ...[...bySecret.values()].flatMap(lineOfTime)];
}

/** The validity of a certificate, with the part that is over. */
function lineOfTime(certificate) {
  const issuer = certificate.issuer ? ` from ${certificate.issuer}` : "";
  const name = `Secret ${certificate.secret}${issuer}`;
  if (certificate.unread) return [element("p", {}, `${name}: you may not read it.`)];
  if (certificate.validity === null) return [element("p", {}, `${name}: there is none yet.`)];
  const [from, until] = certificate.validity.map((seconds) => seconds * 1000);
  const now = Date.now();
  const place = (at) => 10 + 980 * Math.min(1, Math.max(0, (at - from) / (until - from)));
  const left = Math.floor((until - now) / DAY);
  const label = left < 0 ? `expired ${-left} days ago` : `${left} days left`;
  const text = `${name}: valid from ${time(from)} until ${time(until)}, ${label}`;
  return [element("p", {}, text), drawing("svg", { class: "time", viewBox: "0 0 1000 40", preserveAspectRatio: "none", "aria-hidden": "true" },
    drawing("rect", { class: "bar", x: 10, y: 8, width: 980, height: 24 }),
    drawing("rect", { class: "past", x: 10, y: 8, width: place(now) - 10, height: 24 }),
    drawing("line", { x1: place(now), x2: place(now), y1: 0, y2: 40 }))];
}

function errors(requests) {
  if (requests.length === 0) return element("p", { class: "faint" }, "No failed request is in the log.");
  const rows = requests.map((request) => [request.time, String(request.status), `${request.method} ${request.path}`, request.reason ?? "", request.message]);
  return table("Last errors", ["Time", "Status", "Request", "Reason", "What happened"], rows);
}

function history(answer) {
  if (answer.changes.length === 0) return element("p", { class: "faint" }, "No change is remembered.");
  const rows = [...answer.changes].reverse().map((change) => [
    change.at.slice(0, 23) + "Z", change.kind, objects(change), outcome(change),
  ]);
  const forgotten = answer.forgotten ? [element("p", { class: "faint" }, `Not all changes until ${answer.forgotten} are remembered.`)] : [];
  return [table("History", ["Time", "Change", "Objects", "Result"], rows), ...forgotten];
}

function objects(change) {
  const named = change.objects.map((of) => of.manager ? `${of.object} (by ${of.manager})` : of.object);
  return named.join(", ") + (change.moreObjects ? ` and ${change.moreObjects} more` : "");
}

function outcome(change) {
  switch (change.outcome) {
    case "Acknowledged": return `acknowledged in ${change.milliseconds} ms`;
    case "Waiting": return "waits for Envoys";
    case "NothingToSend": return "nothing to send";
    default: return change.outcome;
  }
}
