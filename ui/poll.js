// Polls the service while the page is visible, and tracks whether the service is reachable.

import { ApiError, get } from "./api.js";

const PERIOD = 1000;
const LONGEST_WAIT = 15_000;

/**
 * Whether the service answers. `change` is fired when that changes, and when another try is waited for.
 */
export const connection = Object.assign(new EventTarget(), {
  /** When it answered last, in milliseconds; 0 = never. */
  answered: 0,
  /** Why it cannot be asked; empty = it can. */
  lost: "",
  /** When it is tried again, in milliseconds. */
  next: 0,
});

/** @type {(() => void) | null} */
let wake = null;

/** Asks now, whatever was waited for. */
export function tryNow() {
  wake?.();
}

document.addEventListener("visibilitychange", () => document.hidden || wake?.());
addEventListener("online", tryNow);

/** @param {string} lost @param {number} next */
function set(lost, next) {
  if (!lost) connection.answered = Date.now();
  if (lost === connection.lost && next === connection.next) return;
  Object.assign(connection, { lost, next });
  connection.dispatchEvent(new Event("change"));
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>} after the time, or on a request to retry now, or when the signal aborts
 */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, milliseconds);
    function done() {
      clearTimeout(timer);
      if (wake === done) wake = null;
      resolve();
    }
    wake = done;
    signal.addEventListener("abort", done, { once: true });
  });
}

/**
 * Reads a path every second until the signal says stop. Only one at a time may be read this way.
 * @param {string} path
 * @param {(answer: any) => void} take
 * @param {(error: ApiError) => void} refuse the service is there, but says no
 * @param {AbortSignal} signal
 */
export async function poll(path, take, refuse, signal) {
  let wait = PERIOD;
  while (!signal.aborted) {
    const began = Date.now();
    try {
      const answer = await get(path, signal);
      set("", 0);
      wait = PERIOD;
      take(answer);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ApiError)) {
        // A defect of the page: it is reported, and does not stop the polling.
        reportError(error);
        await pause(PERIOD, signal);
        continue;
      }
      wait = error.isGone ? Math.min(wait * 2, LONGEST_WAIT) : PERIOD * 2;
      if (error.isGone) {
        set(error.message, Date.now() + wait);
      } else {
        set("", 0);
        refuse(error);
      }
    }
    if (signal.aborted) return;
    // The page is hidden: it is updated when it is visible again.
    await pause(document.hidden ? 2 ** 30 : Math.max(100, wait - (Date.now() - began)), signal);
  }
}
