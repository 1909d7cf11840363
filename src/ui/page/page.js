// The page: the views by the part of the URL after `#`, the stream of changes, and the keys.

import { about } from "./answer.js";
import { CertificatesView } from "./certificates.js";
import { element, throttled } from "./element.js";
import { EnvoysView } from "./envoys.js";
import { HostView } from "./host.js";
import { Hosts } from "./hosts.js";
import { HostsView } from "./list.js";
import { ObjectsView } from "./objects.js";
import { OwnersView } from "./owners.js";
import { PoliciesView } from "./policies.js";

const hosts = new Hosts();
const list = new HostsView(hosts);
const main = document.getElementById("main");
const trouble = document.getElementById("trouble");

const VIEWS = {
  hosts: () => list,
  host: (name) => new HostView(hosts, name),
  certificates: () => new CertificatesView(hosts),
  owners: () => new OwnersView(hosts),
  policies: () => new PoliciesView(hosts),
  envoys: () => new EnvoysView(),
  objects: () => new ObjectsView(),
};

let view = null;

function show() {
  const [, name, ...rest] = location.hash.split("/");
  const make = VIEWS[name] ?? VIEWS.hosts;
  const argument = decodeURIComponent(rest.join("/"));
  const isFirst = view === null;
  view?.hide();
  view = make(argument);
  main.replaceChildren(...view.content);
  document.title = `${view.title} – Gatewright`;
  const section = name === "host" ? "hosts" : name in VIEWS ? name : "hosts";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${section}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view.show(argument);
  // A screen reader begins to read there.
  if (!isFirst) main.focus({ preventScroll: true });
}

const news = throttled(5000, () => {
  const { failing } = hosts.counts();
  document.getElementById("news").textContent = failing === 0 ? "No host is failing" : `${failing} hosts are failing`;
});

hosts.addEventListener("change", ({ detail: { changed, gone } }) => {
  view?.changed(changed, gone);
  news();
});

function told(text) {
  trouble.textContent = text;
  trouble.hidden = text === "";
}

function follow() {
  const events = new EventSource("api/events");
  events.addEventListener("hosts", (event) => hosts.take(JSON.parse(event.data)));
  events.addEventListener("trouble", (event) => {
    const why = JSON.parse(event.data);
    told(why === null ? "" : `No answer; what is shown may be old: ${why}`);
  });
  events.addEventListener("open", () => told(""));
  events.addEventListener("error", () => {
    const isOver = events.readyState === EventSource.CLOSED;
    told(isOver ? "This page has ended: run gatewright ui again." : "gatewright ui does not answer; what is shown may be old.");
  });
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    if (view !== list) location.hash = "#/hosts";
    // The view is shown first.
    setTimeout(() => list.search.focus());
  } else if (event.key === "Escape" && view instanceof HostView) {
    location.hash = "#/hosts";
  }
});

addEventListener("hashchange", show);
show();
follow();
about().then(({ source, marks }) => {
  document.getElementById("source").textContent = source;
  const place = document.getElementById("marks");
  place.hidden = marks.length === 0;
  place.querySelector("ul").replaceChildren(...marks.map((mark) => element("li", {}, mark)));
}, (error) => told(error.message));
