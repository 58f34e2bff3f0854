// Loads the status page in Chromium, uses it, and prints its observations.
"use strict";
const fs = require("fs");
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);
const axe = fs.readFileSync(`${given.modules}/axe-core/axe.min.js`, "utf8");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const HEIGHT = 900;
const SHORT = given.fingerprint.slice(0, 8);
const device = `#/device/${encodeURIComponent(given.device)}`;
const VIEWS = { overview: ["#/overview", "#live tbody tr"], device: [device, "#view-device table"],
  event: [`#/event/${given.fingerprint}`, "#view-event .way"], rejected: ["#/rejected", "#rejected-list tbody tr"],
  find: ["#/find/urn", "#view-find table"] };

async function open(browser, width, scheme, bypassCSP) {
  const context = await browser.newContext({ viewport: { width, height: HEIGHT }, colorScheme: scheme, bypassCSP,
    permissions: ["clipboard-read", "clipboard-write"] });
  return [context, await context.newPage()];
}

function post(context, body) {
  const headers = { "Content-Type": "application/json", ...(given.posting ? { Authorization: `Bearer ${given.posting}` } : {}) };
  return context.request.post(`${given.url}api/v1/events`, { headers, data: JSON.stringify(body) });
}

const drawn = (page) => page.locator("#tiles .chart .line").evaluateAll((lines) => lines.map((line) => (line.getAttribute("d") || "").split("L").length));
const shownRows = (page) => page.locator("#live tbody tr:visible").allInnerTexts();
const left = (page) => page.locator("#live th").evaluateAll((cells) => cells.map((cell) => Math.round(cell.getBoundingClientRect().left)));
const tooWide = (page) => page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);

async function use(context, page, seen) {
  await page.locator("#state.good, #state.warning, #state.bad").waitFor();
  await page.locator(`#live >> text=${SHORT}`).first().waitFor();
  seen.texts = {};
  for (const id of ["state", "tiles", "devices", "live", "conditions"]) seen.texts[id] = await page.locator(`#${id}`).innerText();
  seen.broken = await page.locator("#path .hop.bad").evaluateAll((hops) => hops.map((hop) => [hop.innerText, getComputedStyle(hop).color]));
  seen.drawn = await drawn(page);
  await page.reload();
  await page.locator(`#live >> text=${SHORT}`).first().waitFor();
  seen.drawnAfterReload = await drawn(page);

  await page.locator(`#live button:has-text("${SHORT}")`).first().click();
  await page.locator("#live >> text=✓ copied").waitFor();
  seen.copied = await page.evaluate(() => navigator.clipboard.readText());
  await page.fill("#filter", "urn:b");
  await page.selectOption("#filter-outcome", "rejected");
  seen.filtered = await shownRows(page);
  await page.fill("#filter", "nothing at all");
  seen.nothing = await page.innerText("#live-empty");
  await page.fill("#filter", "");
  await page.selectOption("#filter-outcome", "");

  seen.columns = [await left(page)];
  await page.click("#pause");
  const rows = (await shownRows(page)).length;
  await post(context, { device: `urn:long:${"x".repeat(240)}`, id: 1, data: { text: "y".repeat(200) } });
  await page.locator("#pause >> text=1 new").waitFor();
  seen.addedWhilePaused = (await shownRows(page)).length - rows;
  await page.click("#pause");
  await page.locator("#live >> text=urn:long:").first().waitFor();
  seen.columns.push(await left(page));
}

async function visit(page, seen) {
  await page.fill("#query", given.fingerprint.toUpperCase());
  await page.keyboard.press("Enter");
  await page.locator(VIEWS.event[1]).waitFor();
  seen.texts.event = await page.innerText("#view-event");
  await page.fill("#query", given.device.slice(-6));
  await page.click("#search button");
  await page.locator(VIEWS.find[1]).waitFor();
  seen.texts.found = await page.innerText("#view-find");
  await page.locator("#view-find a.device").first().click();
  await page.locator(VIEWS.device[1]).waitFor();
  seen.texts.device = await page.innerText("#view-device");
  seen.deviceCharts = await page.locator("#view-device .chart").evaluateAll((charts) => charts.map((one) => one.getAttribute("aria-label")));
  await page.click('nav a[href="#/rejected"]');
  await page.locator(VIEWS.rejected[1]).first().waitFor();
  await page.fill("#rejected-reason", "data");
  await page.click("#rejected-filter button[type=submit]");
  await page.locator(VIEWS.rejected[1]).first().waitFor();  // the submission has emptied the list
  seen.texts.rejected = await page.innerText("#rejected-list");
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#rejected-download")]);
  seen.downloaded = fs.readFileSync(await download.path(), "utf8");
  await page.goBack();
  await page.locator(VIEWS.device[1]).waitFor();
}

