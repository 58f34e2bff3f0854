// Runs first in a report within a frame: records errors, acts as a reader, and posts its observations.
'use strict';
const wrong = [];
addEventListener('error', event => wrong.push(String(event.message || event.target)), true);
addEventListener('unhandledrejection', event => wrong.push(String(event.reason)));
for (const name of ['error', 'warn']) console[name] = (...said) => wrong.push(said.join(' '));

function overlaps() {
  const found = [];
  for (const picture of document.querySelectorAll('svg')) {
    const texts = [...picture.querySelectorAll('text')].filter(one => one.textContent.trim());
    const boxes = texts.map(one => one.getBoundingClientRect());
    for (let i = 0; i < boxes.length; i++) {
      for (let j = i + 1; j < boxes.length; j++) {
        const across = Math.min(boxes[i].right, boxes[j].right) - Math.max(boxes[i].left, boxes[j].left);
        const down = Math.min(boxes[i].bottom, boxes[j].bottom) - Math.max(boxes[i].top, boxes[j].top);
        const lower = Math.min(boxes[i].height, boxes[j].height);
        if (across > 1 && down > 0.35 * lower) found.push(`${texts[i].textContent} / ${texts[j].textContent}`);
      }
    }
  }
  return found;
}

addEventListener('load', () => {
  const body = document.querySelector('#sensors tbody');
  const all = body.rows.length;
  const search = document.getElementById('search');
  search.value = '0000003F';
  search.dispatchEvent(new Event('input'));
  const found = [...body.rows].map(row => row.cells[0].textContent);
  search.value = '';
  search.dispatchEvent(new Event('input'));
  document.querySelectorAll('#sensors th button')[2].click();
  const most = Number(body.rows[0].cells[2].textContent.replaceAll(',', ''));
  const seen = {
    wrong,
    overlaps: overlaps(),
    width: document.documentElement.scrollWidth,
    window: innerWidth,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    paper: getComputedStyle(document.body).backgroundColor,
    ink: getComputedStyle(document.body).color,
    flow: getComputedStyle(document.querySelector('.flow')).display,
    stations: [...document.querySelectorAll('.stations > li')].filter(one => one.checkVisibility()).length,
    hint: getComputedStyle(document.querySelector('.wide'), '::before').content,
    all,
    found,
    most,
  };
  parent.postMessage(JSON.stringify(seen), '*');
});
