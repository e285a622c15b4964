// The nodes of a cluster, and where each pipeline runs.

import { text } from "./api.js";
import { Rows, flag, h, say } from "./dom.js";
import { count, duration } from "./format.js";

/** @typedef {import("./api.js").Cluster} Cluster */
/** @typedef {import("./api.js").ClusterNode} ClusterNode */
/** @typedef {{ key: string, pipeline: string, node?: string, detail: string, slots: number[] }} Share */

/** A renewal that is older than this is late: the node has missed two. */
const LATE = 3;

/** @param {string[]} titles @param {Element} body @param {string} caption */
const table = (titles, body, caption) => h("table", { class: "list" }, h("caption", { class: "offscreen" }, caption),
  h("thead", {}, h("tr", {}, ...titles.map((title) => h("th", { scope: "col" }, title)))), body);

/** @param {string[]} titles @param {string} name */
function row(titles, name) {
  const cells = titles.map((title) => h("td", { "data-label": title }));
  const head = h("th", { scope: "row" }, name);
  return { element: h("tr", {}, head, ...cells), head, cells };
}

/** @param {{ cells: Element[] }} row @param {string[]} texts */
const fill = ({ cells }, texts) => texts.forEach((each, i) => {
  const cell = cells[i];
  if (cell) say(cell, each);
});

const OF_NODE = ["Units", "Joined", "Renewed", "Version", "Address", "State"];
const OF_SHARE = ["Node", "Slots", "State"];

export class ClusterPage {
  title = "Cluster";
  path = "/v1/cluster";

  constructor() {
    this.heading = h("h1", { tabindex: -1 }, "Cluster");
    this.sum = h("p", { class: "hint sum" });
    this.refusal = h("p", { class: "hint", role: "status" });
    const [nodes, shares] = [h("tbody", {}), h("tbody", {})];
    this.nodes = new Rows(nodes, (/** @type {ClusterNode} */ node) => node.id, (node) => row(OF_NODE, node.name), (shown, node) => {
      flag(shown.element, "bad", node.silenceSeconds > LATE);
      fill(shown, [count(node.units), `${duration(node.ageSeconds)} ago`, `${duration(node.silenceSeconds)} ago`, node.version,
        node.url || "unknown", node.isLeaving ? "gives its units away" : node.isThis ? "shows this page" : ""]);
    });
    this.shares = new Rows(shares, (/** @type {Share} */ share) => share.key, (share) => {
      const shown = row(OF_SHARE, "");
      shown.head.append(h("a", { href: `#/pipelines/${encodeURIComponent(share.pipeline)}` }, share.pipeline));
      return shown;
    }, (shown, share) => fill(shown, [share.node ?? "none", share.slots.join(" "), share.detail]));
    this.element = h("div", { class: "overview" }, h("div", { class: "head" }, this.heading, this.sum), this.refusal,
      h("h2", {}, "Nodes"), table(["Node", ...OF_NODE], nodes, "Nodes"),
      h("h2", {}, "Units"), table(["Pipeline", ...OF_SHARE], shares, "Units"));
  }

  show() {}

  leave() {}

  /** @param {Cluster} cluster */
  update(cluster) {
    say(this.refusal, "");
    say(this.sum, `${count(cluster.nodes.length)} nodes, ${count(cluster.units.length)} units`);
    this.nodes.show(cluster.nodes);
    /** @type {Map<string, Share>} */
    const shares = new Map();
    for (const { pipeline, slot, node, movesTo, label, isEnding } of cluster.units) {
      const detail = isEnding ? "is being stopped" : movesTo ? `moves to ${movesTo}`
        : node ? "" : label ? `waits for a node with the label ${label}` : "waits for a node";
      const key = JSON.stringify([pipeline, node, detail]);
      const share = shares.get(key) ?? { key, pipeline, node, detail, slots: [] };
      share.slots.push(slot);
      shares.set(key, share);
    }
    this.shares.show([...shares.values()]);
  }

  /** @param {import("./api.js").ApiError} error */
  refuse(error) {
    say(this.refusal, text(error));
  }
}
