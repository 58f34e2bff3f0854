// Loads the status page in Chromium, and prints what it states of the lanes.
"use strict";
const fs = require("fs");
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const context = await browser.newContext({ viewport: { width: given.width, height: 900 }, bypassCSP: true });
  const page = await context.newPage(), seen = { errors: [] };
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  await page.goto(given.url);
  await page.locator("#tiles >> text=in total").waitFor();
  await page.locator("#state.good, #state.warning, #state.bad").waitFor();
  seen.lanes = await page.locator("#lanes li:visible").evaluateAll((lanes) => lanes.map((lane) => [...lane.children].map((one) => one.innerText)));
  seen.broken = await page.locator("#path .hop.bad").allInnerTexts();
  for (const id of ["state", "conditions"]) seen[id] = await page.locator(`#${id}`).innerText();
  seen.wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
  await page.screenshot({ path: `${given.folder}/lanes-${given.name}-${given.width}.png`, fullPage: true });
  await page.evaluate(fs.readFileSync(`${given.modules}/axe-core/axe.min.js`, "utf8"));
  const found = await page.evaluate(() => window.axe.run());
  seen.axe = found.violations.map((one) => ({ id: one.id, nodes: one.nodes.slice(0, 3).map((node) => node.html) }));
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
