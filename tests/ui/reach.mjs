// The page with the keyboard alone, on the narrowest screen, by day and by night, and for everybody.
import { strict as assert } from "node:assert";
import { accessible, at, browse } from "./browser.mjs";

const VIEWS = [
  ["/", ".pipelines tbody tr"],
  ["/pipelines/orders", ".figure .node"],
  ["/pipelines/orders/nodes/decode", ".panel h2"],
  ["/pipelines/orders/dead-letters", ".letters-page .empty h2, .letters a"],
  ["/pipelines/orders/positions", "[aria-label=Positions]"],
  ["/pipelines/orders/plan", ".plan:not(:empty)"],
  ["/pipelines/nothing", ".empty h1"],
];

for (const colorScheme of /** @type {const} */ (["light", "dark"])) {
  await browse({ colorScheme }, async (page) => {
    const colours = new Set();
    for (const [path, ready] of VIEWS) {
      await page.goto(at(path));
      await page.locator(ready).first().waitFor();
      for (const width of [1360, 768, 320]) {
        await page.setViewportSize({ width, height: 800 });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert.ok(wide <= width, `${path}: ${wide} pixels on a screen of ${width}`);
        await accessible(page, `${path}, ${colorScheme}, ${width}`);
      }
      colours.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    }
    // The system's choice, until the user chooses.
    const [system] = [...colours];
    assert.equal(colours.size, 1);
    const button = page.getByRole("button", { name: "Theme" });
    const other = colorScheme === "light" ? "dark" : "light";
    while (!(await button.innerText()).includes(other)) await button.click();
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), system);
    await page.reload();
    assert.match(await button.innerText(), new RegExp(other), "it is kept");
  }, /404/);
}

await browse({ reducedMotion: "reduce" }, async (page) => {
  const press = (key) => page.keyboard.press(key);
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim() ?? "");
  /** Goes on by Tab until something is reached. */
  const reach = async (wanted, key = "Tab") => {
    const passed = [];
    for (let i = 0; i < 60; i += 1) {
      const here = await focused();
      if (wanted.test(here)) return;
      passed.push(here.slice(0, 40));
      await press(key);
    }
    assert.fail(`${wanted} is not reached: ${passed.join(" | ")}`);
  };
  await page.goto(at("/"));
  await page.locator(".pipelines tbody tr").first().waitFor();
  await reach(/^Skip/);
  await reach(/^orders$/);
  await press("Enter");
  await page.locator(".figure .node").first().waitFor();
  await reach(/^in\b.*source/s);
  await press("ArrowDown");
  assert.match(await focused(), /^decode/);
  await press("Enter");
  await page.locator(".panel").waitFor();
  assert.match(await focused(), /^decode$/, "the details have the focus");
  await press("Escape");
  await page.locator(".panel").waitFor({ state: "detached" });
  assert.match(await focused(), /^decode/, "and give it back");
  await reach(/^Stop/, "Shift+Tab");
  await press("Enter");
  await page.getByRole("dialog").waitFor();
  await press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.match(await focused(), /^Stop/);
});
