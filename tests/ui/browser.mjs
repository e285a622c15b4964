// A browser with the page of a service in it. Whatever the page does wrong on the way fails the script.
import { strict as assert } from "node:assert";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const axe = createRequire(import.meta.url).resolve("axe-core/axe.min.js");

/** The service, as the test that started it says. */
export const [service, directory] = process.argv.slice(2);

/** Longest time anything may take on a slow and busy machine. */
const PATIENCE = 120_000;

/**
 * @param {import("playwright-core").BrowserContextOptions} options
 * @param {(page: import("playwright-core").Page) => Promise<void>} use
 * @param {RegExp} [expected] messages of the browser that the script provokes
 */
export async function browse(options, use, expected = /$^/) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
  });
  const wrong = [];
  try {
    const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    page.on("pageerror", (error) => wrong.push(error.stack ?? String(error)));
    page.on("console", (message) => {
      if (message.type() === "error" && !expected.test(message.text())) wrong.push(`${message.text()} ${message.location().url}`);
    });
    page.on("dialog", (dialog) => {
      wrong.push(`the page opened ${dialog.type()}: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("request", (request) => {
      if (new URL(request.url()).host !== new URL(service).host) wrong.push(`the page asked for ${request.url()}`);
    });
    await use(page);
  } catch (error) {
    for (const page of browser.contexts().flatMap((context) => context.pages())) {
      console.error(await page.locator("body").innerText({ timeout: 5000 }).catch(() => "(no page)"));
      if (process.env.SCREENSHOT) await page.screenshot({ path: process.env.SCREENSHOT }).catch(() => {});
    }
    throw error;
  } finally {
    await browser.close();
  }
  assert.deepEqual(wrong, []);
}

/** @param {string} path after the number sign */
export const at = (path) => `${service}/#${path}`;

/**
 * Waits until something holds.
 * @param {string} what
 * @param {() => Promise<boolean>} holds
 */
export async function until(what, holds) {
  const end = Date.now() + PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < end, `waited too long for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Fails unless everybody can use what is shown. @param {import("playwright-core").Page} page @param {string} where */
export async function accessible(page, where) {
  // Our policy lets nothing be put into the page but by the tools of the browser.
  if (!(await page.evaluate(() => "axe" in window))) {
    const { readFileSync } = await import("node:fs");
    await page.evaluate(`${readFileSync(axe, "utf8")};`);
  }
  const { violations } = await page.evaluate(() => /** @type {any} */ (window).axe.run(document, { resultTypes: ["violations"] }));
  const told = violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("; ")}`);
  assert.deepEqual(told, [], where);
}
