// Takes a picture of each page in Chromium; where a process is given, after it was killed and the pages show it.
"use strict";
const given = JSON.parse(process.argv[2]);
const { chromium } = require(`${given.modules}/playwright-core`);

const FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

const show = async (page, texts) => { for (const text of texts) await page.getByText(text).first().waitFor(); };

(async () => {
  const browser = await chromium.launch({ executablePath: given.chromium, args: FLAGS });
  const opened = [];
  for (const shot of given.shots) {
    const viewport = { width: shot.width, height: shot.height };
    const page = await browser.newPage({ viewport, colorScheme: shot.scheme });
    await page.goto(shot.url);
    await show(page, shot.texts);
    opened.push([page, shot]);
  }
  if (given.kill) {
    process.kill(given.kill.pid, "SIGKILL");
    for (const [page] of opened) await show(page, given.kill.texts);
  }
  for (const [page, shot] of opened) await page.screenshot({ path: shot.path });
  await browser.close();
  console.log("{}");
})().catch((error) => { console.error(error); process.exit(1); });
