// The frame of the page: navigation, state of the connection, and theme.

import { get, onToken } from "./api.js";
import { ClusterPage } from "./cluster.js";
import { askToken } from "./dialog.js";
import { flag, h, mark, s, say, upright } from "./dom.js";
import { clock, duration } from "./format.js";
import { Overview } from "./overview.js";
import { PipelinePage } from "./pipeline.js";
import { connection, poll, tryNow } from "./poll.js";

/**
 * The address of a view: `#/pipelines/ID/nodes/NODE?…`.
 * @typedef {{ parts: string[], query: URLSearchParams }} Place
 */

const THEME = "anabranch.theme";
const THEMES = ["auto", "light", "dark"];

/** @returns {Place} */
function place() {
  const [path = "", query = ""] = location.hash.replace(/^#/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: new URLSearchParams(query) };
}

// ---- theme -----------------------------------------------------------------------------------

function kept() {
  try {
    return localStorage.getItem(THEME) ?? "auto";
  } catch {
    return "auto";
  }
}

/** @param {string} theme */
function light(theme) {
  mark(document.documentElement, "data-theme", theme === "auto" ? null : theme);
  say(lightButton, `Theme: ${theme}`);
  try {
    localStorage.setItem(THEME, theme);
  } catch {
    // Without storage in the browser, the theme is kept until the page closes.
  }
}

const lightButton = h("button", { type: "button", class: "small quiet", click: () => {
  const now = document.documentElement.dataset.theme ?? "auto";
  light(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length] ?? "auto");
} });

// ---- the service -----------------------------------------------------------------------------

const lostText = h("span", {});
const lost = h("div", { class: "lost-banner", role: "alert", hidden: true }, lostText,
  h("button", { type: "button", class: "small", click: tryNow }, "Retry now"));
/** @type {ReturnType<typeof setInterval> | undefined} */
let countdown;

function showConnection() {
  const gone = connection.lost !== "";
  flag(document.body, "lost", gone);
  mark(lost, "hidden", gone ? null : "");
  clearInterval(countdown);
  if (!gone) return;
  const draw = () => {
    const left = Math.max(0, Math.ceil((connection.next - Date.now()) / 1000));
    const last = connection.answered ? ` The data is from ${clock(new Date(connection.answered).toISOString())}.` : "";
    // A screen reader announces only the first words, not each update.
    say(lostText, `${connection.lost.charAt(0).toUpperCase()}${connection.lost.slice(1)}.${last}`);
    mark(lost, "data-next", left > 0 ? `Next attempt in ${duration(left)}` : "Connecting …");
  };
  draw();
  countdown = setInterval(draw, 1000);
}

// ---- navigation ------------------------------------------------------------------------------

/** @typedef {Overview | PipelinePage | ClusterPage} View */
/** @type {{ key: string, view: View, stop: AbortController } | null} */
let current = null;

function go() {
  const here = place();
  const id = here.parts[0] === "pipelines" ? here.parts[1] : undefined;
  const isCluster = here.parts[0] === "cluster";
  const key = isCluster ? "/cluster" : id ?? "";
  if (!current || current.key !== key) {
    const first = !current;
    current?.stop.abort();
    current?.view.leave();
    const stop = new AbortController();
    const view = isCluster ? new ClusterPage() : id === undefined ? new Overview() : new PipelinePage(id);
    current = { key, view, stop };
    main.replaceChildren(view.element);
    view.show(here);
    document.title = upright(`${view.title} – Anabranch`);
    poll(view.path, (answer) => {
      view.update(answer);
      document.title = upright(`${view.title} – Anabranch`);
    }, (error) => view.refuse(error), stop.signal);
    // A screen reader starts at the heading; on the first view the browser does that itself.
    if (!first) view.heading.focus({ preventScroll: true });
    scrollTo(0, 0);
    return;
  }
  current.view.show(here);
}

const version = h("span", { class: "hint" });
const cluster = h("a", { class: "quiet-link", href: "#/cluster", hidden: true }, "Cluster");
const main = h("main", { id: "main", tabindex: -1 });
const logo = s("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
  s("path", { d: "M12 3v4C12 10 7 10 7 13v1c0 3 5 2 5 6v1M12 7c0 3 5 3 5 6v1c0 3-5 2-5 6" }));
document.body.replaceChildren(
  h("a", { class: "skip", href: "#main", click: (event) => { event.preventDefault(); main.focus(); } }, "Skip to the content"),
  h("header", { class: "top" }, h("a", { class: "brand", href: "#/" }, logo, "Anabranch"), version, h("span", { class: "gap" }),
    cluster, h("a", { class: "quiet-link", href: "/openapi/" }, "API"), lightButton),
  lost, main);
onToken(askToken);
light(THEMES.includes(kept()) ? kept() : "auto");
connection.addEventListener("change", showConnection);
addEventListener("hashchange", go);
go();
get("/info").then((info) => {
  say(version, info.version);
  mark(cluster, "hidden", info.cluster ? null : "");
}, () => {
  // This failure needs no message.
});
