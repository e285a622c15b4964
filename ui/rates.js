// Computes rates from counters that are polled.

/** Time window of a rate: long enough to be legible, short enough to show a change. */
const WINDOW = 5000;
/** Number of rates that are kept for the chart. */
const HISTORY = 60;

/** @typedef {{ at: number, counters: Record<string, number> }} Sample */

export class Rates {
  /** @type {Sample[]} */
  #samples = [];
  /** @type {number | undefined} */
  #run;
  /** @type {string | null} */
  #drawn;
  /** @type {number[]} */
  history = [];

  /** @param {string | null} drawn the counter whose rates are kept in `history` */
  constructor(drawn = null) {
    this.#drawn = drawn;
  }

  /**
   * @param {string} at RFC 3339, by the clock of the service
   * @param {number} run counters start at zero in every run
   * @param {Record<string, number>} counters
   */
  add(at, run, counters) {
    const time = Date.parse(at);
    const last = this.#samples.at(-1);
    if (last && time <= last.at) return;
    const back = last && Object.entries(counters).some(([name, value]) => value < (last.counters[name] ?? 0));
    if (run !== this.#run || back) this.#samples = [];
    this.#run = run;
    if (this.#drawn !== null) {
      const before = this.#samples.at(-1);
      const grown = before ? (counters[this.#drawn] ?? 0) - (before.counters[this.#drawn] ?? 0) : 0;
      this.history.push(before ? (grown * 1000) / (time - before.at) : 0);
      if (this.history.length > HISTORY) this.history.shift();
    }
    this.#samples.push({ at: time, counters });
    // One sample from before the window is kept, so that the samples cover the whole window.
    while (this.#samples.length > 2 && time - (this.#samples[1]?.at ?? time) >= WINDOW) this.#samples.shift();
  }

  /**
   * @param {string} name
   * @returns {number} growth of the counter in the window
   */
  grown(name) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    return first && last ? (last.counters[name] ?? 0) - (first.counters[name] ?? 0) : 0;
  }

  /**
   * @param {string} name
   * @returns {number | null} rate per second; `null` with fewer than two samples
   */
  rate(name) {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    return first && last && last.at > first.at ? (this.grown(name) * 1000) / (last.at - first.at) : null;
  }

  /** The last value of a counter. @param {string} name */
  last(name) {
    return this.#samples.at(-1)?.counters[name] ?? null;
  }
}

/**
 * @param {Rates} rates of `rowsOut`, among others
 * @param {{ held?: number }} live
 * @returns {number} number of records in a node without recent output; 0 if it has output
 */
export function waits(rates, live) {
  return rates.rate("rowsOut") === 0 ? live.held ?? 0 : 0;
}
