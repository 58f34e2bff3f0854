// Formats numbers, times, sizes and values.
import { printable, shorten } from "./dom.js";

const COUNT = new Intl.NumberFormat("en");
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const VALUE_CHARACTERS = 40;

export const count = (number) => COUNT.format(number);

export const events = (number) => (number === 1 ? "1 event" : `${count(number)} events`);

export function parts(seconds, most) {
  const shown = [];
  let rest = Math.max(0, Math.round(seconds));
  for (const [unit, length] of UNITS) {
    const amount = Math.floor(rest / length);
    rest -= amount * length;
    if (amount || shown.length || unit === "s") shown.push([amount, unit]);
  }
  return shown.slice(0, most).filter(([amount], at) => amount || !at).map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

export const duration = (seconds) => parts(seconds, 2);

export const ago = (ms, now) => (ms ? `${parts((now - ms) / 1000, 1)} ago` : "never");

// A time span below a minute, to the millisecond.
export function precise(ms) { return Math.abs(ms) < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000); }

export const rate = (perSecond) => (perSecond < 9.95 ? Math.max(0, perSecond).toFixed(1) : count(Math.round(perSecond)));

export function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < 4) { bytes /= 1000; unit += 1; }
  return `${unit ? bytes.toFixed(1) : bytes} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function moment(ms) {
  const at = new Date(ms), pad = (number) => String(number).padStart(2, "0");
  return Number.isNaN(at.getTime()) ? "unknown" : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(ms)}`;
}

// The time alone today, the date as well on other days.
export const when = (ms, now) => (moment(ms).slice(0, 10) === moment(now).slice(0, 10) ? clock(ms) : moment(ms));

export function number(value) {
  return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(6)));
}

export function value(one, unit = "") {
  const text = typeof one === "number" ? number(one) : typeof one === "string" ? one : JSON.stringify(one);
  return printable(shorten(text, VALUE_CHARACTERS)) + (unit ? ` ${printable(shorten(unit, 12))}` : "");
}
