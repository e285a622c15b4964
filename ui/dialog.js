// Questions to the user, and short messages.

import { h, say, uniqueId } from "./dom.js";

/** @typedef {{ label: string, value: string, kind?: "main" | "danger" }} Choice */

/**
 * Asks in a modal dialog. Escape returns `null`.
 * @param {string} title
 * @param {import("./dom.js").Child[]} body
 * @param {Choice[]} choices Enter in a field selects the first
 * @param {{ wide?: boolean, check?: (choice: string) => string | null | Promise<string | null> }} [how] `check` returns
 *   the error in the input; then the dialog stays open
 * @returns {Promise<string | null>}
 */
export function question(title, body, choices, { wide = false, check } = {}) {
  return new Promise((resolve) => {
    const heading = uniqueId();
    const wrong = h("p", { class: "wrong", role: "alert" });
    const buttons = choices.map(({ label, value, kind }) =>
      h("button", { type: "submit", value, class: kind ?? "" }, label));
    const form = h("form", { method: "dialog", submit: (event) => submit(event) },
      h("h2", { id: heading }, title), ...body, wrong,
      h("div", { class: "buttons" }, ...buttons,
        h("button", { type: "button", click: () => box.close() }, "Cancel")));
    const box = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": heading }, form);
    const before = document.activeElement;
    /** @type {string | null} */
    let answer = null;

    /** @param {SubmitEvent} event */
    async function submit(event) {
      event.preventDefault();
      const choice = /** @type {HTMLButtonElement | null} */ (event.submitter)?.value ?? choices[0]?.value ?? "";
      buttons.forEach((button) => { button.disabled = true; });
      const found = await check?.(choice);
      buttons.forEach((button) => { button.disabled = false; });
      say(wrong, found ?? "");
      if (found) return;
      answer = choice;
      box.close();
    }

    box.addEventListener("close", () => {
      box.remove();
      if (before instanceof HTMLElement || before instanceof SVGElement) before.focus();
      resolve(answer);
    });
    document.body.append(box);
    box.showModal();
  });
}

/**
 * Requests the token of the service from the user until one is entered.
 * @param {boolean} refused `true` if the service rejected the previous token
 * @returns {Promise<string>}
 */
export async function askToken(refused) {
  const field = h("input", { type: "password", id: uniqueId(), autocomplete: "current-password", required: true, autofocus: true });
  for (;;) {
    const answer = await question("This service requires a token", [
      h("p", {}, refused ? "The token is not correct. " : "",
        "It is in the file of the setting ", h("code", {}, "api.http.token-file"), " or in the variable ",
        h("code", {}, "ANABRANCH_API_HTTP_TOKEN"), " of the service. This tab keeps it until you close the tab."),
      h("label", { for: field.id }, "Token"), field,
    ], [{ label: "Connect", value: "connect", kind: "main" }]);
    if (answer !== null && field.value.trim()) return field.value.trim();
  }
}

const said = h("div", { class: "said-all", role: "status", "aria-live": "polite" });

/**
 * Shows the result of an action for a while.
 * @param {string} text
 * @param {"good" | "bad"} [kind]
 */
export function tell(text, kind = "good") {
  if (!said.isConnected) document.body.append(said);
  const close = h("button", { type: "button", "aria-label": "Dismiss", click: () => line.remove() }, "×");
  const line = h("div", { class: `toast ${kind}` }, h("p", {}, text), close);
  said.append(line);
  // Errors stay until they are dismissed.
  if (kind === "good") setTimeout(() => line.remove(), 6000);
}
