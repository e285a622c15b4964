// What somebody does with a pipeline: sees it work, looks into a step, finds a record that failed, mends it, replays it,
// stops the pipeline and starts it again.
import { strict as assert } from "node:assert";
import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { accessible, at, browse, directory, until } from "./browser.mjs";

const input = join(directory, "in.ndjson");
const output = () => readFileSync(join(directory, "out.ndjson"), "utf8");
let written = 0;
const feed = setInterval(() => appendFileSync(input, `{"order":${(written += 1)},"amount":12345678901234567890}\n`), 40);

try {
  await browse({}, async (page) => {
    const text = async (selector) => (await page.locator(selector).first().textContent()) ?? "";
    const number = async (selector) => Number((await text(selector)).replace(/[^\d.]/g, ""));

    await page.goto(service());
    await page.locator(".pipelines tbody tr").first().waitFor();
    await until("a rate", async () => (await number(".pipelines td:nth-child(3) span")) > 0);
    await accessible(page, "pipelines");

    await page.getByRole("link", { name: "orders" }).click();
    await page.locator(".figure .node").first().waitFor();
    const before = await number(".tile:first-child small");
    await until("numbers that move", async () => (await number(".tile:first-child small")) > before);
    await until("a rate on an edge", async () => /\d\/s/.test(await text(".figure .flow.cut text")) && !/^0/.test(await text(".figure .flow.cut text")));
    await until("a hit rate", async () => /%/.test(await text('.figure .node:has-text("large") .live')));

    await page.locator('.figure .node:has-text("decode")').click();
    assert.ok(page.url().endsWith("/nodes/decode"), page.url());
    await page.locator(".panel", { hasText: "field" }).waitFor();
    assert.match(await text(".panel"), /\.Payload\.After/);
    await page.locator(".records li").first().waitFor();
    await page.locator(".records summary").first().click();
    assert.match(await text(".records .record"), /12345678901234567890/, "no digit of a number is lost");
    await accessible(page, "a node");

    appendFileSync(input, '{"order": "bad", "amount": 9007199254740993 ]\n');
    await page.locator('.figure .node.failing:has-text("decode")').waitFor();
    await until("the last error", async () => /Last error/.test(await text(".panel .trouble")));

    await page.getByRole("link", { name: /Dead letters/ }).click();
    await page.getByRole("link", { name: "#", exact: false }).first().click();
    await page.getByRole("heading", { name: /^Dead letter #/ }).waitFor();
    assert.match(await text(".letter-detail"), /decode/);
    await accessible(page, "a dead letter");
    await page.setViewportSize({ width: 320, height: 640 });
    await page.locator(".letters").waitFor({ state: "hidden" });
    await accessible(page, "a dead letter on a narrow screen");
    await page.getByRole("link", { name: "Close the dead letter" }).click();
    await page.locator(".letters").waitFor();
    await page.getByRole("link", { name: "#", exact: false }).first().click();
    await page.setViewportSize({ width: 1360, height: 860 });
    await page.getByRole("button", { name: "Edit and replay" }).click();
    const field = page.getByRole("dialog").getByLabel("payload.after");
    assert.equal(await field.inputValue(), '{"order": "bad", "amount": 9007199254740993 ]');
    await field.fill('{"order": "mended", "amount": 9007199254740993}');
    await accessible(page, "the editor");
    await page.getByRole("button", { name: "Replay", exact: true }).click();
    await page.getByText("1 dead letter delivered").waitFor();
    await page.getByRole("heading", { name: "No dead letters" }).waitFor();
    await until("the record", async () => output().includes("mended"));
    assert.match(output(), /"amount":9007199254740993[,}]/);

    await page.getByRole("button", { name: "Stop" }).first().click();
    await accessible(page, "the question");
    await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
    await page.locator('.title-line .chip[data-word="stopped"]').waitFor();
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.locator('.title-line .chip:is([data-word="running"], [data-word="idle"])').waitFor();
    await page.getByRole("link", { name: "Graph" }).click();
    await until("numbers of the new run", async () => (await number(".tile:first-child small")) > 0);
  });
} finally {
  clearInterval(feed);
}

function service() {
  return at("/");
}
