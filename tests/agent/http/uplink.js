// Loads the status page in Chromium at the width of a phone, and prints what it states of the uplink.
"use strict";
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const page = await browser.newPage({ viewport: { width: 390, height: 900 } });
  await page.goto(given.url);
  await page.locator("#tiles >> text=in total").waitFor();
  if (given.awaited) await page.locator(`#conditions >> text=${given.awaited}`).waitFor();
  const seen = {};
  for (const id of ["state", "conditions", "path", "tiles"]) seen[id] = await page.locator(`#${id}`).innerText();
  // A select that is narrower than its longest option.
  seen.cut = await page.locator("select:visible").evaluateAll((selects) => selects.filter((one) => {
    const copy = one.cloneNode(true);
    Object.assign(copy.style, { position: "absolute", width: "max-content", flex: "none" });
    document.body.append(copy);
    const whole = copy.getBoundingClientRect().width;
    copy.remove();
    return one.getBoundingClientRect().width < whole - 1;
  }).map((one) => one.id));
  await page.screenshot({ path: `${given.folder}/uplink-${given.name}.png`, fullPage: true });
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
