// Loads an audit's report in Chromium, and prints how wide it is, what is beyond the edge, and what axe finds.
"use strict";
const fs = require("fs");
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage({ viewport: { width: given.width, height: 900 }, isMobile: given.width < 500 });
  await page.goto(given.url);
  const seen = await page.evaluate(() => ({
    scroll: document.documentElement.scrollWidth,
    beyond: [...document.querySelectorAll("td, th, dd")].filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.innerText),
  }));
  await page.screenshot({ path: given.picture, fullPage: true });
  await page.evaluate(fs.readFileSync(`${given.modules}/axe-core/axe.min.js`, "utf8"));
  seen.axe = (await page.evaluate(() => window.axe.run())).violations.map((one) => one.id);
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
