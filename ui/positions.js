// The position of each partition of each source.

import { Rows, h, mark, say } from "./dom.js";
import { count, duration } from "./format.js";

/** @typedef {import("./api.js").Lane} Lane */

const COLUMNS = ["Source", "Partition", "Read", "Settled", "Stored", "Unacknowledged", "Oldest of them", "Left to read"];

export class Positions {
  constructor() {
    const body = h("tbody", {});
    this.empty = h("p", { class: "empty" }, "No source has read anything in this run.");
    this.table = h("table", { class: "list" }, h("caption", { class: "offscreen" }, "Partitions of the sources"),
      h("thead", {}, h("tr", {}, ...COLUMNS.map((name, i) => h("th", { scope: "col", class: i > 1 ? "number" : "" }, name)))), body);
    this.element = h("section", { class: "page", "aria-label": "Positions" }, this.table, this.empty,
      h("p", { class: "hint" }, "Records of this run. Settled: every copy is delivered, filtered or a dead letter. Stored: a restart resumes after them. ",
        h("code", {}, "anabranch positions"), " shows stored positions, and resets or rewinds them."));
    this.rows = new Rows(body, (/** @type {Lane} */ lane) => `${lane.connector} ${lane.partition}`, () => {
      const cells = COLUMNS.map((name, i) => (i === 0 ? h("th", { scope: "row" }) : h("td", { class: i > 1 ? "number" : "", "data-label": name })));
      return { element: h("tr", {}, ...cells), cells };
    }, ({ cells }, lane) => {
      const texts = [lane.connector, lane.partition || "–", count(lane.read), count(lane.settled), count(lane.stored), count(lane.unacknowledged), duration(lane.oldestUnacknowledgedSeconds),
        count(lane.backlogRecords)];
      texts.forEach((text, i) => cells[i] && say(cells[i], text));
    });
  }

  /** @param {Lane[]} lanes */
  update(lanes) {
    this.rows.show(lanes);
    mark(this.table, "hidden", lanes.length ? null : "");
    mark(this.empty, "hidden", lanes.length ? "" : null);
  }
}
