// Names, settings, records and errors that are markup are shown as text, and nothing in them runs.
import { strict as assert } from "node:assert";
import { at, browse } from "./browser.mjs";

const MARKUP = '<img src=x onerror=alert(1)>';

await browse({}, async (page) => {
  const shown = async (selector, what) => {
    await page.locator(selector, { hasText: MARKUP }).first().waitFor();
    assert.doesNotMatch(await page.locator("html").innerHTML(), /[\u202a-\u202e\u2066-\u2069]/, `${what}: the direction is turned`);
    assert.equal(await page.locator("img, iframe, object, body script").count(), 0, what);
  };
  await page.goto(at("/"));
  await shown(".pipelines tbody", "the name of a pipeline");
  await page.goto(at("/pipelines/hostile"));
  await page.locator(".figure .condition", { hasText: "<img src=x" }).waitFor();
  await shown(".about", "the description");
  assert.match(await page.locator(".about").innerText(), /invoice‹U\+202E›txt\.exe‹U\+2066›/);
  await page.locator(".figure .node", { hasText: "tag" }).click();
  await shown(".panel", "a setting");
  await page.goto(at("/pipelines/hostile/dead-letters"));
  await shown(".letters .why", "the message of a letter");
  await page.locator(".letters a").first().click();
  await shown(".letter-detail .record", "the record of a letter");
  await page.goto(at("/pipelines/hostile/dead-letters/1000000000000000000000"));
  await page.locator(".letter-detail", { hasText: "Dead letter 1000000000000000000000 does not exist." }).waitFor();
  // The numbers of letters of a queue that is in use for long.
  await page.route(/dead-letters\?/, async (route) => {
    const answer = await route.fetch();
    const list = await answer.json();
    list.letters.forEach((letter, i) => { letter.number = 1234567890 - i; });
    await route.fulfill({ response: answer, json: list });
  });
  for (const width of [1360, 800]) {
    await page.setViewportSize({ width, height: 860 });
    await page.goto(at("/pipelines/hostile/dead-letters"));
    await page.reload();
    const number = page.locator(".letters tbody th a").first();
    await number.waitFor();
    assert.match(await number.innerText(), /^#\d{10}$/);
    assert.equal(await number.evaluate((link) => link.getClientRects().length), 1, `a number is one line at ${width}`);
  }
  await page.unroute(/dead-letters\?/);
  await page.goto(at("/pipelines/hostile/plan"));
  await shown(".plan", "the plan");
  await page.goto(at(`/pipelines/${encodeURIComponent(MARKUP)}`));
  await shown(".pipeline", "an id in the address");
}, /404/);
