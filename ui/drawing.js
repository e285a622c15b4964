// The graph of a pipeline, as `pipelines plan` draws it, with live counters.

import { flag, mark, s, say, upright } from "./dom.js";
import { about, count, duration, percent, plural, rate, since } from "./format.js";
import { Rates, waits } from "./rates.js";

/** @typedef {import("./api.js").Plan} Plan */
/** @typedef {import("./api.js").PlanNode} PlanNode */
/** @typedef {import("./api.js").LiveOne} LiveOne */
/** @typedef {import("./api.js").LiveNode} LiveNode */
/** @typedef {import("./api.js").LiveEdge} LiveEdge */

/** Allowed elements and attributes of drawings; all others are removed. */
const ELEMENTS = new Set(["svg", "g", "rect", "path", "circle", "text", "title", "defs", "marker"]);
const ATTRIBUTES = /^(viewBox|width|height|x|y|rx|r|cx|cy|d|class|role|id|tabindex|transform|orient|refX|refY|font-size|text-anchor|marker-end|marker(Width|Height|Units)|data-[a-z]+|aria-label)$/;

/** Share of its bound from which a queue counts as nearly full. */
const NEARLY = 0.75;
/** Share of time from which a node counts as the bottleneck. */
const BUSY = 0.8;

/** @param {Element} from @returns {SVGElement | null} a copy with only the allowed elements and attributes */
function drawn(from) {
  if (!ELEMENTS.has(from.localName)) return null;
  const element = s(/** @type {"g"} */ (from.localName));
  for (const { name, value } of from.attributes) {
    if (ATTRIBUTES.test(name)) mark(element, name, value);
  }
  for (const child of from.childNodes) {
    if (child instanceof Element) element.append(drawn(child) ?? "");
    else if (child.nodeType === Node.TEXT_NODE) element.append(upright(child.nodeValue ?? ""));
  }
  return element;
}

/** A node of the drawing, and its texts. */
class Card {
  #rates = new Rates();
  /** @type {SVGGElement | null} */
  #badge = null;

