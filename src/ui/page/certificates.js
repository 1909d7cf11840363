// Certificates on a calendar: when each is renewed, and when it ends.

import { fill } from "./answer.js";
import { element, hostLink, some, table, throttled, time } from "./element.js";

const MONTHS = 4;
const ROWS = 200;
const WEEKDAYS = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];

export class CertificatesView {
  title = "Certificates";
  #hosts;
  #certificates = [];
  #day = null;

  constructor(hosts) {
    this.#hosts = hosts;
    this.search = element("input", { type: "search", input: () => this.#draw() });
    this.place = element("div");
    this.months = element("div", { class: "months" });
    this.rows = element("div", { "aria-live": "polite" });
    this.content = [
      element("h1", {}, "Certificates"), this.place, this.months,
      element("h2", {}, "What happens next"),
      element("div", { class: "tools" }, element("label", {}, "Search", this.search)),
      this.rows,
    ];
    this.reload = throttled(5000, () => this.#load());
  }

  show() {
    this.reload();
    this.timer = setInterval(this.reload, 30_000);
  }

  hide() {
    clearInterval(this.timer);
  }

  changed() {
    this.reload();
  }

  async #load() {
    this.#certificates = this.#ofHosts();
    await fill(this.place, "certificates", {}, (report) => {
      this.#certificates = report.certificates.map((row) => ({
        hosts: row.hosts, secret: row.secret, issuer: row.issuer, next: row.next, error: row.lastError ?? "",
        ends: row.expires ? Date.parse(row.expires) : null, at: row.at ? Date.parse(row.at) : null,
      }));
      return (report.troubles ?? []).map((text) => element("p", { class: "state failing" }, text));
    });
    this.#draw();
  }

  /** The certificates that rows of hosts tell of. */
  #ofHosts() {
    const bySecret = new Map();
    for (const row of this.#hosts.all()) {
      for (const { certificate } of row.places) {
        if (!certificate || certificate.unread) continue;
        const known = bySecret.get(certificate.secret) ?? {
          hosts: [], secret: certificate.secret, issuer: certificate.issuer ?? "certificateRefs",
          next: "not known", error: "", at: null,
          ends: certificate.validity === null ? null : certificate.validity[1] * 1000,
        };
        if (!known.hosts.includes(row.host)) known.hosts.push(row.host);
        bySecret.set(certificate.secret, known);
      }
    }
    return [...bySecret.values()];
  }

  #draw() {
    const text = this.search.value.toLowerCase();
    const found = this.#certificates.filter((of) => `${of.hosts.join(" ")} ${of.secret}`.toLowerCase().includes(text));
    const days = new Map();
    for (const of of found) {
      if (of.at !== null) counted(days, of.at).renews += 1;
      if (of.ends !== null) counted(days, of.ends).ends += 1;
    }
    this.months.replaceChildren(...months(days, (day) => {
      this.#day = this.#day === day ? null : day;
      this.#draw();
    }, this.#day));
    const isOfDay = (of) => this.#day === null || [of.at, of.ends].some((at) => at !== null && dayOf(at) === this.#day);
    const first = (of) => of.at ?? of.ends ?? 0;
    const listed = found.filter(isOfDay).sort((a, b) => first(a) - first(b));
    const [rows, more] = some(listed, ROWS);
    this.rows.replaceChildren(
      element("p", { class: "faint" }, `${listed.length} certificates${this.#day === null ? "" : ` on ${this.#day}`}`),
      table("Certificates", ["Hosts", "Secret", "Issuer", "Ends", "Next", "When", "Last error"], rows.map((of) => [
        names(of.hosts), of.secret, of.issuer, of.ends === null ? "there is none" : time(of.ends), of.next,
        of.at === null ? "" : time(of.at), of.error,
      ])),
      element("p", { class: "faint" }, more));
  }
}

function names(hosts) {
  const [first, more] = some(hosts, 3);
  return element("span", {}, ...first.flatMap((host, at) => at === 0 ? [hostLink(host)] : [", ", hostLink(host)]), more && ` ${more}`);
}

function dayOf(milliseconds) {
  return new Date(milliseconds).toISOString().slice(0, 10);
}

function counted(days, at) {
  const day = dayOf(at);
  if (!days.has(day)) days.set(day, { renews: 0, ends: 0 });
  return days.get(day);
}

/** The tables of the next months, in UTC. */
function months(days, choose, chosen) {
  const now = new Date();
  const today = dayOf(now.getTime());
  return Array.from({ length: MONTHS }, (_, at) => {
    const first = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + at, 1));
    const count = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0)).getUTCDate();
    const empty = (first.getUTCDay() + 6) % 7;
    const cells = Array.from({ length: empty }, () => element("td"));
    for (let day = 1; day <= count; day += 1) {
      const name = dayOf(Date.UTC(first.getUTCFullYear(), first.getUTCMonth(), day));
      cells.push(element("td", { class: name === today ? "today" : null }, dayCell(day, name, days.get(name), choose, chosen)));
    }
    const weeks = [];
    while (cells.length > 0) weeks.push(element("tr", {}, cells.splice(0, 7)));
    const caption = first.toLocaleString("en", { month: "long", year: "numeric", timeZone: "UTC" });
    return element("table", {}, element("caption", {}, caption),
      element("thead", {}, element("tr", {}, WEEKDAYS.map((day) => element("th", { scope: "col" }, day)))),
      element("tbody", {}, weeks));
  });
}

function dayCell(day, name, counts, choose, chosen) {
  if (counts === undefined) return String(day);
  const { renews, ends } = counts;
  const told = [renews > 0 ? `${renews} to renew` : "", ends > 0 ? `${ends} end` : ""].filter((text) => text !== "");
  return element("button", {
    type: "button", class: ends > 0 ? "ends" : "renews", "aria-pressed": String(name === chosen), click: () => choose(name),
  }, String(day), element("span", { class: "count", "aria-hidden": "true" }, renews > 0 ? `↻${renews}` : "", ends > 0 ? ` ✕${ends}` : ""),
  element("span", { class: "unseen" }, ` ${name}: ${told.join(", ")}`));
}
