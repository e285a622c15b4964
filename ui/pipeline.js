// One pipeline: its status, graph, dead letters, positions and plan.

import { get, getText, of, post, text } from "./api.js";
import { Canvas } from "./canvas.js";
import { question, tell } from "./dialog.js";
import { flag, h, mark, say, uniqueId } from "./dom.js";
import { Drawing } from "./drawing.js";
import { about, amount, bytes, count, duration, plural, rate } from "./format.js";
import { Letters } from "./letters.js";
import { NodePanel } from "./node.js";
import { PlanText } from "./plan.js";
import { Positions } from "./positions.js";
import { Rates } from "./rates.js";
import { Chip, cause, isLive, sinceWhen, wordOf } from "./status.js";

/** @typedef {import("./api.js").LiveOne} LiveOne */

/** @type {{ name: string, title: string }[]} */
const TABS = [
  { name: "", title: "Graph" },
  { name: "dead-letters", title: "Dead letters" },
  { name: "positions", title: "Positions" },
  { name: "plan", title: "Plan" },
];

/** @type {{ title: string, value: (live: LiveOne, rates: Rates) => string, more?: (live: LiveOne) => string, bad?: (live: LiveOne) => boolean, when?: (live: LiveOne) => boolean }[]} */
const TILES = [
  { title: "Read", value: (_, rates) => rate(rates.rate("read")), more: ({ totals }) => count(totals?.read) },
  { title: "Delivered", value: (_, rates) => rate(rates.rate("delivered")), more: ({ totals }) => count(totals?.delivered) },
  { title: "Filtered", value: (_, rates) => rate(rates.rate("filtered")), more: ({ totals }) => count(totals?.filtered) },
  { title: "Failed", value: ({ totals }) => about(totals?.failed), more: ({ totals }) => plural(totals?.deadLettered ?? 0, "dead letter"), bad: ({ totals }) => (totals?.failed ?? 0) > 0 },
  { title: "In flight", value: ({ totals }) => about(totals?.inFlight), more: ({ lanes }) => oldest(most(lanes.map((lane) => lane.oldestUnacknowledgedSeconds))) },
  { title: "Backlog", value: ({ backlogs }) => amount(together(backlogs)), more: ({ backlogs }) => next(most((backlogs ?? []).map(({ ageSeconds }) => ageSeconds))) },
  { title: "Kept upstream", value: (live) => bytes(sum(retentions(live).map((kept) => kept.bytes))), more: (live) => state(retentions(live)), bad: (live) => retentions(live).some(({ atRisk }) => atRisk), when: (live) => retentions(live).length > 0 },
];

/** @param {(number | null | undefined)[]} numbers */
const most = (numbers) => numbers.reduce((/** @type {number | null} */ a, b) => (b === null || b === undefined ? a : Math.max(a ?? 0, b)), null);
/** @param {(number | null | undefined)[]} numbers */
const sum = (numbers) => numbers.reduce((/** @type {number | null} */ a, b) => (b === null || b === undefined ? a : (a ?? 0) + b), null);

/** @param {number | null} seconds */
const oldest = (seconds) => (seconds ? `oldest ${duration(seconds)}` : "");
/** @param {number | null} seconds */
const next = (seconds) => (seconds ? `next ${duration(seconds)} old` : "");

/**
 * Data that the systems of the sources retain for them.
 * @param {LiveOne} live
 * @returns {import("./api.js").Retention[]}
 */
const retentions = ({ backlogs }) => (backlogs ?? []).flatMap(({ retention }) => (retention ? [retention] : []));

/** @param {import("./api.js").Retention[]} kept the first state, and the least space that is left */
const state = (kept) => {
  const spare = kept.reduce((least, { spareBytes }) => Math.min(least, spareBytes ?? Infinity), Infinity);
  return [kept.find(({ status }) => status)?.status, spare < Infinity ? `${bytes(spare)} more allowed` : undefined].filter(Boolean).join(" · ");
};

/**
 * The total backlog of several sources.
 * @param {import("./api.js").Backlog[]} [backlogs]
 * @returns {import("./api.js").Backlog}
 */
const together = (backlogs = []) => ({
  records: sum(backlogs.map(({ records }) => records)) ?? undefined,
  objects: sum(backlogs.map(({ objects }) => objects)) ?? undefined,
  bytes: sum(backlogs.map(({ bytes }) => bytes)) ?? undefined,
});

/**
 * The plan, with addresses for its nodes: a processor and a destination may have the same id.
 * @param {import("./api.js").Plan} plan
 */
function addressed(plan) {
  for (const node of plan.nodes) {
    const kind = ["source", "destination"].includes(node.kind) ? node.kind : "processor";
    const alone = plan.nodes.every(({ id, index }) => id !== node.id || index === node.index);
    node.address = alone ? node.id : `${kind}:${node.id}`;
  }
  return plan;
}