  /** @param {SVGGElement} element @param {PlanNode} node */
  constructor(element, node) {
    this.element = element;
    this.node = node;
    this.text = element.querySelector("text.live") ?? s("text");
    const box = element.querySelector("rect.card") ?? element;
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(box.getAttribute(name)));
    this.box = { x: x ?? 0, y: y ?? 0, width: width ?? 0, height: height ?? 0 };
    this.load = s("rect", { class: "load", x: this.box.x + 14, y: this.box.y + this.box.height - 5, width: 0, height: 2.5, rx: 1.2 });
    // Its accessible name is its text.
    mark(element, "aria-label", null);
    element.append(this.load);
  }

  /**
   * @param {LiveNode} live
   * @param {LiveOne} all
   */
  update(live, all) {
    const rates = this.#rates;
    const { rowsIn, selected, rowsOut, failed, busySeconds } = live;
    rates.add(all.at, all.status.run, { rowsIn, selected, rowsOut, failed, busySeconds });
    const [source, destination] = [this.node.kind === "source", this.node.kind === "destination"];
    const flow = rates.rate(source || destination ? "rowsOut" : "rowsIn");
    const grown = rates.grown("rowsIn");
    const held = source ? 0 : waits(rates, live);
    // A node that works on the same records for a long time has no rate yet.
    const parts = [held ? `holds ${about(held)}` : rate(flow)];
    if (!held && this.node.condition && rowsIn > 0 && flow !== null) parts[0] = `${percent(selected / rowsIn)} of ${rate(flow)}`;
    const worked = this.node.condition ? rates.grown("selected") : grown;
    if (!source && worked > 0) parts.push(duration(rates.grown("busySeconds") / worked));
    say(this.text, parts.join(" · "));

    // A source is busy while it waits for records.
    const workers = this.node.workers ?? 1;
    const busy = source ? 0 : Math.min(1, (rates.rate("busySeconds") ?? 0) / workers);
    mark(this.load, "width", String(Math.round((this.box.width - 28) * busy)));

    const { stalled: holder } = all.status;
    const stalled = holder?.node === live.id && (!holder.kind || !live.kind || holder.kind === live.kind) ? holder : undefined;
    flag(this.element, "stalled", !!stalled);
    // A run can fail without a failed record.
    const ended = all.status.word !== "running" && all.status.word !== "idle" && !!all.status.error && all.status.where === live.id
      // If several nodes have the same id, choose the one that has an error.
      && (!!live.lastError || all.nodes.every(({ node, id }) => node === live.node || id !== live.id));
    flag(this.element, "failing", failed > 0 || ended);
    flag(this.element, "hot", busy >= BUSY);
    const trouble = stalled ? `stalled ${duration(Math.floor(since(stalled.since) ?? 0))}` : failed > 0 ? `${about(failed)} failed`
      : ended ? "failed" : busy >= BUSY ? `${percent(busy)} busy` : "";
    this.#mark(trouble);
  }

  /** @param {string} text above the corner of the card; empty removes it */
  #mark(text) {
    if (!text) {
      this.#badge?.remove();
      this.#badge = null;
      return;
    }
    if (!this.#badge) {
      this.#badge = s("g", { class: "badge" }, " ", s("rect", { height: 17, rx: 8.5 }), s("text", { "font-size": 10.5, "text-anchor": "middle" }));
      this.element.append(this.#badge);
    }
    const [plate, words] = this.#badge.children;
    if (!plate || !words || words.textContent === text) return;
    say(words, text);
    const width = 16 + text.length * 6.3;
    const x = this.box.x + this.box.width - width + 6;
    for (const [name, value] of Object.entries({ x, y: this.box.y - 9, width })) mark(plate, name, value.toFixed(1));
    mark(words, "x", (x + width / 2).toFixed(1));
    mark(words, "y", (this.box.y + 3.2).toFixed(1));
  }
}

/** An edge of the drawing: its width shows the rate, and its pattern shows whether its queue is full. */
class EdgeLine {
  #rates = new Rates();

  /** @param {SVGElement | null} line @param {SVGElement | null} place */
  constructor(line, place) {
    this.line = line;
    this.place = place;
    this.text = place?.querySelector("text") ?? null;
    this.title = s("title");
    place?.append(this.title);
  }

  /** @param {LiveEdge} live @param {LiveOne} all */
  update(live, all) {
    this.#rates.add(all.at, all.status.run, { rows: live.rows });
    const flow = this.#rates.rate("rows");
    /** @param {number | undefined} queued @param {number | undefined} bound */
    const part = (queued, bound) => (bound ? Math.min(1, (queued ?? 0) / bound) : 0);
    const filled = Math.max(part(live.queuedBytes, live.boundBytes), part(live.queuedRows, live.boundRows));
    const level = live.full ? "full" : filled >= NEARLY ? "nearly" : flow ? "flows" : "rests";
    const queue = live.full ? "queue full" : (live.queuedRows ?? 0) > 0 ? `${about(live.queuedRows)} queued` : "";
    if (this.text) say(this.text, [rate(flow), queue].filter(Boolean).join(" · "));
    say(this.title, `${plural(live.rows, "record")}${live.queuedRows ? `, ${count(live.queuedRows)} in the queue, which is ${percent(filled)} full` : ""}`);
    // Twice as wide from 1/s to 1,000/s.
    const width = flow ? 1.4 + Math.min(3.6, Math.log10(1 + flow) * 0.6) : 1.2;
    for (const element of [this.line, this.place]) {
      if (element) mark(element, "data-level", level);
    }
    if (this.line) mark(this.line, "stroke-width", (live.full ? Math.max(2.6, width) : width).toFixed(1));
  }
}

