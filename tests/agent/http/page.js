// Loads the status page in Chromium, uses it, and prints its observations.
"use strict";
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);
const axe = require("fs").readFileSync(`${given.modules}/axe-core/axe.min.js`, "utf8");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const SIZES = { desk: { width: 1280, height: 900 }, phone: { width: 360, height: 740 } };

async function look(browser, size, scheme) {
  const context = await browser.newContext({ viewport: SIZES[size], colorScheme: scheme, bypassCSP: false });
  const page = await context.newPage();
  const seen = { size, scheme, errors: [], elsewhere: [] };
  page.on("console", (message) => { if (message.type() === "error") seen.errors.push(message.text()); });
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("request", (request) => { if (!request.url().startsWith(given.url)) seen.elsewhere.push(request.url()); });
  await page.goto(given.url);
  if (given.token) {
    await page.locator("#token-form").waitFor({ state: "visible" });
    await page.fill("#token", given.token);
    await page.click("#token-form button");
    seen.errors.length = 0; // the 401 that required the token
  }
  await page.locator("#state.good, #state.warning, #state.bad").waitFor();
  await page.locator(`#devices >> text=${given.device}`).waitFor();
  await page.locator(`#live >> text=${given.fingerprint}`).first().waitFor();
  seen.state = await page.textContent("#state");
  seen.glance = await page.innerText("#glance");
  seen.devices = await page.innerText("#devices");
  seen.errorsShown = await page.innerText("#errors");
  seen.wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  await page.fill("#query", given.fingerprint);
  await page.keyboard.press("Enter");
  await page.locator("#found .facts").waitFor();
  seen.trace = await page.innerText("#found");
  await page.fill("#query", given.device.slice(-6));
  await page.click("#search button");
  await page.locator("#found ul").waitFor();
  seen.latest = await page.innerText("#found");
  await page.screenshot({ path: `${given.folder}/${size}-${scheme}.png`, fullPage: true });
  await context.setOffline(true); // as when the agent does not respond
  await page.locator("#state.bad").waitFor();
  seen.gone = await page.textContent("#state");
  seen.dimmed = await page.evaluate(() => getComputedStyle(document.querySelector("section")).opacity);
  seen.errors = seen.errors.filter((text) => !text.includes("ERR_INTERNET_DISCONNECTED"));
  await context.setOffline(false);
  await page.locator("body:not(.stale)").waitFor();
  await context.close();

  // axe runs in a separate page, since the policy forbids scripts of other origins.
  const open = await browser.newContext({ viewport: SIZES[size], colorScheme: scheme, bypassCSP: true });
  const checked = await open.newPage();
  if (given.token) await checked.addInitScript((token) => sessionStorage.setItem("token", token), given.token);
  await checked.goto(given.url);
  await checked.locator(`#live >> text=${given.fingerprint}`).first().waitFor();
  await checked.evaluate(axe);
  const found = await checked.evaluate(() => window.axe.run());
  seen.axe = found.violations.map((one) => ({ id: one.id, impact: one.impact, nodes: one.nodes.map((node) => node.html) }));
  seen.passes = found.passes.length;
  await open.close();
  return seen;
}

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  const looks = [];
  for (const [size, scheme] of given.looks) looks.push(await look(browser, size, scheme));
  await browser.close();
  console.log(JSON.stringify(looks));
})().catch((error) => { console.error(error); process.exit(1); });
