// The search: a fingerprint leads to its event, anything else to the devices whose name contains it.
import { $, deviceLink, element, eventLink, fingerprintButton, row, scrolling, table } from "./dom.js";
import { count, moment } from "./format.js";
import { getJson } from "./api.js";
import { readings } from "./readings.js";
import { STATES } from "./states.js";

const FINGERPRINT = /^[0-9a-f]{32}$/i;
const COLUMNS = [["Received", "moment"], ["Device", "wide"], ["Values", "values"], ["State", "state"], ["Fingerprint", "print"]];

export function buildSearch() {
  $("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("query").value.trim();
    location.hash = FINGERPRINT.test(text) ? `#/event/${text.toLowerCase()}` : `#/find/${encodeURIComponent(text)}`;
  });
}

export async function showFound(text) {
  const found = (await getJson(`/api/v1/latest?device=${encodeURIComponent(text)}`)).filter((one) => one.state !== "damaged");
  const devices = [...new Set(found.map((one) => one.device))];
  const title = element("h2", `Search: ${text}`, "name", { tabindex: "-1" });
  if (!found.length) {
    $("view-find").replaceChildren(title, element("p", "No device with a stored event has this in its name.", "card empty"));
    return;
  }
  const rows = found.map((one) => row([[moment(one.received), "moment"], [deviceLink(one.device), "wide"], [readings(one.data, one.units), "values"],
    [(STATES[one.state] || [one.state])[0], "state"], [[fingerprintButton(one.fingerprint), eventLink(one.fingerprint, "›")], "print"]]));
  $("view-find").replaceChildren(title,
    element("section", [element("h3", devices.length === 1 ? "1 device" : `${count(devices.length)} devices`), element("ul", devices.map((one) => element("li", deviceLink(one, 256))), "inline")], "card"),
    element("section", [element("h3", found.length === 1 ? "Its latest event" : `The latest ${count(found.length)} events`), scrolling("Events found", table("Events found", COLUMNS, rows))], "card"));
}
