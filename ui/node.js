// One node of the graph: its settings, its counters, and live records.

import { of, post, text } from "./api.js";
import { question, tell } from "./dialog.js";
import { h, mark, say, uniqueId } from "./dom.js";
import { NONE, clock, count, duration, percent, rate } from "./format.js";
import { Inspector } from "./inspect.js";
import { Rates, waits } from "./rates.js";

/** @typedef {import("./api.js").LiveOne} LiveOne */
/** @typedef {import("./api.js").Plan} Plan */
/** @typedef {import("./api.js").PlanNode} PlanNode */

/** Key figures of each kind of node: a name, and the value from its counters. */
/** @typedef {[string, (rates: Rates, live: import("./api.js").LiveNode, node: PlanNode) => string]} Figure */

/** @type {Record<string, Figure[]>} */
const FIGURES = {
  source: [
    ["read", (rates) => rate(rates.rate("rowsOut"))],
    ["read in this run", (_, live) => count(live.rowsOut)],
  ],
  destination: [
    ["delivered", (rates) => rate(rates.rate("rowsOut"))],
    ["delivered in this run", (_, live) => count(live.rowsOut)],
    ["time for a record", (rates) => perRecord(rates, "rowsIn")],
    ["busy", busy],
    ["in it now", (_, live) => count(live.held)],
    ["failed", (_, live) => count(live.failed)],
  ],
  step: [
    ["in", (rates) => rate(rates.rate("rowsIn"))],
    ["out", (rates) => rate(rates.rate("rowsOut"))],
    ["in, this run", (_, live) => count(live.rowsIn)],
    ["out, this run", (_, live) => count(live.rowsOut)],
    ["time for a record", (rates) => perRecord(rates, "selected")],
    ["busy", busy],
    ["in it now", (_, live) => count(live.held)],
    ["failed", (_, live) => count(live.failed)],
  ],
};
/** @type {Figure} */
const HITS = ["condition matches", (_, live) => (live.rowsIn ? `${percent(live.selected / live.rowsIn)} (${count(live.selected)})` : NONE)];

/** @param {Rates} rates @param {string} worked */
function perRecord(rates, worked) {
  const rows = rates.grown(worked);
  return rows > 0 ? duration(rates.grown("busySeconds") / rows) : NONE;
}

/** Time is counted when records leave, so records that are still in the step do not count. @type {Figure[1]} */
function busy(rates, live, { workers }) {
  const seconds = rates.rate("busySeconds");
  return waits(rates, live) || seconds === null ? NONE : percent(Math.min(1, seconds / (workers ?? 1)));
}

export class NodePanel {
  #rates = new Rates();
  /** @type {{ figure: Figure, value: HTMLElement }[]} */
  #figures;

  /**
   * @param {string} pipeline
   * @param {Plan} plan
   * @param {PlanNode} node
   * @param {string} back the address when the panel is closed
   */
  constructor(pipeline, plan, node, back) {
    this.node = node;
    this.back = back;
    const figures = [...(FIGURES[node.kind] ?? FIGURES.step ?? [])];
    if (node.condition) figures.splice(1, 0, HITS);
    this.#figures = figures.map((figure) => ({ figure, value: h("td", {}, NONE) }));
    this.error = h("div", { class: "trouble", hidden: true });
    this.inspector = new Inspector(pipeline, node);
    const settings = Object.entries(node.settings ?? {});
    this.heading = h("h2", { tabindex: -1 }, node.id);
    this.element = h("aside", { class: "panel", "aria-label": `Details of ${node.id}` },
      h("header", {}, h("div", {}, this.heading,
        h("p", { class: "hint" }, [node.plugin ? `${node.kind} · ${node.plugin}` : node.kind, ...notes(node)].join(" · "))),
      h("a", { class: "button close", href: back, "aria-label": "Close the details" }, "×")),
      this.error,
      node.condition ? h("section", {}, h("h3", {}, "Condition"), h("pre", {}, node.condition.text),
        h("p", { class: "hint" }, node.condition.as_before ? "Uses the result of the previous step." : node.condition.native ? "Runs natively." : "Runs as a template.")) : null,
      h("section", {}, h("h3", {}, "Now"), h("table", { class: "pairs figures" }, h("tbody", {}, ...this.#figures.map(({ figure, value }) =>
        h("tr", {}, h("th", { scope: "row" }, figure[0]), value))))),
      h("section", {}, h("h3", {}, "Settings"), settings.length
        ? h("table", { class: "pairs" }, h("tbody", {}, ...settings.map(([name, value]) =>
          h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, h("code", {}, value))))))
        : h("p", { class: "hint" }, "No settings.")),
      node.backfills ? backfill(pipeline, node) : null,
      this.inspector.element,
      ways(plan, node));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") location.hash = back;
    });
  }

  /** @param {LiveOne} live */
  update(live) {
    const counters = live.nodes.find((each) => each.node === this.node.index);
    if (!counters) return;
    const { rowsIn, selected, rowsOut, failed, busySeconds, lastError } = counters;
    this.#rates.add(live.at, live.status.run, { rowsIn, selected, rowsOut, failed, busySeconds });
    for (const { figure, value } of this.#figures) say(value, figure[1](this.#rates, counters, this.node));
    mark(this.error, "hidden", lastError ? null : "");
    if (lastError) {
      const text = `Last error, ${clock(lastError.at)}: ${lastError.message}`;
      if (this.error.textContent !== text) this.error.replaceChildren(h("p", {}, text));
    }
  }

  close() {
    this.inspector.close();
    this.element.remove();
  }
}

/** @param {PlanNode} node */
function notes(node) {
  const workers = (node.workers ?? 1) > 1 ? [`${node.workers} workers`] : [];
  return [...workers, ...(node.notes ?? [])];
}

/** @param {string} pipeline @param {PlanNode} node */
function backfill(pipeline, node) {
  const what = node.backfills ?? "";
  const ask = async () => {
    const field = h("input", { type: "text", id: uniqueId(), required: true, autofocus: true, spellcheck: false });
    const check = async () => {
      try {
        await post(of(pipeline, "/backfill"), { connector: node.id, part: field.value.trim() });
        return null;
      } catch (error) {
        return text(error);
      }
    };
    const answer = await question(`Read a ${what} again?`, [
      h("p", {}, `The source reads all rows of the ${what} beside what arrives. This continues if the service restarts.`),
      h("label", { for: field.id }, `Name of the ${what}`), field,
    ], [{ label: "Read again", value: "read", kind: "main" }], { check });
    if (answer) tell(`${node.id} reads ${field.value.trim()} again.`);
  };
  return h("section", {}, h("h3", {}, "Read again"), h("div", { class: "buttons" },
    h("button", { type: "button", click: ask }, `Read a ${what} again …`)));
}

/** @param {Plan} plan @param {PlanNode} node */
function ways(plan, node) {
  const section = h("section", {});
  /** @param {string} title @param {"from" | "to"} here @param {"from" | "to"} there */
  const list = (title, here, there) => {
    const edges = plan.edges.filter((edge) => edge[here] === node.index);
    if (!edges.length) return;
    section.append(h("h3", {}, title), h("ul", { class: "ways" }, ...edges.map((edge) => {
      const other = plan.nodes[edge[there]];
      return h("li", {}, other?.id ?? "", edge.port === "failed" ? " (failed records)" : "", edge.shape ? h("pre", {}, edge.shape) : null);
    })));
  };
  list("From", "to", "from");
  list("To", "from", "to");
  return section;
}
