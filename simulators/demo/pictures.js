// Takes a picture of each page in Chromium.
"use strict";
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  for (const shot of given.shots) {
    const page = await browser.newPage({ viewport: { width: 1100, height: shot.height }, colorScheme: "light" });
    await page.goto(shot.url);
    for (const text of shot.texts) await page.getByText(text).first().waitFor();
    await page.screenshot({ path: shot.path });
  }
  await browser.close();
  console.log("{}");
})().catch((error) => { console.error(error); process.exit(1); });
