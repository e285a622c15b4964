// Polls the service while the page is visible, and tracks whether the service is reachable.

import { ApiError, get } from "./api.js";

const PERIOD = 1000;
const LONGEST_WAIT = 15_000;

/**
 * State of the connection to the service. Fires `change` when the state changes, and when a retry is scheduled.
 */
export const connection = Object.assign(new EventTarget(), {
  /** Time of the last answer in milliseconds; 0 = never. */
  answered: 0,
  /** Reason why the service is unreachable; empty = it is reachable. */
  lost: "",
  /** Time of the next attempt in milliseconds. */
  next: 0,
});

/** @type {(() => void) | null} */
let wake = null;

/** Sends a request immediately instead of waiting for the next attempt. */
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
 * Reads a path every second until the signal aborts. Only one path can be read this way at a time.
 * @param {string} path
 * @param {(answer: any) => void} take
 * @param {(error: ApiError) => void} refuse called if the service answers with an error
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
