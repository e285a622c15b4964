// The status of a pipeline: a shape, a word and a cause. Colour is never the only sign.

import { h, mark, s, say } from "./dom.js";
import { clock, duration, since } from "./format.js";

/** @typedef {import("./api.js").Status} Status */

/** The shape of each word, in a square of 16. */
const SHAPES = {
  starting: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5",
  running: "M5 3v10l8-5z",
  idle: "M5.5 3.5v9M10.5 3.5v9",
  stalled: "M8 2 14.5 13.5h-13zM8 6.5v3.2M8 11.6v.2",
  recovering: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  degraded: "M4 4l8 8M12 4l-8 8",
  stopped: "M4 4h8v8H4z",
  finished: "M3 8.5 6.5 12 13 4.5",
  invalid: "M8 3v6M8 12v.3",
};
const FILLED = new Set(["running", "stopped"]);

/** Order of the statuses, the most urgent first. */
const URGENCY = ["degraded", "invalid", "stalled", "recovering", "starting", "running", "idle", "stopped", "finished"];

/** @param {Status} status @returns {keyof typeof SHAPES} the word that is shown */
export function wordOf(status) {
  if (status.stalled) return "stalled";
  return status.word in SHAPES ? /** @type {keyof typeof SHAPES} */ (status.word) : "invalid";
}

/** @param {string} word */
export function urgency(word) {
  // An idle pipeline may run in the next second: its line must not move.
  return URGENCY.indexOf(word === "idle" ? "running" : word);
}

/** @param {Status} status @returns {boolean} `true` if the pipeline can be stopped */
export function isLive(status) {
  return ["starting", "running", "idle", "recovering"].includes(status.word);
}

/** The shape and the word. */
export class Chip {
  #shape = s("path");
  #word = h("span", { class: "word" });
  element = h("span", { class: "chip" }, s("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, this.#shape), this.#word);

  /** @param {keyof typeof SHAPES} word */
  show(word) {
    mark(this.element, "data-word", word);
    mark(this.#shape, "d", SHAPES[word]);
    mark(this.#shape, "class", FILLED.has(word) ? "filled" : null);
    say(this.#word, word);
  }
}

/** @param {Status} status @returns {string} the error and the next attempt; empty without an error */
export function cause(status) {
  const parts = [];
  if (status.stalled) {
    parts.push(`${status.stalled.node} has made no progress for ${duration(since(status.stalled.since))}`);
  }
  if (status.error && status.word !== "running" && status.word !== "idle") {
    const named = !status.where || status.error.startsWith(`${status.where}: `);
    parts.push(named ? status.error : `${status.where}: ${status.error}`);
  }
  if (status.nextTry) {
    const left = (Date.parse(status.nextTry) - Date.now()) / 1000;
    const when = left > 0 ? `in ${duration(Math.ceil(left))}` : "now";
    parts.push(`attempt ${status.attempt ?? 1} ${when}`);
  }
  return parts.join(" · ");
}

/** @param {Status} status */
export function sinceWhen(status) {
  const seconds = since(status.since);
  return seconds === null ? "" : `since ${clock(status.since)} (${duration(Math.floor(seconds))})`;
}
