// Names, settings, records and errors that are markup are shown as text, and nothing in them runs.
import { strict as assert } from "node:assert";
import { at, browse } from "./browser.mjs";

const MARKUP = '<img src=x onerror=alert(1)>';

await browse({}, async (page) => {
  const shown = async (selector, what) => {
    await page.locator(selector, { hasText: MARKUP }).first().waitFor();
    assert.equal(await page.locator("img, iframe, object, body script").count(), 0, what);
  };
  await page.goto(at("/"));
  await shown(".pipelines tbody", "the name of a pipeline");
  await page.goto(at("/pipelines/hostile"));
  await page.locator(".figure .condition", { hasText: "<img src=x" }).waitFor();
  await shown(".about", "the description");
  await page.locator(".figure .node", { hasText: "tag" }).click();
  await shown(".panel", "a setting");
  await page.goto(at("/pipelines/hostile/dead-letters"));
  await shown(".letters .why", "the message of a letter");
  await page.locator(".letters a").first().click();
  await shown(".letter-detail .record", "the record of a letter");
  await page.goto(at("/pipelines/hostile/plan"));
  await shown(".plan", "the plan");
  await page.goto(at(`/pipelines/${encodeURIComponent(MARKUP)}`));
  await shown(".pipeline", "an id in the address");
}, /404/);
