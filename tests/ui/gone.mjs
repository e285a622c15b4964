// A service that requires a token, stops, and starts again: the page asks for the token, reports the outage, and reconnects.
import { strict as assert } from "node:assert";
import { at, browse } from "./browser.mjs";

const [, , , , token] = process.argv;

/** A line for the test, and its answer. */
async function told(line) {
  console.log(line);
  await new Promise((resolve) => process.stdin.once("data", resolve));
}

await browse({}, async (page) => {
  await page.goto(at("/"));
  const field = page.locator("input[type=password]");
  await field.fill("wrong");
  await page.keyboard.press("Enter");
  await page.getByText("token is not correct").waitFor();
  await field.fill(token);
  await page.keyboard.press("Enter");
  await page.locator(".pipelines tbody tr").first().waitFor();
  assert.ok(!page.url().includes(token));
  await page.reload();
  await page.locator(".pipelines tbody tr").first().waitFor();

  await told("stop");
  await page.getByRole("alert").filter({ hasText: "cannot be reached" }).waitFor();
  assert.equal(await page.locator("body.lost").count(), 1);
  await told("start");
  const back = page.locator("body:not(.lost)").waitFor();
  // The page may have tried by itself meanwhile: then the button is gone.
  await Promise.race([page.getByRole("button", { name: "Retry now" }).click().catch(() => {}), back]);
  await back;
  await page.locator(".pipelines tbody tr").first().waitFor();
}, /401|Unauthorized|ERR_/);
process.exit(0);