// A device whose time is in seconds instead of milliseconds, while its page is open.
async function misdate(context, page, seen) {
  await page.reload();
  await page.locator(VIEWS.device[1]).waitFor();
  await page.locator("#state.good, #state.warning, #state.bad").waitFor();
  seen.outdated = await page.locator("#newer").isVisible();
  const width = () => page.locator("#view-device .figures").evaluate((node) => node.getBoundingClientRect().width);
  const before = await width();
  await post(context, { device: given.device, id: 99, time: 1767225600, data: { temperature: 19 } });
  await page.locator("#newer").waitFor({ state: "visible" });
  seen.widths = [before, await width()];
  await page.click("#newer");
  await page.locator("#view-device >> text=Identity at risk").waitFor();
  seen.axes = await page.locator("#view-device .axis").allInnerTexts();
}

async function look(browser, width, scheme) {
  const [context, page] = await open(browser, width, scheme, false);
  const seen = { width, scheme, errors: [], elsewhere: [], wide: [], axe: [] };
  page.on("console", (message) => { if (message.type() === "error") seen.errors.push(message.text()); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("dialog", (dialog) => { seen.errors.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(given.url) && !request.url().startsWith("blob:")) seen.elsewhere.push(request.url()); });
  await page.goto(given.url);
  if (given.token) {
    await page.locator("#token-form").waitFor({ state: "visible" });
    await page.fill("#token", given.token);
    await page.click("#token-form button");
    seen.errors.length = 0; // the 401 that required the token
  }
  await use(context, page, seen);
  await page.screenshot({ path: `${given.folder}/${width}-${scheme}.png`, fullPage: true });
  await visit(page, seen);
  await misdate(context, page, seen);
  seen.injected = await page.locator("img:not([alt='']), script:not([src])").count();
  await context.setOffline(true); // as when the agent does not respond
  await page.locator("#gone").waitFor({ state: "visible" });
  seen.gone = [await page.innerText("#gone"), await page.locator("#gone").evaluate((node) => getComputedStyle(node).backgroundColor)];
  seen.dimmed = await page.evaluate(() => getComputedStyle(document.querySelector("main")).filter);
  seen.errors = seen.errors.filter((text) => !text.includes("ERR_INTERNET_DISCONNECTED"));
  await context.setOffline(false);
  await page.locator("body:not(.stale)").waitFor();
  await context.close();
  await examine(browser, width, scheme, seen);
  return seen;
}

// axe runs in a page of its own, since the policy forbids scripts of other origins.
async function examine(browser, width, scheme, seen) {
  const [context, page] = await open(browser, width, scheme, true);
  if (given.token) await page.addInitScript((token) => sessionStorage.setItem("token", token), given.token);
  for (const [name, [hash, ready]] of Object.entries(VIEWS)) {
    await page.goto(given.url + hash);
    await page.locator(ready).first().waitFor();
    await page.locator("#state.good, #state.warning, #state.bad").waitFor();
    await page.evaluate(axe);
    await check(page, name, seen);
  }
  await context.setOffline(true);
  await page.locator("#gone").waitFor({ state: "visible" });
  await check(page, "gone", seen);
  await context.close();
}

async function check(page, name, seen) {
  const found = await page.evaluate(() => window.axe.run());
  seen.axe.push(...found.violations.map((one) => ({ view: name, id: one.id, nodes: one.nodes.slice(0, 3).map((node) => node.html) })));
  seen.passes = Math.min(seen.passes ?? Infinity, found.passes.length);
  if (await tooWide(page)) seen.wide.push(name);
}

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  const seen = await look(browser, given.width, given.scheme);
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
