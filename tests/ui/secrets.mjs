// Everything that the page shows of pipelines with credentials, and none of them: TOKEN, then what must be nowhere.
import { strict as assert } from "node:assert";
import { at, browse } from "./browser.mjs";

const [token, ...hidden] = process.argv.slice(4);

await browse({}, async (page) => {
  const look = async (where) => {
    const shown = await page.content();
    for (const each of hidden) assert.ok(!shown.includes(each), `${where} shows ${each}`);
  };
  await page.goto(at("/"));
  await page.getByRole("dialog").getByLabel("Token").fill(token ?? "");
  await page.keyboard.press("Enter");
  await page.locator(".pipelines tbody tr").first().waitFor();
  await look("the list");
  const ids = await page.locator(".pipelines tbody th a").allInnerTexts();
  assert.ok(ids.length > 4, ids.join());
  for (const id of ids) {
    for (const [tab, ready] of [["", ".title-line .chip"], ["/dead-letters", ".letters-page .hint"], ["/positions", "[aria-label=Positions]"], ["/plan", ".plan"]]) {
      await page.goto(at(`/pipelines/${id}${tab}`));
      await page.locator(ready ?? "body").first().waitFor({ state: "attached" });
      await page.waitForLoadState("networkidle", { timeout: 2000 }).catch(() => {});
      await look(`${id}${tab}`);
    }
  }
  for (const node of ["in", "hook", "ask", "out"]) {
    await page.goto(at(`/pipelines/hooks/nodes/${node}`));
    await page.locator(".panel h2", { hasText: node }).waitFor();
    await look(node);
  }
  await page.goto(at("/pipelines/hooks/nodes/hook"));
  await page.locator(".panel .trouble", { hasText: "422" }).waitFor();
  await page.getByLabel("before").check();
  await page.locator(".records li").first().waitFor();
  await look("a step that fails");
  await page.goto(at("/pipelines/hooks/dead-letters/1"));
  await page.getByRole("heading", { name: /^Dead letter #/ }).waitFor();
  await look("a letter");
}, /40\d|412|50\d/);
