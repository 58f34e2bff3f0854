// The values of events, by measurement, and the latest of each device for small charts.
import { element, printable, shorten } from "./dom.js";
import { chart, drawSeries } from "./charts.js";
import { number, value } from "./format.js";

const NAME_CHARACTERS = 24;
const DEPTH_MAX = 3;
const SHOWN_MAX = 4, CARDS_MAX = 3;
const SMALL_WIDTH_MIN = 10; // values that fill a small chart
const VALUES_KEPT = 30, DEVICES_KEPT = 200, MEASUREMENTS_KEPT = 16;

// Returns [name, value, unit] of each value; nested maps become names such as `air.temperature`.
export function measurements(data, units = {}, prefix = "", depth = 1) {
  return Object.entries(data || {}).flatMap(([key, one]) => {
    const name = prefix + key;
    const nested = one !== null && typeof one === "object" && !Array.isArray(one) && depth < DEPTH_MAX;
    return nested ? measurements(one, units, `${name}.`, depth + 1) : [[name, one, Object.hasOwn(units, name) ? units[name] : ""]];
  });
}

export function measurementName(name) { return printable(shorten(name, NAME_CHARACTERS)); }

function label(name, one, unit) {
  return element("span", [element("span", measurementName(name), "key"), " ", element("span", value(one, unit), "value")], "reading");
}

// Returns the first values of an event as text.
export function readings(data, units) {
  const all = measurements(data, units);
  const shown = all.slice(0, SHOWN_MAX).map((one) => label(...one));
  if (all.length > SHOWN_MAX) shown.push(element("span", `and ${all.length - SHOWN_MAX} more`, "reading faint"));
  return element("span", shown, "readings");
}

// The latest numbers of each device and measurement, from the live feed.
export class Series {
  #devices = new Map();

  clear() { this.#devices.clear(); }

  add(device, data) {
    const known = this.#devices.get(device) || new Map();
    this.#devices.delete(device);
    this.#devices.set(device, known);
    if (this.#devices.size > DEVICES_KEPT) this.#devices.delete(this.#devices.keys().next().value);
    for (const [name, one] of measurements(data)) {
      if (typeof one !== "number" || (known.size >= MEASUREMENTS_KEPT && !known.has(name))) continue;
      const values = known.get(name) || [];
      values.push(one);
      known.set(name, values.slice(-VALUES_KEPT));
    }
  }

  // Returns the latest values of a device, each in a line, the numbers with a chart.
  cards(device, data, units) {
    const known = this.#devices.get(device) || new Map();
    const all = measurements(data, units);
    const shown = all.slice(0, CARDS_MAX).map(([name, one, unit]) => {
      const text = label(name, one, unit), values = known.get(name) || [];
      if (values.length > 1) text.append(small(values, name));
      return text;
    });
    if (all.length > CARDS_MAX) shown.push(element("span", `and ${all.length - CARDS_MAX} more`, "faint"));
    return element("span", shown, "cards");
  }
}

function small(values, name) {
  const picture = chart("small");
  const low = Math.min(...values), high = Math.max(...values);
  drawSeries(picture, values.map((one) => one - low), Math.max(values.length, SMALL_WIDTH_MIN), `${measurementName(name)}: ${values.length} values from ${number(low)} to ${number(high)}`);
  return picture;
}
