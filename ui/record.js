// Formats records: raw data is shown and edited as text if it is text.

import { exact } from "./api.js";
import { copy, h } from "./dom.js";
import { bytes, cut } from "./format.js";

/**
 * Structured data is a map, raw data is base64.
 * @typedef {string | Record<string, unknown> | null | undefined} Data
 * @typedef {{ position?: string, operation?: string, metadata?: Record<string, string>, key?: Data,
 *   payload?: { before?: Data, after?: Data } | null }} RecordJson
 */

/** Maximum number of characters of one part on the page; all of it can be copied. */
const SHOWN = 64 << 10;

/** @param {string} base64 @returns {string | null} the text in it; `null` if it is not text */
function asText(base64) {
  try {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** @param {string} text */
function asBase64(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/**
 * @param {Data} data
 * @returns {{ form: "none" | "structured" | "text" | "bytes", text: string }}
 */
function readable(data) {
  if (data === null || data === undefined) return { form: "none", text: "" };
  if (typeof data !== "string") return { form: "structured", text: JSON.stringify(data, null, 2) };
  const text = asText(data);
  // Control characters are not text.
  return text === null || /[\0-\x08\x0e-\x1f]/.test(text) ? { form: "bytes", text: data } : { form: "text", text };
}

/** @param {Data} data */
function inLine(data) {
  if (data === null || data === undefined) return "";
  const { form, text } = typeof data === "string" ? readable(data.slice(0, 400)) : { form: "structured", text: JSON.stringify(data) };
  return form === "bytes" ? `${bytes(((/** @type {string} */ (data)).length * 3) / 4)} of bytes` : cut(text.replace(/\s+/g, " ").trim(), 300);
}

/** @param {RecordJson} record @returns {string} its key and data in one line */
export function summary(record) {
  const key = inLine(record.key);
  const data = inLine(record.payload?.after ?? record.payload?.before);
  return [key && `${cut(key, 60)} →`, data || "no data"].filter(Boolean).join(" ");
}

/**
 * All parts of a record.
 * @param {RecordJson} record
 */
export function recordView(record) {
  const view = h("div", { class: "record" });
  /** @param {string} name @param {Data} data */
  const part = (name, data) => {
    const { form, text } = readable(data);
    if (form === "none") return;
    const kinds = { structured: "structured", text: "raw, text", bytes: "raw, base64", none: "" };
    view.append(h("h4", {}, name, " ", h("small", {}, kinds[form])),
      h("pre", { tabindex: 0, role: "group", "aria-label": name }, text.slice(0, SHOWN)));
    if (text.length > SHOWN) view.append(h("p", { class: "hint" }, `${bytes(text.length - SHOWN)} more are not shown. Copy has all of it.`));
  };
  part("payload.after", record.payload?.after);
  part("payload.before", record.payload?.before);
  part("key", record.key);
  const metadata = Object.entries(record.metadata ?? {});
  if (metadata.length) {
    view.append(h("h4", {}, "metadata"), h("table", { class: "pairs" }, h("tbody", {}, ...metadata.map(([name, value]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, cut(String(value), 4000)))))));
  }
  part("position", record.position);
  const button = h("button", { type: "button", class: "small", click: () => copy(button, JSON.stringify(record, null, 2)) }, "Copy as JSON");
  view.prepend(h("p", { class: "record-head" }, h("span", { class: "tag" }, record.operation ?? "record"), button));
  return view;
}

/**
 * Input fields for editing a record. Raw text is edited as text.
 * @param {RecordJson} record
 * @returns {{ element: HTMLElement, read: () => RecordJson }} `read` throws if a field is not valid
 */
export function recordEditor(record) {
  const element = h("div", { class: "editor" });
  /** @param {string} name @param {Data} data */
  const field = (name, data) => {
    const { form, text } = readable(data);
    const hints = { structured: "JSON", text: "text", bytes: "base64", none: "empty: there is none" };
    const area = h("textarea", { rows: Math.min(14, Math.max(2, text.split("\n").length + 1)), spellcheck: "false", autocapitalize: "off" });
    area.value = text;
    element.append(h("label", {}, h("span", {}, name, " ", h("small", {}, hints[form])), area));
    return () => {
      if (form === "none" && !area.value.trim()) return null;
      if (form === "text") return asBase64(area.value);
      if (form === "bytes") return area.value.trim();
      try {
        const value = exact(area.value);
        if (typeof value === "object" && !Array.isArray(value)) return value;
      } catch (error) {
        throw new Error(`${name} is not JSON: ${error instanceof Error ? error.message : error}`);
      }
      throw new Error(`${name} must be a JSON object`);
    };
  };
  const after = field("payload.after", record.payload?.after);
  const before = record.payload?.before ? field("payload.before", record.payload.before) : () => null;
  const key = field("key", record.key);
  const metadata = field("metadata", record.metadata ?? {});
  return {
    element,
    read: () => ({ ...record, key: key(), metadata: metadata() ?? {}, payload: { before: before(), after: after() } }),
  };
}
