// Requests to the service. All data of the page comes through this module.

/**
 * @typedef {{ word: string, since?: string, error?: string, where?: string, attempt?: number, nextTry?: string,
 *   stalled?: { node: string, kind?: string, since: string }, run: number }} Status
 * @typedef {{ id: string, name: string, status: Status, read: number, delivered: number, filtered: number,
 *   failed: number, deadLettered: number, inFlight: number, unacknowledged?: number, oldestUnacknowledgedSeconds?: number,
 *   backlog?: Backlog, runBy?: string[] }} LivePipeline
 * @typedef {{ records?: number, bytes?: number, objects?: number, ageSeconds?: number }} Backlog
 * @typedef {{ bytes?: number, spareBytes?: number, status?: string, atRisk: boolean, transactions?: number }} Retention
 * @typedef {{ at: string, version: string, uptimeSeconds: number, pipelines: LivePipeline[], silentNodes?: string[] }} Live
 * @typedef {{ id: string, name: string, url: string, version: string, isThis: boolean, isLeaving: boolean, units: number, ageSeconds: number,
 *   silenceSeconds: number }} ClusterNode
 * @typedef {{ nodes: ClusterNode[], units: { pipeline: string, slot: number, node?: string, movesTo?: string, label?: string,
 *   isEnding: boolean }[] }} Cluster
 * @typedef {{ connector: string, partition: string, read: number, settled: number, stored: number,
 *   unacknowledged?: number, oldestUnacknowledgedSeconds?: number, backlogRecords?: number }} Lane
 * @typedef {{ node: number, id: string, kind?: string, rowsIn: number, selected: number, rowsOut: number, failed: number, held?: number,
 *   busySeconds: number, lastError?: { message: string, at: string } }} LiveNode
 * @typedef {{ from: number, to: number, rows: number, queuedRows?: number, boundRows?: number, queuedBytes?: number,
 *   boundBytes?: number, full?: boolean }} LiveEdge
 * @typedef {{ read: number, settled: number, born: number, delivered: number, filtered: number, failed: number,
 *   deadLettered: number, inFlight: number }} Totals
 * @typedef {{ id: string, at: string, status: Status, totals?: Totals, lanes: Lane[], backlogs?: (Backlog & { connector: string, missed?: number, retention?: Retention })[], nodes: LiveNode[],
 *   edges: LiveEdge[] }} LiveOne
 * @typedef {{ index: number, id: string, kind: string, address?: string, plugin?: string, workers?: number, notes?: string[], backfills?: string,
 *   condition?: { text: string, native: boolean, as_before: boolean }, settings?: Record<string, string> }} PlanNode
 * @typedef {{ from: number, to: number, port: string, shape?: string }} PlanEdge
 * @typedef {{ pipeline: string, nodes: PlanNode[], edges: PlanEdge[] }} Plan
 */

/** Time limit of a request. */
const PATIENCE = 30_000;
const KEY = "anabranch.token";

/** An error of the service, or status 0 if the service cannot be reached. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} [reason]
   * @param {string} [suggestion]
   */
  constructor(status, message, reason = "", suggestion = "") {
    super(message);
    this.status = status;
    this.reason = reason;
    this.suggestion = suggestion;
  }

  /** `true` if the service is unreachable or cannot answer requests. */
  get isGone() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** @param {unknown} error */
export function text(error) {
  if (!(error instanceof ApiError)) return error instanceof Error ? error.message : String(error);
  return error.suggestion ? `${error.message}. ${capital(error.suggestion)}.` : error.message;
}

/** @param {string} text */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

let inMemory = "";

const token = {
  get() {
    try {
      return sessionStorage.getItem(KEY) ?? inMemory;
    } catch {
      return inMemory;
    }
  },
  /** @param {string} value */
  set(value) {
    inMemory = value;
    try {
      sessionStorage.setItem(KEY, value);
    } catch {
      // Without storage in the browser, the page requests the token again after a reload.
    }
  },
};

/** @type {(refused: boolean) => Promise<string>} */
let ask = () => Promise.reject(new ApiError(401, "this request requires the token of the service"));
/** @type {Promise<void> | null} */
let asking = null;

/**
 * Sets the function that requests the token from the user if the service requires one.
 * @param {(refused: boolean) => Promise<string>} how
 */
export function onToken(how) {
  ask = how;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>} a response that is not an error
 */
async function request(method, path, body, signal) {
  for (;;) {
    const used = token.get();
    const limit = AbortSignal.timeout(PATIENCE);
    /** @type {Response} */
    let response;
    try {
      response = await fetch(path, {
        method,
        headers: {
          ...(used && { authorization: `Bearer ${used}` }),
          ...(body !== undefined && { "content-type": "application/json" }),
        },
        body: body === undefined ? null : JSON.stringify(body),
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
        cache: "no-store",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, limit.aborted ? "the service does not answer" : "the service cannot be reached");
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await refusal(response);
    // Another request may have requested the token in the meantime.
    if (token.get() === used) {
      asking ??= ask(used !== "").then((given) => token.set(given)).finally(() => { asking = null; });
      await asking;
    }
  }
}

/** @param {Response} response */
async function refusal(response) {
  try {
    const { message, details } = await response.json();
    const { reason, metadata } = details?.[0] ?? {};
    return new ApiError(response.status, String(message), reason, metadata?.suggestion);
  } catch {
    return new ApiError(response.status, `the service answered with ${response.status} ${response.statusText}`.trim());
  }
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return (await request("GET", path, undefined, signal)).json();
}

/** `true` if numbers can keep their notation. */
export const isExact = "rawJSON" in JSON;

/**
 * Reads JSON without loss: numbers that JavaScript would round or format differently keep their notation.
 * @param {string} text
 */
export function exact(text) {
  const { rawJSON } = /** @type {{ rawJSON?: (text: string) => unknown }} */ (/** @type {unknown} */ (JSON));
  if (!rawJSON) return JSON.parse(text);
  /** @type {(key: string, value: unknown, context: { source?: string }) => unknown} */
  const keep = (_, value, { source }) =>
    typeof value === "number" && source !== undefined && String(value) !== source ? rawJSON(source) : value;
  return JSON.parse(text, /** @type {any} */ (keep));
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function getText(path, signal) {
  return (await request("GET", path, undefined, signal)).text();
}

/**
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export async function post(path, body) {
  const answer = await (await request("POST", path, body)).text();
  return answer ? JSON.parse(answer) : {};
}

/**
 * @param {string} path
 * @returns {WebSocket}
 */
export function socket(path) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  // Browsers cannot send the header with it.
  if (token.get()) url.searchParams.set("token", token.get());
  return new WebSocket(url);
}

/**
 * The path of a resource of a pipeline.
 * @param {string} pipeline
 * @param {string} [rest]
 * @param {Record<string, string | number | undefined>} [query]
 */
export function of(pipeline, rest = "", query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const search = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return `/v1/pipelines/${encodeURIComponent(pipeline)}${rest}${search && `?${search}`}`;
}
