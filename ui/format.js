// Formats numbers and times.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** Shown in place of a missing number. */
export const NONE = "–";

/**
 * Formats three significant digits, with a letter for thousands.
 * @param {number} number
 */
function short(number) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e4, "k"]])) {
    if (number >= size) {
      const unit = letter === "k" ? 1e3 : size;
      const digits = number / unit;
      return `${digits >= 100 ? whole.format(digits) : digits.toPrecision(3)} ${letter}`;
    }
  }
  return whole.format(number);
}

/** @param {number | null | undefined} number an exact count */
export function count(number) {
  return number === null || number === undefined ? NONE : whole.format(number);
}

/** @param {number | null | undefined} number a count, in few characters */
export function about(number) {
  return number === null || number === undefined ? NONE : short(number);
}

/** @param {number | null | undefined} perSecond */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return NONE;
  if (perSecond === 0) return "0/s";
  return perSecond < 9.95 ? `${perSecond.toFixed(1)}/s` : `${short(perSecond)}/s`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const three = (/** @type {number} */ n) => (n >= 100 ? whole.format(n) : n.toPrecision(3).replace(/\.?0+$/, ""));
  if (seconds <= 0) return "0 s";
  if (seconds < 1e-6) return `${three(seconds * 1e9)} ns`;
  if (seconds < 1e-3) return `${three(seconds * 1e6)} µs`;
  if (seconds < 1) return `${three(seconds * 1e3)} ms`;
  if (seconds < 60) return `${three(seconds)} s`;
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** @param {number | null | undefined} bytes */
export function bytes(bytes) {
  if (bytes === null || bytes === undefined) return NONE;
  for (const [size, unit] of /** @type {[number, string][]} */ ([[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])) {
    if (bytes >= size) return `${(bytes / size).toPrecision(3)} ${unit}`;
  }
  return `${whole.format(bytes)} B`;
}

/** @param {number | null | undefined} part from 0 to 1 */
export function percent(part) {
  if (part === null || part === undefined || !Number.isFinite(part)) return NONE;
  const of100 = part * 100;
  if (of100 > 0 && of100 < 0.1) return "< 0.1 %";
  // Only 0 and 1 are shown as 0 % and 100 %.
  if (of100 > 99.9 && of100 < 100) return "> 99.9 %";
  return `${of100 < 10 && of100 > 0 ? of100.toFixed(1) : whole.format(Math.min(of100, part < 1 ? 99 : Infinity))} %`;
}

/** @param {string | null | undefined} time RFC 3339 */
export function clock(time) {
  return time ? clockFormat.format(new Date(time)) : NONE;
}

/** @param {string | null | undefined} time RFC 3339; with the day if it is not today */
export function moment(time) {
  if (!time) return NONE;
  const at = new Date(time);
  return (at.toDateString() === new Date().toDateString() ? clockFormat : dayFormat).format(at);
}

/**
 * @param {string | null | undefined} time RFC 3339
 * @returns {number | null} seconds since then by the clock of this machine, at least 0
 */
export function since(time) {
  return time ? Math.max(0, (Date.now() - Date.parse(time)) / 1000) : null;
}

/**
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * The beginning of a text.
 * @param {string} text
 * @param {number} most characters
 */
export function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** @param {import("./api.js").Backlog | null} [left] the backlog, in its most precise unit */
export function amount(left) {
  if (left?.records !== undefined) return left.records === 0 ? "none" : plural(left.records, "record");
  if (left?.objects !== undefined) return left.objects === 0 ? "none" : plural(left.objects, "object");
  if (left?.bytes !== undefined) return left.bytes === 0 ? "none" : bytes(left.bytes);
  return NONE;
}

/** @param {import("./api.js").Backlog | null} [left] the backlog, and the age of the next record */
export function backlog(left) {
  return left?.ageSeconds ? `${amount(left)} · ${duration(left.ageSeconds)}` : amount(left);
}