export class PipelinePage {
  #rates = new Rates();
  /** @type {LiveOne | null} */
  #live = null;
  /** @type {Drawing | null} */
  #drawing = null;
  /** @type {NodePanel | null} */
  #panel = null;
  /** @type {Letters | null} */
  #letters = null;
  /** @type {PlanText | null} */
  #plan = null;
  #canvas = new Canvas();
  #positions = new Positions();
  #chip = new Chip();
  /** @type {{ tab: string, item: string }} */
  #place = { tab: "", item: "" };
  #loaded = -1;
  #drawn = "";
  #busy = false;
  #lettersSeen = -1;

  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.title = id;
    this.path = of(id, "/live");
    this.home = `#/pipelines/${encodeURIComponent(id)}`;
    this.heading = h("h1", { tabindex: -1 }, id);
    this.about = h("p", { class: "hint about" });
    this.since = h("span", { class: "hint" });
    this.cause = h("p", { class: "trouble" });
    // A screen reader announces a change of the word, not each update of the cause.
    mark(this.#chip.element, "role", "status");
    this.start = h("button", { type: "button", class: "main", click: () => this.#start() }, "Start");
    this.stop = h("button", { type: "button", click: () => this.#stop() }, "Stop …");
    this.tiles = TILES.map(({ title }) => ({ value: h("strong", {}), more: h("small", {}), element: h("div", { class: "tile" }), title }));
    for (const { element, value, more, title } of this.tiles) element.append(h("dt", {}, title), h("dd", {}, value, more));
    this.badge = h("span", { class: "many" });
    this.tabs = TABS.map(({ name, title }) => h("a", { href: name ? `${this.home}/${name}` : this.home }, title, name === "dead-letters" ? this.badge : null));
    this.body = h("div", { class: "tab" });
    this.graph = h("div", { class: "graph" }, this.#canvas.element);
    this.missing = h("div", { class: "empty", hidden: true });
    this.whole = h("div", { class: "whole" },
      h("div", { class: "head" }, h("div", { class: "titles" }, h("div", { class: "title-line" }, this.heading, this.#chip.element, this.since), this.about),
        h("div", { class: "buttons" }, this.start, this.stop)),
      this.cause, h("dl", { class: "tiles" }, ...this.tiles.map(({ element }) => element)),
      h("nav", { class: "tabs", "aria-label": "Parts of the pipeline" }, ...this.tabs), this.body);
    this.element = h("div", { class: "pipeline" }, h("nav", { class: "crumbs", "aria-label": "Breadcrumbs" }, h("a", { href: "#/" }, "Pipelines"), " / ", h("span", {}, id)), this.whole, this.missing);
    this.start.hidden = this.stop.hidden = true;
    this.#about();
  }

  async #about() {
    try {
      const { config } = await get(of(this.id));
      const name = config?.name && config.name !== this.id ? config.name : "";
      say(this.about, [name, config?.description].filter(Boolean).join(": "));
    } catch {
      // The numbers show the problem.
    }
  }

  /** @param {import("./main.js").Place} place */
  show({ parts: [, , tab = "", item = ""] }) {
    const shown = TABS.some(({ name }) => name === tab) ? tab : "";
    this.#place = { tab: shown, item: tab === "nodes" || shown === "dead-letters" ? item : "" };
    this.tabs.forEach((link, i) => mark(link, "aria-current", TABS[i]?.name === shown ? "page" : null));
    const body = shown === "dead-letters" ? this.#lettersView().element
      : shown === "positions" ? this.#positions.element
      : shown === "plan" ? this.#planView().element : this.graph;
    if (this.body.firstElementChild !== body) this.body.replaceChildren(body);
    if (body === this.graph && this.#drawing) this.#canvas.fitOnce();
    if (shown === "dead-letters") {
      this.#letters?.open(item || null);
    }
    this.#showNode();
  }

  leave() {
    this.#panel?.close();
  }

  /** @param {LiveOne} live */
  update(live) {
    mark(this.whole, "hidden", null);
    mark(this.missing, "hidden", "");
    this.#live = live;
    const { status, totals } = live;
    this.#rates.add(live.at, status.run, { read: totals?.read ?? 0, delivered: totals?.delivered ?? 0, filtered: totals?.filtered ?? 0 });
    const word = wordOf(status);
    this.#chip.show(word);
    this.title = `${this.id}: ${word}`;
    say(this.since, sinceWhen(status));
    say(this.cause, cause(status));
    mark(this.cause, "data-word", word);
    this.tiles.forEach(({ element, value, more }, i) => {
      const tile = TILES[i];
      if (!tile) return;
      say(value, tile.value(live, this.#rates));
      say(more, tile.more?.(live) ?? "");
      flag(element, "bad", tile.bad?.(live) ?? false);
      element.hidden = !(tile.when?.(live) ?? true);
    });
    const runs = isLive(status);
    this.start.hidden = runs;
    this.stop.hidden = !runs;
    this.start.disabled = this.stop.disabled = this.#busy || status.word === "invalid";
    this.#positions.update(live.lanes);
    this.#drawing?.update(live);
    this.#panel?.update(live);
    if (this.#loaded !== status.run) this.#load(status.run);
    this.#count(totals?.deadLettered ?? 0);
  }

  /** @param {import("./api.js").ApiError} error */
  refuse(error) {
    mark(this.whole, "hidden", "");
    mark(this.missing, "hidden", null);
    this.missing.replaceChildren(h("h1", {}, error.status === 404 ? "The pipeline does not exist" : "The pipeline cannot be shown"),
      h("p", {}, text(error)), h("p", {}, h("a", { href: "#/" }, "All pipelines")));
  }

  /** Draws the graph again if it differs from that of the previous run. @param {number} run */
  async #load(run) {
    this.#loaded = run;
    try {
      const [svg, plan] = await Promise.all(["live", "json"].map((format) => getText(of(this.id, "/graph", { pass: "fused", format }))));
      if (svg === undefined || plan === undefined || svg + plan === this.#drawn) return;
      this.#drawn = svg + plan;
      this.#drawing = new Drawing(svg, addressed(JSON.parse(plan)), (node) => { location.hash = `${this.home}/nodes/${encodeURIComponent(node.address ?? node.id)}`; });
      this.#canvas.show(this.#drawing.element);
      if (this.#live) this.#drawing.update(this.#live);
      this.#panel?.close();
      this.#panel = null;
      this.#showNode();
    } catch (error) {
      // The pipeline may appear soon: its plugins are still loading, or its file is being corrected.
      setTimeout(() => { this.#loaded = -1; }, 5000);
      this.#canvas.room.replaceChildren(h("div", { class: "empty" }, h("h2", {}, "The graph cannot be drawn"), h("p", {}, text(error))));
    }
  }

  #showNode() {
    const { item, tab } = this.#place;
    const plan = this.#drawing?.plan;
    const node = tab === "" && item ? plan?.nodes.find(({ address }) => address === item) ?? plan?.nodes.find(({ id }) => id === item) : undefined;
    this.#drawing?.choose(node?.index ?? null);
    if (this.#panel && this.#panel.node.index === node?.index) return;
    const before = this.#panel?.node.index;
    const inside = this.#panel?.element.contains(document.activeElement);
    this.#panel?.close();
    this.#panel = null;
    flag(this.graph, "beside", !!node);
    if (node && plan) {
      this.#panel = new NodePanel(this.id, plan, node, this.home);
      this.graph.append(this.#panel.element);
      if (this.#live) this.#panel.update(this.#live);
      this.#panel.heading.focus({ preventScroll: matchMedia("(min-width: 60rem)").matches });
    } else if (before !== undefined && inside) {
      this.#drawing?.focus(before);
    }
  }

  #planView() {
    this.#plan ??= new PlanText(this.id);
    this.#plan.load();
    return this.#plan;
  }

  #lettersView() {
    this.#letters ??= new Letters(this.id, (many) => this.#badge(many));
    return this.#letters;
  }

  /** @param {number} many */
  #badge(many) {
    say(this.badge, many > 0 ? about(many) : "");
  }

  /** @param {number} failed */
  async #count(failed) {
    this.#letters?.update(failed);
    if (this.#letters || failed === this.#lettersSeen) return;
    this.#lettersSeen = failed;
    try {
      const { count: many } = await get(of(this.id, "/dead-letters", { limit: 1 }));
      this.#badge(many);
    } catch {
      // The dead-letter queue may be a destination that the service cannot read.
    }
  }

  /** @param {() => Promise<unknown>} act @param {string} failed */
  async #act(act, failed) {
    this.#busy = this.start.disabled = this.stop.disabled = true;
    try {
      await act();
    } catch (error) {
      tell(`${failed}: ${text(error)}`, "bad");
    } finally {
      this.#busy = false;
    }
  }

  async #start() {
    await this.#act(() => post(of(this.id, "/start"), {}), "Not started");
  }

  async #stop() {
    const under = this.#live?.totals?.inFlight ?? 0;
    const name = uniqueId();
    const [drain, drop] = ["drain", "drop"].map((value) => h("input", { type: "radio", name, value, checked: value === "drain" }));
    const answer = await question(`Stop ${this.id}?`, [
      h("fieldset", { class: "choices" }, h("legend", {}, under ? `${plural(under, "record")} in flight` : "No records are in flight"),
        h("label", {}, drain, h("span", {}, "Deliver records in flight", h("small", {}, "the pipeline stops reading, and stops when everything is delivered"))),
        h("label", {}, drop, h("span", {}, "Drop records in flight", h("small", {}, "the pipeline stops immediately; the next start reads them again, so records that were already written are written twice")))),
    ], [{ label: "Stop", value: "stop", kind: "danger" }]);
    if (answer) await this.#act(() => post(of(this.id, "/stop"), { force: drop?.checked ?? false }), "Not stopped");
  }
}
