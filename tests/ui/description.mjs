// The description of the API, read and tried by somebody who has never seen it.
import { strict as assert } from "node:assert";
import { accessible, at, browse, service, until } from "./browser.mjs";

/** The service has a token, which the page is not told. */
const token = process.argv[4] ?? "";

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  await browse({ colorScheme }, async (page) => {
    await page.goto(at("/"));
    await page.getByRole("dialog").getByLabel("Token").fill(token);
    await page.keyboard.press("Enter");
    await page.locator(".pipelines tbody tr").first().waitFor();
    await page.getByRole("link", { name: "API" }).click();
    assert.equal(page.url(), `${service}/openapi/`);
    await page.getByText("/v1/pipelines/{id}/stop", { exact: true }).waitFor();

    // What is looked for, and nothing else.
    await page.getByLabel("Find").fill("get positions");
    await until("what was found", async () => (await page.locator("details.operation:visible").count()) === 1);
    await page.locator("details.operation:visible summary").click();
    const operation = page.locator("details.operation:visible");
    await operation.getByRole("button", { name: "Send" }).click();
    await operation.getByText("Not sent: id is required").waitFor();
    await operation.getByLabel("id").fill("orders");
    // The token of this tab is known already.
    await operation.getByRole("button", { name: "Send" }).click();
    await operation.getByText("200").first().waitFor();
    await operation.locator("pre", { hasText: '"positions"' }).waitFor();
    for (const width of [1360, 768, 320]) {
      await page.setViewportSize({ width, height: 800 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(wide <= width, `${wide} pixels on a screen of ${width}`);
      await accessible(page, `an operation, ${colorScheme}, ${width}`);
    }
    await page.setViewportSize({ width: 1360, height: 860 });

    // One with a body, found by a link, changes the service.
    await page.getByLabel("Find").fill("");
    await page.getByRole("navigation").getByRole("link", { name: "Stop a pipeline" }).click();
    const stop = page.locator("details.operation[open]", { hasText: "/v1/pipelines/{id}/stop" });
    await stop.getByLabel("id").fill("orders");
    await stop.getByLabel("Body").fill('{"force": false}');
    await stop.getByRole("button", { name: "Send" }).click();
    await stop.getByText("200").first().waitFor();
    // Once more, it is refused, and the page says how.
    await stop.getByRole("button", { name: "Send" }).click();
    await stop.locator("pre", { hasText: "pipeline.not_running" }).waitFor();

    // A schema that is opened leads on into what it is made of.
    await page.getByLabel("Find").fill("schema letterpage");
    const schema = page.locator("details.operation:visible").first();
    await schema.locator("summary").first().click();
    await schema.getByText("letters", { exact: true }).waitFor();
    await accessible(page, `schemas, ${colorScheme}`);
    await page.getByRole("link", { name: "Anabranch" }).click();
    await page.locator(".pipelines tbody tr").first().waitFor();
    await page.getByRole("link", { name: "orders" }).click();
    await page.getByRole("button", { name: "Start", exact: true }).click();
    await page.locator('.title-line .chip:is([data-word="running"], [data-word="idle"])').waitFor();
  }, /400|401|409|412/);
}
