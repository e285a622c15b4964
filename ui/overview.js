// All pipelines.

import { Rows, flag, h, mark, s, say } from "./dom.js";
import { about, backlog, count, duration, rate } from "./format.js";
import { Rates } from "./rates.js";
import { Chip, cause, urgency, wordOf } from "./status.js";

/** @typedef {import("./api.js").Live} Live */
/** @typedef {import("./api.js").LivePipeline} LivePipeline */
/** @typedef {{ live: LivePipeline, word: ReturnType<typeof wordOf>, rates: Rates }} Entry */

/** @type {{ name: string, title: string, number?: boolean, by: (entry: Entry) => string | number }[]} */
const COLUMNS = [
  { name: "status", title: "Status", by: ({ word }) => urgency(word) },
  { name: "pipeline", title: "Pipeline", by: ({ live }) => live.id },
  { name: "read", title: "Read", number: true, by: ({ rates }) => -(rates.rate("read") ?? 0) },
  { name: "delivered", title: "Delivered", number: true, by: ({ rates }) => -(rates.rate("delivered") ?? 0) },
  { name: "in-flight", title: "In flight", number: true, by: ({ live }) => -live.inFlight },
  { name: "backlog", title: "Backlog", number: true, by: ({ live }) => -(live.backlog?.ageSeconds ?? live.backlog?.records ?? 0) },
  { name: "dead-letters", title: "Dead letters", number: true, by: ({ live }) => -live.deadLettered },
];

const [WIDTH, HEIGHT] = [96, 22];

/** A row of the table. */
class Row {
  #chip = new Chip();
  #line = s("path");
  #cause = h("span", { class: "cause" });
  #name = h("span", { class: "full-name" });