export class Drawing {
  /** @type {Map<number, Card>} */
  #cards = new Map();
  /** @type {Map<string, EdgeLine>} */
  #ways = new Map();
  /** @type {SVGSVGElement} */
  element;

  /**
   * @param {string} svg
   * @param {Plan} plan
   * @param {(node: PlanNode) => void} open called when the user selects a node
   */
  constructor(svg, plan, open) {
    const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    const figure = drawn(parsed);
    if (!(figure instanceof SVGSVGElement)) throw new Error("the graph is not a valid drawing");
    this.element = figure;
    this.plan = plan;
    /** @param {number} from @param {number} to */
    const ends = (from, to) => `[data-from="${from}"][data-to="${to}"]`;
    for (const node of plan.nodes) {
      const element = figure.querySelector(`[data-node="${node.index}"]`);
      if (element instanceof SVGGElement) this.#cards.set(node.index, new Card(element, node));
    }
    for (const { from, to, port } of plan.edges) {
      if (port === "failed") continue;
      const line = /** @type {SVGElement | null} */ (figure.querySelector(`path${ends(from, to)}`));
      const place = /** @type {SVGElement | null} */ (figure.querySelector(`.flow${ends(from, to)}`));
      this.#ways.set(`${from} ${to}`, new EdgeLine(line, place));
    }
    // Tab reaches one node, the arrow keys reach the others from there.
    [...this.#cards.values()].forEach((card, i) => mark(card.element, "tabindex", i === 0 ? "0" : "-1"));
    /** @param {Event} event */
    const of = (event) => {
      const found = event.target instanceof Element ? event.target.closest("[data-node]") : null;
      return found ? this.#cards.get(Number(found.getAttribute("data-node"))) : undefined;
    };
    figure.addEventListener("click", (event) => {
      const card = of(event);
      if (card) open(card.node);
    });
    figure.addEventListener("focusin", (event) => {
      const card = of(event);
      if (card) this.#reach(card);
    });
    figure.addEventListener("keydown", (event) => {
      const card = of(event);
      if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open(card.node);
      } else if (event.key.startsWith("Arrow")) {
        event.preventDefault();
        this.#neighbour(card, event.key)?.element.focus();
      }
    });
  }

  /** @param {LiveOne} live */
  update(live) {
    for (const node of live.nodes) this.#cards.get(node.node)?.update(node, live);
    for (const edge of live.edges) this.#ways.get(`${edge.from} ${edge.to}`)?.update(edge, live);
  }

  /** @param {number | null} index the node whose details are shown */
  choose(index) {
    for (const [at, card] of this.#cards) {
      flag(card.element, "chosen", at === index);
      if (at === index) mark(card.element, "aria-current", "true");
      else mark(card.element, "aria-current", null);
    }
    const card = index === null ? undefined : this.#cards.get(index);
    if (card) this.#reach(card);
  }

  /** @param {number} index */
  focus(index) {
    this.#cards.get(index)?.element.focus();
  }

  /** @param {Card} card */
  #reach(card) {
    for (const each of this.#cards.values()) mark(each.element, "tabindex", each === card ? "0" : "-1");
  }

  /**
   * The nearest node in a direction. Nodes straight ahead come before nodes to the side.
   * @param {Card} card
   * @param {string} key
   */
  #neighbour(card, key) {
    const middle = (/** @type {Card} */ { box }) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });
    const here = middle(card);
    /** @type {Card | undefined} */
    let best;
    let least = Infinity;
    for (const other of this.#cards.values()) {
      const there = middle(other);
      const [dx, dy] = [there.x - here.x, there.y - here.y];
      const ahead = { ArrowDown: dy, ArrowUp: -dy, ArrowRight: dx, ArrowLeft: -dx }[key] ?? 0;
      const aside = key === "ArrowDown" || key === "ArrowUp" ? dx : dy;
      const far = ahead + 3 * Math.abs(aside);
      if (ahead > 1 && far < least) [best, least] = [other, far];
    }
    return best;
  }
}
