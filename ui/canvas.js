// A drawing that can be scrolled, dragged with the mouse, and zoomed.

import { h } from "./dom.js";

const [SMALLEST, LARGEST] = [0.1, 3];
/** Minimum scale at which text is legible. A larger drawing is shown from its top. */
const [READABLE, HARDLY] = [0.95, 0.6];

export class Canvas {
  /** @type {SVGSVGElement | null} */
  #figure = null;
  #size = { width: 1, height: 1 };
  #scale = 1;
  #fitted = false;

  constructor() {
    this.room = h("div", { class: "canvas" });
    this.element = h("div", { class: "canvas-frame" }, this.room, h("div", { class: "zoom" },
      h("button", { type: "button", "aria-label": "Zoom in", click: () => this.zoom(1.25) }, "+"),
      h("button", { type: "button", "aria-label": "Zoom out", click: () => this.zoom(0.8) }, "−"),
      h("button", { type: "button", click: () => this.fit() }, "Fit")));
    this.room.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 200), event.clientX, event.clientY);
    }, { passive: false });
    this.#drag();
  }

  /** @param {SVGSVGElement} figure */
  show(figure) {
    const { width, height } = figure.viewBox.baseVal;
    this.#figure = figure;
    this.#size = { width, height };
    this.room.replaceChildren(figure);
    if (this.#fitted) this.#draw();
    else this.fit();
  }

  /** Fits a drawing that was created while the canvas was hidden. */
  fitOnce() {
    if (!this.#fitted) this.fit();
  }

  /** The largest scale that fits, but at least legible. */
  fit() {
    const { clientWidth, clientHeight } = this.room;
    if (!clientWidth || !clientHeight) return;
    this.#fitted = true;
    const whole = Math.min(clientWidth / this.#size.width, clientHeight / this.#size.height);
    const wide = clientWidth / this.#size.width;
    this.#scale = Math.min(1, Math.max(whole, Math.min(READABLE, wide)));
    if (this.#scale < HARDLY) this.#scale = HARDLY;
    this.#draw();
    this.room.scrollTo(Math.max(0, (this.#size.width * this.#scale - clientWidth) / 2), 0);
  }

  /**
   * @param {number} factor
   * @param {number} [x] the point of the window that keeps its position; default: the middle
   * @param {number} [y]
   */
  zoom(factor, x, y) {
    const box = this.room.getBoundingClientRect();
    const [dx, dy] = [(x ?? box.left + box.width / 2) - box.left, (y ?? box.top + box.height / 2) - box.top];
    const scale = Math.min(LARGEST, Math.max(SMALLEST, this.#scale * factor));
    const grown = scale / this.#scale;
    const { scrollLeft, scrollTop } = this.room;
    this.#scale = scale;
    this.#draw();
    this.room.scrollTo((scrollLeft + dx) * grown - dx, (scrollTop + dy) * grown - dy);
  }

  #draw() {
    this.#figure?.setAttribute("width", String(Math.round(this.#size.width * this.#scale)));
    this.#figure?.setAttribute("height", String(Math.round(this.#size.height * this.#scale)));
  }

  #drag() {
    const { room } = this;
    /** @type {{ id: number, x: number, y: number, left: number, top: number, moved: boolean } | null} */
    let held = null;
    room.addEventListener("pointerdown", (event) => {
      // Touch scrolls.
      if (event.button !== 0 || event.pointerType !== "mouse") return;
      held = { id: event.pointerId, x: event.clientX, y: event.clientY, left: room.scrollLeft, top: room.scrollTop, moved: false };
    });
    room.addEventListener("pointermove", (event) => {
      if (!held || held.id !== event.pointerId) return;
      const [x, y] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(x, y) < 4) return;
      if (!held.moved) room.setPointerCapture(event.pointerId);
      held.moved = true;
      room.classList.add("moving");
      room.scrollTo(held.left - x, held.top - y);
    });
    const release = () => {
      const moved = held?.moved;
      held = null;
      room.classList.remove("moving");
      // The end of a drag is not a click on the element below.
      if (moved) room.addEventListener("click", (event) => event.stopPropagation(), { capture: true, once: true });
      setTimeout(() => { held = null; });
    };
    room.addEventListener("pointerup", release);
    room.addEventListener("pointercancel", release);
  }
}
