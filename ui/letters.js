// Dead letters: failed records with the reason. The user can read, edit, replay or delete them.

import { ApiError, exact, get, getText, isExact, of, post, text } from "./api.js";
import { question, tell } from "./dialog.js";
import { Rows, flag, h, mark, say, uniqueId } from "./dom.js";
import { bytes, count, cut, moment, plural } from "./format.js";
import { recordEditor, recordView } from "./record.js";

/**
 * @typedef {{ number: number, at: string, node: string, connector?: string, error: { code?: string, message: string },
 *   attempts?: number, bytes?: number, record?: import("./record.js").RecordJson }} Letter
 * @typedef {{ replayed: number, delivered: number, failedAgain: number,
 *   failures?: { number: number, error: string | { message: string } }[] }} Replayed
 */

const PAGE = 50;

export class Letters {
  #limit = PAGE;
  /** @type {Set<number>} */
  #chosen = new Set();
  /** @type {Letter[]} */
  #letters = [];
  /** @type {number | null} */
  #open = null;
  #known = -1;
  #loading = false;
  #whole = 0;
  #where = "";

  /**
   * @param {string} pipeline
   * @param {(count: number) => void} counted receives the number of dead letters
   */
  constructor(pipeline, counted) {
    this.pipeline = pipeline;
    this.counted = counted;
    this.home = `#/pipelines/${encodeURIComponent(pipeline)}/dead-letters`;
    this.where = h("input", { type: "text", placeholder: '{{ eq .Metadata.kind "a" }}', spellcheck: "false", autocapitalize: "off", "aria-label": "Only dead letters whose record matches this condition" });
    this.replay = h("button", { type: "button", click: () => this.#replay() }, "Replay …");
    this.purge = h("button", { type: "button", click: () => this.#purge() }, "Delete …");
    this.more = h("button", { type: "button", click: () => { this.#limit += PAGE; this.load(); } }, "Show more");
    this.info = h("p", { class: "hint", role: "status" });
    this.lost = h("p", { class: "trouble", role: "status", hidden: true });
    this.all = h("input", { type: "checkbox", "aria-label": "Select all dead letters that are shown", change: () => {
      this.#chosen = new Set(this.all.checked ? this.#letters.map(({ number }) => number) : []);
      this.#draw();
    } });
    const body = h("tbody", {});
    this.table = h("table", { class: "list letters" }, h("caption", { class: "offscreen" }, "Dead letters, newest first"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "tick" }, this.all), ...["Dead letter", "Failed", "Step", "Error"].map((name) => h("th", { scope: "col" }, name)), h("th", { scope: "col", class: "number" }, "Size"))), body);
    this.rows = new Rows(body, (/** @type {Letter} */ letter) => String(letter.number), (letter) => this.#row(letter), (row, letter) => {
      row.tick.checked = this.#chosen.has(letter.number);
      flag(row.element, "chosen", letter.number === this.#open);
    });
    this.empty = h("div", { class: "empty", hidden: true });
    this.detail = h("div", { class: "letter-detail" });
    this.element = h("section", { class: "page letters-page", "aria-label": "Dead letters" },
      h("form", { class: "bar", submit: (event) => { event.preventDefault(); this.#where = this.where.value.trim(); this.#limit = PAGE; this.load(); } },
        this.where, h("button", { type: "submit" }, "Filter"), h("span", { class: "gap" }), this.replay, this.purge),
      this.info, this.lost, h("div", { class: "split" }, h("div", {}, this.table, this.empty, this.more), this.detail));
    this.load();
  }

  /** @param {number} failed number of dead letters that the run wrote: when it changes, there are new ones */
  update(failed) {
    if (this.#known >= 0 && failed !== this.#known) this.load();
    this.#known = failed;
  }

  async load() {
    if (this.#loading) return;
    this.#loading = true;
    try {
      const { letters, count: whole, bytes: size, oldest, evicted, unjudged } = await get(of(this.pipeline, "/dead-letters", { limit: this.#limit, where: this.#where }));
      this.#letters = letters;
      this.#whole = whole;
      const here = new Set(this.#letters.map(({ number }) => number));
      for (const number of this.#chosen) if (!here.has(number)) this.#chosen.delete(number);
      this.counted(whole);
      say(this.info, whole ? `${plural(whole, "dead letter")}, ${bytes(size)}${oldest ? `, the oldest from ${moment(oldest)}` : ""}` : "");
      this.lost.hidden = !evicted;
      say(this.lost, evicted ? `The bounds of the queue removed ${plural(evicted, "dead letter")}: their records are lost.` : "");
      this.empty.replaceChildren(...(this.#where
        ? [h("h2", {}, "No matching dead letters"), h("p", {}, unjudged ? `The condition fails for ${plural(unjudged.count, "dead letter")}: ${unjudged.error.message}` : "The condition matches none of them.")]
        : [h("h2", {}, "No dead letters"), h("p", {}, "Failed records are kept here, with their errors, if the pipeline has this dead-letter queue: "), h("pre", {}, "dead-letter-queue:\n  plugin: store\n  window-size: 0")]));
    } catch (error) {
      this.#letters = [];
      say(this.info, "");
      this.empty.replaceChildren(h("h2", {}, "Dead letters cannot be shown"), h("p", {}, text(error)));
    } finally {
      this.#loading = false;
      this.#draw();
    }
  }

  /** @param {string | null} asked the number in the address: this dead letter is shown in full */
  async open(asked) {
    const number = asked !== null && /^\d+$/.test(asked) && Number.isSafeInteger(Number(asked)) ? Number(asked) : null;
    this.#open = number;
    this.#draw();
    if (number === null) {
      this.detail.replaceChildren(...(asked === null ? []
        : [h("aside", { class: "panel", "aria-label": "Dead letter" }, h("p", {}, `Dead letter ${cut(asked, 40)} does not exist.`))]));
      return;
    }
    try {
      const letter = exact(await getText(of(this.pipeline, `/dead-letters/${number}`)));
      if (this.#open === number) this.detail.replaceChildren(this.#letter(letter));
    } catch (error) {
      if (this.#open !== number) return;
      const gone = error instanceof ApiError && error.status === 404;
      this.detail.replaceChildren(h("aside", { class: "panel", "aria-label": "Dead letter" }, h("p", {}, gone ? `Dead letter ${number} does not exist.` : text(error))));
    }
  }

  #draw() {
    this.rows.show(this.#letters);
    const some = this.#letters.length > 0;
    mark(this.table, "hidden", some ? null : "");
    mark(this.empty, "hidden", some ? "" : null);
    mark(this.more, "hidden", this.#letters.length >= this.#limit ? null : "");
    this.all.checked = some && this.#letters.every(({ number }) => this.#chosen.has(number));
    const which = this.#chosen.size ? count(this.#chosen.size) : "all";
    for (const [button, word] of /** @type {[HTMLButtonElement, string][]} */ ([[this.replay, "Replay"], [this.purge, "Delete"]])) {
      say(button, `${word} ${which} …`);
      button.disabled = !some;
    }
  }

  /** @param {Letter} letter */
  #row(letter) {
    const { number, at, node, error, bytes: size } = letter;
    const tick = h("input", { type: "checkbox", "aria-label": `Select dead letter ${number}`, change: () => {
      if (tick.checked) this.#chosen.add(number);
      else this.#chosen.delete(number);
      this.#draw();
    } });
    const element = h("tr", {}, h("td", { class: "tick" }, tick),
      h("th", { scope: "row" }, h("a", { href: `${this.home}/${number}` }, `#${number}`)),
      h("td", { "data-label": "Failed" }, moment(at)), h("td", { "data-label": "Step" }, node),
      h("td", { "data-label": "Error", class: "why" }, error.message), h("td", { "data-label": "Size", class: "number" }, bytes(size)));
    return { element, tick };
  }

  /** @param {Letter} letter */
  #letter(letter) {
    const { number, at, node, connector, error, attempts, record } = letter;
    const pairs = [["failed", moment(at)], ["step", node], ["source", connector], ["code", error.code], ["attempts", attempts]];
    const replay = h("button", { type: "button", class: "main", click: () => this.#replay([number]) }, "Replay …");
    const edit = h("button", { type: "button", click: () => record && this.#edit(letter, record) }, "Edit and replay …");
    const purge = h("button", { type: "button", click: () => this.#purge([number]) }, "Delete …");
    // The numbers of an edited record must not change.
    edit.disabled = !record || !isExact;
    if (!isExact) edit.title = "This browser rounds large numbers: use another browser or `anabranch dlq`";
    return h("aside", { class: "panel", "aria-label": `Dead letter ${number}`, keydown: (event) => { if (event.key === "Escape") location.hash = this.home; } },
      h("header", {}, h("h2", { tabindex: -1 }, `Dead letter #${number}`), h("a", { class: "button close", href: this.home, "aria-label": "Close the dead letter" }, "×")),
      h("div", { class: "trouble" }, h("p", {}, error.message)),
      h("div", { class: "buttons start" }, replay, edit, purge),
      h("table", { class: "pairs" }, h("tbody", {}, ...pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) =>
        h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
      h("h3", {}, "The record when it failed"), record ? recordView(record) : h("p", { class: "hint" }, "The record was not stored."));
  }

  /** @param {number[]} [numbers] one dead letter; default: the selected ones, otherwise all */
  #which(numbers) {
    if (numbers) return { numbers };
    return this.#chosen.size ? { numbers: [...this.#chosen] } : { all: true };
  }

  /** @param {number[]} [numbers] */
  async #replay(numbers) {
    const which = this.#which(numbers);
    const many = which.numbers?.length ?? this.#whole;
    const { element, from } = choiceOfStart();
    const answer = await question(`Replay ${plural(many, "dead letter")}?`, [
      h("p", {}, "The pipeline is stopped during the replay. Delivered records leave the queue; records that fail again stay in it."), element,
    ], [{ label: "Replay", value: "replay", kind: "main" }]);
    if (answer) await this.#send({ ...which, from: from() });
  }

  /** @param {Letter} letter @param {import("./record.js").RecordJson} record */
  async #edit(letter, record) {
    const editor = recordEditor(record);
    const { element, from } = choiceOfStart();
    /** @type {import("./record.js").RecordJson | undefined} */
    let edited;
    const answer = await question(`Edit dead letter #${letter.number}`, [editor.element, element],
      [{ label: "Replay", value: "replay", kind: "main" }], { wide: true, check: () => {
        try {
          edited = editor.read();
          return null;
        } catch (error) {
          return text(error);
        }
      } });
    if (answer) await this.#send({ numbers: [letter.number], from: from(), record: edited });
  }

  /** @param {unknown} order */
  async #send(order) {
    try {
      /** @type {Replayed} */
      const { replayed, delivered, failedAgain, failures = [] } = await post(of(this.pipeline, "/dead-letters/replay"), order);
      const first = failures[0];
      const why = first ? `: #${first.number}: ${typeof first.error === "string" ? first.error : first.error.message}` : "";
      if (failedAgain) tell(`${count(failedAgain)} of ${plural(replayed, "dead letter")} failed again${why}`, "bad");
      else if (first) tell(`${count(delivered)} delivered; some could not be replayed${why}`, "bad");
      else tell(`${plural(delivered, "dead letter")} delivered.`);
    } catch (error) {
      tell(`Not replayed: ${text(error)}`, "bad");
    }
    await this.#after();
  }

  /** @param {number[]} [numbers] */
  async #purge(numbers) {
    const which = this.#which(numbers);
    const many = which.numbers?.length ?? this.#whole;
    const answer = await question(`Delete ${plural(many, "dead letter")}?`, [h("p", {}, "Their records are lost. You cannot undo this.")],
      [{ label: "Delete", value: "delete", kind: "danger" }]);
    if (!answer) return;
    try {
      const { purged } = await post(of(this.pipeline, "/dead-letters/purge"), which);
      tell(`${plural(purged, "dead letter")} deleted.`);
    } catch (error) {
      tell(`Not deleted: ${text(error)}`, "bad");
    }
    await this.#after();
  }

  async #after() {
    this.#chosen.clear();
    await this.load();
    // A dead letter that left the queue is not shown.
    if (this.#open !== null && !this.#letters.some(({ number }) => number === this.#open)) location.hash = this.home;
  }
}

/** The selection of the node at which a replayed record enters the pipeline. */
function choiceOfStart() {
  const name = uniqueId();
  const [step, start] = ["step", "start"].map((value) => h("input", { type: "radio", name, value, checked: value === "step" }));
  const element = h("fieldset", { class: "choices" }, h("legend", {}, "Replay from"),
    h("label", {}, step, h("span", {}, "the step that failed", h("small", {}, "with the record as it entered the step"))),
    h("label", {}, start, h("span", {}, "the start of the pipeline", h("small", {}, "through all steps, like a new record"))));
  return { element, from: () => (start?.checked ? "start" : "step") };
}
