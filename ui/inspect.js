// The live records at a node of the graph.

import { exact, of, socket } from "./api.js";
import { Rows, h, say, uniqueId } from "./dom.js";
import { clock, count, plural } from "./format.js";
import { recordView, summary } from "./record.js";
import { isLive } from "./status.js";

/** Maximum number of records on the page. */
const KEPT = 50;
/** Interval of updates, and the maximum number of new records per update. */
const [TICK, AT_ONCE] = [300, 12];
const [FIRST_WAIT, LONGEST_WAIT] = [1000, 15_000];

/** @typedef {{ number: number, at: string, record: import("./record.js").RecordJson }} Seen */

export class Inspector {
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {string[]} */
  #fresh = [];
  /** @type {Seen[]} */
  #seen = [];
  #came = 0;
  #left = 0;
  #wait = FIRST_WAIT;
  #paused = false;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #tick;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #again;

  /**
   * @param {string} pipeline
   * @param {import("./api.js").PlanNode} node
   */
  constructor(pipeline, node) {
    this.pipeline = pipeline;
    this.node = node;
    const name = uniqueId();
    const sides = node.kind === "source" ? ["after"] : node.kind === "destination" ? ["before"] : ["before", "after"];
    this.side = sides.includes("after") ? "after" : "before";
    const radios = sides.map((side) => h("label", {},
      h("input", { type: "radio", name, value: side, checked: side === this.side, change: () => { this.side = side; this.#restart(); } }), side));
    this.where = h("input", { type: "text", placeholder: '{{ eq .Metadata.kind "a" }}', spellcheck: "false", autocapitalize: "off", "aria-label": "Only records that match this condition" });
    this.sample = h("select", { "aria-label": "Maximum number of records per second", change: () => this.#restart() },
      ...[1, 10, 100, 1000].map((most) => h("option", { value: most, selected: most === 10 }, `${count(most)}/s`)));
    this.button = h("button", { type: "button", class: "small", click: () => this.#pause(!this.#paused) }, "Pause");
    this.state = h("p", { class: "hint", role: "status" });
    this.wrong = h("p", { class: "wrong" });
    const list = h("ol", { class: "records", "aria-label": "Records" });
    this.rows = new Rows(list, (/** @type {Seen} */ seen) => String(seen.number), (seen) => ({ element: entry(seen) }), () => {});
    this.element = h("section", { "aria-label": "Live records" }, h("h3", {}, "Live records"),
      h("form", { class: "inspect", submit: (event) => { event.preventDefault(); this.#restart(); } },
        sides.length > 1 ? h("fieldset", { class: "sides" }, h("legend", { class: "offscreen" }, "Side of the step"), ...radios) : null,
        this.sample, h("label", { class: "where" }, h("span", {}, "where"), this.where),
        h("button", { type: "submit", class: "small" }, "Apply"), this.button,
        h("button", { type: "button", class: "small", click: () => this.#clear() }, "Clear")),
      this.state, this.wrong, list);
    this.#open();
    this.#tick = setInterval(() => this.#show(), TICK);
  }

  close() {
    clearInterval(this.#tick);
    this.#disconnect();
  }

  #disconnect() {
    clearTimeout(this.#again);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #restart() {
    this.#disconnect();
    this.#clear();
    if (this.#paused) this.#pause(false);
    else this.#open();
  }

  #clear() {
    this.#seen = [];
    this.#fresh = [];
    this.#came = this.#left = 0;
    this.rows.show([]);
  }

  /** @param {boolean} paused */
  #pause(paused) {
    this.#paused = paused;
    say(this.button, paused ? "Continue" : "Pause");
    if (paused) {
      this.#disconnect();
      this.#show();
      say(this.state, "Paused. The pipeline does not send records to this page.");
    } else {
      this.#open();
    }
  }

  #open() {
    say(this.state, "Connecting …");
    say(this.wrong, "");
    const query = { at: this.node.address ?? this.node.id, side: this.side, where: this.where.value.trim(), sample: this.sample.value };
    const opened = socket(of(this.pipeline, "/inspect", query));
    this.#socket = opened;
    let refused = "";
    opened.addEventListener("open", () => {
      this.#wait = FIRST_WAIT;
      say(this.state, "Waiting for records …");
    });
    opened.addEventListener("message", ({ data }) => {
      // Only records that are shown are parsed.
      if (data.startsWith('{"result"')) {
        this.#came += 1;
        this.#fresh.push(data);
        if (this.#fresh.length > AT_ONCE) this.#fresh.shift();
        return;
      }
      const frame = JSON.parse(data);
      if (frame.dropped) this.#left += frame.dropped;
      if (frame.status && !isLive(frame.status)) say(this.state, `The pipeline is ${frame.status.word}. Waiting …`);
      if (frame.failed) say(this.wrong, `${plural(frame.failed, "record")} could not be checked against the condition: ${frame.message}`);
      if (frame.error) refused = frame.error.message ?? "the service refused the request";
      if (frame.result) {
        this.#came += 1;
        this.#fresh.push(data);
      }
    });
    opened.addEventListener("close", ({ reason }) => {
      if (this.#socket !== opened) return;
      if (refused) {
        say(this.state, refused);
        return;
      }
      say(this.state, `${reason || "The connection is lost"}. Reconnecting …`);
      this.#again = setTimeout(() => this.#open(), this.#wait);
      this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
    });
  }

  #show() {
    if (!this.#fresh.length) return;
    const at = new Date().toISOString();
    let number = this.#came - this.#fresh.length;
    for (const frame of this.#fresh) {
      number += 1;
      this.#seen.unshift({ number, at, record: exact(frame).result });
    }
    this.#fresh = [];
    this.#seen.length = Math.min(this.#seen.length, KEPT);
    this.rows.show(this.#seen);
    const left = this.#left ? `, ${count(this.#left)} more were skipped` : "";
    if (!this.#paused) say(this.state, `${plural(this.#came, "record")} received${left}; the latest are shown.`);
  }
}

/** @param {Seen} seen */
function entry({ at, record }) {
  const details = h("details", { toggle: () => {
    // The content is built when it is first opened.
    if (details.open && details.children.length === 1) details.append(recordView(record));
  } }, h("summary", {}, h("time", {}, clock(at)), " ", h("span", { class: "tag" }, record.operation ?? ""), " ", h("code", {}, summary(record))));
  return h("li", {}, details);
}