  /** @param {LivePipeline} live */
  constructor(live) {
    this.link = h("a", { href: `#/pipelines/${encodeURIComponent(live.id)}` }, live.id);
    this.cells = COLUMNS.slice(2).map(({ title }) => h("td", { class: "number", "data-label": title }));
    const chart = s("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", preserveAspectRatio: "none" }, this.#line);
    this.read = h("span", {});
    this.cells[0]?.append(chart, this.read);
    this.element = h("tr", {}, h("td", { class: "state" }, this.#chip.element),
      h("th", { scope: "row" }, this.link, this.#name, this.#cause), ...this.cells);
  }

  /** @param {Entry} entry */
  update({ live, word, rates }) {
    this.#chip.show(word);
    const by = live.runBy?.length ? `on ${live.runBy.join(", ")}` : "";
    say(this.#name, [live.name !== live.id ? live.name : "", by].filter(Boolean).join(" · "));
    say(this.#cause, cause(live.status));
    say(this.read, rate(rates.rate("read")));
    const texts = [rate(rates.rate("delivered")), inFlight(live), backlog(live.backlog), about(live.deadLettered)];
    texts.forEach((text, i) => {
      const cell = this.cells[i + 1];
      if (cell) say(cell, text);
    });
    flag(/** @type {Element} */ (this.cells.at(-1)), "bad", live.deadLettered > 0);
    mark(this.#line, "d", curve(rates.history));
  }
}

/** @param {LivePipeline} live */
const inFlight = ({ inFlight, oldestUnacknowledgedSeconds }) => (oldestUnacknowledgedSeconds ? `${about(inFlight)} · ${duration(oldestUnacknowledgedSeconds)}` : about(inFlight));

/** @param {number[]} values */
function curve(values) {
  const most = Math.max(...values);
  if (!(most > 0)) return "";
  const step = WIDTH / 59;
  const from = WIDTH - (values.length - 1) * step;
  return values.map((value, i) => `${i ? "L" : "M"}${(from + i * step).toFixed(1)} ${(HEIGHT - 1.5 - (value / most) * (HEIGHT - 3)).toFixed(1)}`).join("");
}

export class Overview {
  title = "Pipelines";
  path = "/v1/live";
  /** @type {Map<string, Rates>} */
  #rates = new Map();
  /** @type {Entry[]} */
  #entries = [];
  #sort = "status";
  #word = "";
  #answered = false;

  constructor() {
    this.heading = h("h1", { tabindex: -1 }, "Pipelines");
    this.search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", spellcheck: "false", autocapitalize: "off", input: () => { this.#remember(); this.#draw(); } });
    this.words = h("div", { class: "words", role: "group", "aria-label": "Filter by status" });
    this.sum = h("p", { class: "hint sum" });
    this.heads = COLUMNS.map(({ name, title, number }) => h("th", { scope: "col", class: number ? "number" : "" },
      h("button", { type: "button", click: () => { this.#sort = name; this.#remember(); this.#draw(); } }, title)));
    const body = h("tbody", {});
    this.table = h("table", { class: "list pipelines", hidden: true }, h("caption", { class: "offscreen" }, "Pipelines"), h("thead", {}, h("tr", {}, ...this.heads)), body);
    this.rows = new Rows(body, (/** @type {Entry} */ entry) => entry.live.id, (entry) => new Row(entry.live), (row, entry) => row.update(entry));
    this.empty = h("div", { class: "empty" }, h("p", {}, "Loading …"));
    this.element = h("div", { class: "overview" }, h("div", { class: "head" }, this.heading, this.sum),
      h("div", { class: "bar" }, this.search, this.words), this.table, this.empty);
  }

  /** @param {import("./main.js").Place} place */
  show({ query }) {
    this.search.value = query.get("filter") ?? "";
    this.#sort = query.get("sort") ?? "status";
    this.#word = query.get("status") ?? "";
    this.#draw();
  }

  leave() {}

  /** @param {Live} live */
  update(live) {
    const rates = new Map();
    this.#entries = live.pipelines.map((each) => {
      const { read, delivered } = each;
      const known = this.#rates.get(each.id) ?? new Rates("read");
      known.add(live.at, each.status.run, { read, delivered });
      rates.set(each.id, known);
      return { live: each, word: wordOf(each.status), rates: known };
    });
    this.#rates = rates;
    this.#answered = true;
    this.#draw();
  }

  /** @param {import("./api.js").ApiError} error */
  refuse(error) {
    this.empty.replaceChildren(h("h2", {}, "The pipelines cannot be shown"), h("p", {}, error.message));
    mark(this.empty, "hidden", null);
  }

  /** Keeps the filters in the address, so that the address can be shared. */
  #remember() {
    const query = new URLSearchParams();
    if (this.search.value) query.set("filter", this.search.value);
    if (this.#word) query.set("status", this.#word);
    if (this.#sort !== "status") query.set("sort", this.#sort);
    const text = query.toString();
    history.replaceState(null, "", text ? `#/?${text}` : "#/");
  }

  #draw() {
    if (!this.#answered) return;
    const wanted = this.search.value.trim().toLowerCase();
    const by = COLUMNS.find(({ name }) => name === this.#sort)?.by ?? (() => 0);
    /** @param {string | number} a @param {string | number} b */
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const found = this.#entries
      .filter(({ live, word }) => (!this.#word || word === this.#word) && (!wanted || `${live.id}\n${live.name}`.toLowerCase().includes(wanted)))
      .map((entry) => ({ entry, key: by(entry) }))
      .sort((a, b) => order(a.key, b.key) || order(a.entry.live.id, b.entry.live.id))
      .map(({ entry }) => entry);
    this.rows.show(found);
    COLUMNS.forEach(({ name, number }, i) => {
      const head = this.heads[i];
      const on = name === this.#sort;
      if (head) mark(head, "aria-sort", on ? (number ? "descending" : "ascending") : null);
    });
    this.#drawWords();
    let [read, delivered] = [0, 0];
    for (const { rates } of this.#entries) {
      read += rates.rate("read") ?? 0;
      delivered += rates.rate("delivered") ?? 0;
    }
    say(this.sum, this.#entries.length ? `${rate(read)} read · ${rate(delivered)} delivered` : "");
    mark(this.table, "hidden", found.length ? null : "");
    mark(this.empty, "hidden", found.length ? "" : null);
    if (found.length) return;
    this.empty.replaceChildren(...(this.#entries.length
      ? [h("h2", {}, "No matching pipelines"), h("p", {}, "Remove the filter to see all pipelines.")]
      : [h("h2", {}, "No pipelines yet"), h("p", {}, "Create one, and restart the service in the same directory:"),
        h("pre", {}, "anabranch pipelines init my-first"),
        h("p", {}, "Or try an example that needs no set-up: ", h("code", {}, "anabranch quickstart"))]));
  }

  #drawWords() {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const { word } of this.#entries) counts.set(word, (counts.get(word) ?? 0) + 1);
    const words = [...counts.keys()].sort((a, b) => urgency(a) - urgency(b) || (a < b ? -1 : 1));
    const key = words.map((word) => `${word} ${counts.get(word)}`).join() + this.#word;
    if (this.words.dataset.key === key) return;
    this.words.dataset.key = key;
    const focused = document.activeElement instanceof HTMLElement && this.words.contains(document.activeElement) ? document.activeElement.dataset.word : undefined;
    this.words.replaceChildren(...words.map((word) => {
      const chip = new Chip();
      chip.show(/** @type {any} */ (word));
      return h("button", { type: "button", "aria-pressed": String(word === this.#word), "data-word": word, click: () => {
        this.#word = word === this.#word ? "" : word;
        this.#remember();
        this.#draw();
      } }, chip.element, h("span", { class: "many" }, count(counts.get(word))));
    }));
    const again = this.words.querySelector(`[data-word="${focused}"]`);
    if (focused && again instanceof HTMLElement) again.focus();
  }
}
