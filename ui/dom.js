// Creates elements from names, attributes and texts. Text is always set as text and never interpreted as markup.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/**
 * A text whose bidirectional control characters are replaced by their numbers. With these characters,
 * a name can look like another one.
 * @param {string} text
 */
export function upright(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase()}›`);
}

/** Attributes whose text a person or a screen reader reads. */
const READ = new Set(["title", "aria-label", "placeholder", "alt"]);

/**
 * @param {Element} element
 * @param {Attributes} attributes functions are listeners; `null`, `undefined` and `false` are left out
 * @param {Child[]} children
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) mark(element, name, String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : upright(String(child)));
    }
  }
}

/**
 * An element of the page.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/**
 * An element of a drawing.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

/**
 * Sets a text if it differs: an unchanged text costs no layout.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  const shown = upright(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/**
 * Sets an attribute if it differs; `null` removes it.
 * @param {Element} element
 * @param {string} name
 * @param {string | null} value
 */
export function mark(element, name, value) {
  const shown = value !== null && READ.has(name) ? upright(value) : value;
  if (element.getAttribute(name) === shown) return;
  if (shown === null) element.removeAttribute(name);
  else element.setAttribute(name, shown);
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {boolean} on
 */
export function flag(element, name, on) {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

/**
 * Keeps one child per item, in the order of the items. Creates only new children, and moves only those that moved.
 * @template I
 * @template {{ element: Element }} R
 */
export class Rows {
  /** @type {Map<string, R>} */
  #rows = new Map();

  /**
   * @param {Element} parent
   * @param {(item: I) => string} key
   * @param {(item: I) => R} make
   * @param {(row: R, item: I) => void} update
   */
  constructor(parent, key, make, update) {
    this.parent = parent;
    this.key = key;
    this.make = make;
    this.update = update;
  }

  /** @param {I[]} items */
  show(items) {
    const gone = new Set(this.#rows.keys());
    let at = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      let row = this.#rows.get(key);
      if (!row) this.#rows.set(key, (row = this.make(item)));
      gone.delete(key);
      this.update(row, item);
      if (row.element === at) at = at.nextElementSibling;
      else this.parent.insertBefore(row.element, at);
    }
    for (const key of gone) {
      this.#rows.get(key)?.element.remove();
      this.#rows.delete(key);
    }
  }
}

let ids = 0;

/** Returns an id that is unique on the page. */
export function uniqueId() {
  ids += 1;
  return `x${ids}`;
}

/**
 * Copies a text, and says so on the button that was pressed.
 * @param {HTMLButtonElement} button
 * @param {string} text
 */
export async function copy(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    say(button, "Copied");
  } catch {
    // Without TLS browsers give no clipboard to pages of other machines.
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    button.after(area);
    area.select();
    say(button, document.execCommand("copy") ? "Copied" : "The browser does not allow it");
    area.remove();
    button.focus();
  }
  setTimeout(() => say(button, before ?? ""), 1500);
}
