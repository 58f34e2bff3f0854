// Opens pages of the documentation site and prints what a reader would notice.
"use strict";
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

function look() {
  const broken = [...document.querySelectorAll("article td:first-child code")].filter(code => code.getClientRects().length > 1);
  const images = [...document.querySelectorAll("article img")];
  return {
    isWider: document.documentElement.scrollWidth > innerWidth,
    broken: broken.map(code => code.textContent),
    missing: images.filter(image => !image.naturalWidth).map(image => image.src),
    small: images.filter(image => image.src.endsWith(".svg") && image.width < 600).map(image => image.src),
  };
}

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: ["--no-sandbox", "--disable-gpu"] });
  const seen = {};
  for (const width of [390, 1280]) {
    const page = await browser.newPage({ viewport: { width, height: 900 } });
    const errors = [];
    page.on("console", message => { if (message.type() === "error") errors.push(message.text()); });
    page.on("pageerror", error => errors.push(String(error)));
    for (const name of given.pages) {
      errors.length = 0;
      await page.goto(given.url + name);
      seen[`${name} ${width}`] = { ...await page.evaluate(look), errors: [...errors] };
    }
    await page.close();
  }
  const page = await browser.newPage();
  await page.goto(given.url + "index.html");
  await page.getByPlaceholder("Search").click();
  // By keys: once it is ready, the search reads its text only when a key is released.
  await page.getByPlaceholder("Search").pressSequentially("bootstrap_servers");
  const found = page.locator(".md-search-result__link");
  await found.first().waitFor();
  seen.found = await found.evaluateAll(links => links.map(link => link.href));
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch((error) => { console.error(error); process.exit(1); });
