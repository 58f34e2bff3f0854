// The page of one device: its values, duplicates, missing ids, and warnings about its identity.
import { $, element, eventLink, fingerprintButton, marked, message, printable, row, scrolling, table } from "./dom.js";
import { chart, drawPoints } from "./charts.js";
import { ago, count, number, value, when } from "./format.js";
import { getJson } from "./api.js";
import { measurementName, measurements, readings } from "./readings.js";
import { STATES } from "./states.js";

const CHARTS_MAX = 12;
const YEAR_2000 = Date.UTC(2000, 0); // of a time before that, only the device's clock is wrong
const COLUMNS = [["Received", "time"], ["Id", "id"], ["Values", "values"], ["State", "state"], ["Duplicates", "number"], ["Fingerprint", "print"]];

export async function showDevice(device) {
  const found = await getJson(`/api/v1/device?device=${encodeURIComponent(device)}`);
  const { events, activity, now } = found;
  const none = `None of the latest ${count(found.positions_searched)} events in the store is of this device.`;
  $("view-device").replaceChildren(
    element("h2", printable(device), "name", { tabindex: "-1" }),
    summary(found, activity),
    warnings(found.warnings),
    charts(events, now),
    card("Events", events.length ? scrolling("Events", table("Events", COLUMNS, [...events].reverse().map((one) => line(one, found)))) : element("p", none, "empty"),
      events.length === found.events_max ? `the latest ${count(events.length)}` : ""),
    missing(found.missing_ids),
    duplicates(found.duplicates, now));
}

function card(title, content, small = "") {
  return element("section", [element("h3", [title, " ", element("small", small)]), content].flat(), "card");
}

function summary({ now }, activity) {
  if (!activity) return element("p", "This device has not sent an event since the agent started.", "empty");
  const tiles = [["Last seen", ago(activity.last_seen, now)], ["Events", count(activity.events)], ["Duplicates", count(activity.duplicates)],
    ["Possible duplicates", count(activity.possible_duplicates)], ["Rejected", count(activity.rejected)]];
  const list = card("Activity", element("dl", tiles.map(([name, figure]) => element("div", [element("dt", name), element("dd", figure)])), "figures"), "since the agent started");
  return activity.reason ? element("div", [list, element("p", ["Last rejection: ", printable(activity.reason)], "notice bad")]) : list;
}

function warnings(found) {
  const entries = Object.values(found);
  return element("div", entries.map((advice) => element("p", ["! Identity at risk: ", ...marked(printable(advice))], "notice warning")));
}

function charts(events, now) {
  const series = new Map();
  for (const one of events) {
    for (const [name, value, unit] of measurements(one.data, one.units)) {
      if (typeof value !== "number") continue;
      if (!series.has(name)) series.set(name, { unit, points: [] });
      series.get(name).points.push([one.time > YEAR_2000 ? one.time : one.received, value]);
    }
  }
  const drawn = [...series].filter(([, { points }]) => points.length > 1).slice(0, CHARTS_MAX).map(([name, one]) => measurement(name, one, now));
  return element("div", drawn, "charts");
}

function measurement(name, { unit, points }, now) {
  points.sort(([one], [other]) => one - other);
  const values = points.map(([, one]) => one);
  const low = number(Math.min(...values)), high = number(Math.max(...values));
  const picture = chart("device-chart");
  drawPoints(picture, points, `${measurementName(name)}: ${points.length} values from ${low} to ${high}`);
  const axis = element("p", [element("span", when(points[0][0], now)), element("span", when(points.at(-1)[0], now))], "axis");
  return element("section", [element("h3", measurementName(name)), element("p", element("strong", value(values.at(-1), unit)), "figure"),
    element("div", [picture, element("span", `highest ${high}, lowest ${low}`, "high")], "drawing"), axis], "card tile");
}

function line(one, { now, duplicates }) {
  if (one.state === "damaged") return message(`sequences ${one.first} to ${one.last} of epoch ${one.epoch} are damaged`, COLUMNS);
  const repeated = duplicates.filter(({ fingerprint }) => fingerprint === one.fingerprint).length;
  const [text] = STATES[one.state] || [one.state];
  return row([[when(one.received, now), "time"], [value(String(one.id ?? "–")), "id"], [one.data === null ? "long: see the event" : readings(one.data, one.units), "values"],
    [text, "state"], [repeated ? count(repeated) : "", "number"], [[fingerprintButton(one.fingerprint), eventLink(one.fingerprint, "›")], "print"]]);
}

function missing(ranges) {
  const text = ({ boot, first, last }) => `${first === last ? first : `${first} to ${last}`}${boot === null ? "" : ` (boot ${printable(boot)})`}`;
  const list = element("ul", ranges.map((range) => element("li", text(range))), "inline");
  return card("Missing ids", ranges.length ? [element("p", "The device counts its events, and these have not arrived:"), list] : element("p", "None between the events above.", "empty"));
}

function duplicates(found, now) {
  const items = [...found].reverse().map((one) => element("li", [`${when(one.received, now)} of `, eventLink(one.fingerprint, one.fingerprint.slice(0, 8))]));
  return card("Duplicates", items.length ? element("ul", items, "inline") : element("p", "None of the events above.", "empty"), items.length ? `${count(items.length)}, the latest first` : "");
}
