// A hundred pipelines, then a graph of sixty nodes with a node opened in it, for ten seconds each: nothing keeps the main
// thread of the page for more than a tenth of a second. What counts is the time that the thread itself was given, so
// that other programs on the machine do not matter.
import { strict as assert } from "node:assert";
import { at, browse } from "./browser.mjs";

const [MOST, SECONDS] = [100, 10];
const CATEGORIES = ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline", "__metadata"];

/** @returns {{ name: string, milliseconds: number }[]} tasks of the main thread, longest first */
function tasks(trace) {
  const events = JSON.parse(trace.toString("utf8")).traceEvents;
  const main = new Set(events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain").map(({ pid, tid }) => `${pid} ${tid}`));
  return events
    .filter(({ name, ph, pid, tid, tdur }) => ph === "X" && tdur !== undefined && name.endsWith("RunTask") && main.has(`${pid} ${tid}`))
    .map(({ tdur }) => tdur / 1000)
    .sort((a, b) => b - a);
}

async function traced(page, what) {
  await page.context().browser().startTracing(page, { categories: CATEGORIES });
  const end = Date.now() + SECONDS * 1000;
  // Somebody scrolls and looks around meanwhile.
  for (let i = 0; Date.now() < end; i += 1) {
    await page.mouse.wheel(0, i % 2 ? -400 : 400);
    await page.waitForTimeout(250);
  }
  const found = tasks(await page.context().browser().stopTracing());
  assert.ok(found.length > 50, `${what}: the trace has only ${found.length} tasks`);
  console.log(`${what}: ${found.length} tasks in ${SECONDS} s, the longest ${found.slice(0, 3).map((ms) => ms.toFixed(1)).join(", ")} ms, together ${found.reduce((a, b) => a + b, 0).toFixed(0)} ms`);
  assert.ok(found[0] <= MOST, `${what}: a task took ${found[0]} ms`);
}

await browse({}, async (page) => {
  await page.goto(at("/"));
  await page.waitForFunction(() => document.querySelectorAll(".pipelines tbody tr").length >= 100);
  await traced(page, "100 pipelines");
  await page.goto(at("/pipelines/sixty/nodes/shared-5"));
  await page.waitForFunction(() => document.querySelectorAll(".figure .node").length > 60);
  await page.mouse.move(400, 600);
  await traced(page, "a graph of 60 nodes");
});
