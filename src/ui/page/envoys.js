// The connected Envoys.

import { fill } from "./answer.js";
import { element, state, table, throttled } from "./element.js";

export class EnvoysView {
  title = "Envoys";

  constructor() {
    this.place = element("div");
    this.content = [element("h1", {}, "Envoys"), this.place];
    this.reload = throttled(1000, () => this.#load());
  }

  show() {
    this.reload();
    this.timer = setInterval(this.reload, 2000);
  }

  hide() {
    clearInterval(this.timer);
  }

  changed() {
    this.reload();
  }

  #load() {
    fill(this.place, "envoys", {}, (envoys) => {
      if (envoys.length === 0) return element("p", { class: "state failing" }, "No Envoy is connected.");
      return table("Envoys", ["Name", "Fleet", "Node", "Address", "Version", "Connected", "Last acknowledgement", "Current"],
        envoys.map((of) => [
          of.name, of.fleet, of.pod?.node ?? "", of.address ?? "on this machine", of.version ?? "", of.connected, of.lastAck ?? "",
          of.current ? state("ok") : state("waiting"),
        ]));
    });
  }
}
