// The page of one event: its way from the sensor to the table, with times.
import { $, deviceLink, element, facts, fingerprintButton, printable } from "./dom.js";
import { count, moment, precise, value } from "./format.js";
import { getJson } from "./api.js";
import { measurementName, measurements } from "./readings.js";
import { STATES } from "./states.js";

const COMMIT_MS_MAX = 600000;

export async function showEvent(fingerprint) {
  const found = await getJson(`/api/v1/trace?fingerprint=${fingerprint}`);
  const title = element("h2", ["Event ", fingerprintButton(fingerprint, 32)], "name", { tabindex: "-1" });
  const none = "Not found: it was never accepted here, or it is older than identity.retention.";
  $("view-event").replaceChildren(title, ...(found.length ? found.flatMap(parts) : [element("p", none, "card empty")]));
}

function parts(one) {
  const [, sentence] = STATES[one.state] || [one.state, one.state];
  return [element("section", [element("h3", "Path"), element("p", sentence, `notice ${one.state === "lost" ? "bad" : one.state === "processed" ? "good" : "warning"}`), way(one)], "card"),
    ...(one.event ? [values(one.event), identity(one)] : [element("p", "Its content has been purged from the gateway; the table has it.", "card empty")])];
}

// Returns the stations with their times; a station that the event has not reached has none.
function way(one) {
  const { event } = one;
  const at = (text) => (text ? Date.parse(text) : null);
  // The time of the commit is by the clock at the agent's start: where that was wrong, it is left out.
  const received = at(one.accepted), committed = at(one.committed);
  const plausible = received === null || (committed >= received && committed < received + COMMIT_MS_MAX);
  const stations = [
    ["Measured", event?.time ?? null, event ? "by the sensor's clock" : ""],
    ["Received", received, event ? `by the gateway over ${event.via}${one.clock === "trusted" ? "" : "; its clock was not synchronised"}` : ""],
    ["On disk", plausible ? committed : null, `epoch ${one.epoch}, sequence ${count(one.sequence)}; acknowledged after this`],
    ["In Kafka", at(one.forwarded), kafka(one)],
    ["In the table", at(one.processed), one.receipt ? `table ${printable(one.receipt)}` : ""],
  ];
  const reached = { new: 3, lost: 3, forwarded: 4, processed: 5 }[one.state] ?? 3;
  let before = null;
  const items = stations.map(([name, time, note], at) => {
    const skipped = at === 0 && time === null;
    if (skipped) return null;
    const done = at < reached;
    const text = time !== null ? moment(time) : done ? "time not known" : "not yet";
    const delta = time !== null && before !== null && at > 1 && time >= before ? `+ ${precise(time - before)}` : "";
    if (time !== null) before = time;
    return element("li", [element("strong", name), element("span", text, "moment"), element("span", delta, "delta"), element("span", done ? note : "", "note")], done ? "done" : "open");
  });
  const duplicates = one.duplicates.map((time) => element("li", moment(Date.parse(time))));
  const title = duplicates.length === 1 ? "1 duplicate was" : `${count(duplicates.length)} duplicates were`;
  const list = duplicates.length ? [element("h4", `${title} acknowledged, and not stored`), element("ul", duplicates, "inline")] : [];
  return element("div", [element("ol", items.filter(Boolean), "way"), ...list]);
}

function kafka(one) {
  const offsets = Object.entries(one.batch_offsets || {}).map(([partition, [lowest, highest]]) => `partition ${partition}, offsets ${count(lowest)} to ${count(highest)}`);
  return offsets.length ? `in a batch at ${offsets.join("; ")}` : "";
}

function values(event) {
  const all = [...measurements(event.data, event.units), ...measurements(event.ext, {}, "ext: ")];
  const entries = all.map(([name, one, unit]) => [measurementName(name), value(one, unit)]);
  return element("section", [element("h3", "Values"), all.length ? facts(entries) : element("p", "The event has no data.", "empty")], "card");
}

function identity({ event }) {
  const fields = ["type", "id", "boot", "time", "possible_duplicate_of"].filter((name) => event[name] !== undefined);
  const entries = [["device", deviceLink(event.device, 256)], ...fields.map((name) => [name.replaceAll("_", " "), printable(event[name])])];
  const raw = element("details", [element("summary", "The record's value as JSON"), element("pre", printable(JSON.stringify(event)))]);
  return element("section", [element("h3", "Identity"), facts(entries), raw], "card");
}
