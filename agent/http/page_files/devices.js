// The table of the devices with their latest values.
import { $, deviceLink, element, message, printable, row, table } from "./dom.js";
import { ago, count } from "./format.js";
import { Series } from "./readings.js";

const COLUMNS = [["Device", "wide"], ["Latest values", "values"], ["Last seen", "age"], ["Events", "number"], ["Noticed", "noticed"]];
export const series = new Series();
let body;

function noticed(one) {
  const entries = [[one.duplicates, "duplicate"], [one.possible_duplicates, "possible duplicate"], [one.rejected, "rejected"]];
  const parts = entries.filter(([number]) => number).map(([number, text]) => `${count(number)} ${text}${text === "rejected" || number === 1 ? "" : "s"}`);
  const lines = [element("span", parts.join(", "))];
  if (one.reason) lines.push(element("span", printable(one.reason), "reason"));
  return lines;
}

export function showDevices(live) {
  if (!body) {
    const built = table("Devices", COLUMNS);
    body = built.tBodies[0];
    $("devices").replaceChildren(built);
  }
  const sorted = [...live.devices].sort((one, other) => (one.device < other.device ? -1 : 1));
  body.replaceChildren(...sorted.map((one) => row([[deviceLink(one.device), "wide"], [series.cards(one.device, one.data, one.units), "values"],
    [ago(one.last_seen, live.now), "age"], [count(one.events), "number"], [noticed(one), "noticed"]])));
  if (!sorted.length) body.append(message("No device has sent an event since the agent started.", COLUMNS));
}
