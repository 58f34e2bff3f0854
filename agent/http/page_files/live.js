// The live view: the latest outcomes, with a filter and a pause.
import { $, deviceLink, element, eventLink, fingerprintButton, message, printable, row, table } from "./dom.js";
import { clock } from "./format.js";
import { measurements, readings } from "./readings.js";
import { series } from "./devices.js";

const ROWS_MAX = 200;
const COLUMNS = [["Time", "time"], ["Outcome", "outcome"], ["Device", "wide"], ["Values or reason", "values"], ["Protocol", "via"], ["Fingerprint", "print"]];
const OUTCOMES = { accepted: ["✓", "good"], duplicate: ["=", "plain"], rejected: ["✗", "bad"], refused: ["✗", "bad"] };
const rows = []; // the newest first
let waiting = [];
let paused = false, body;

export const feed = { after: 0, started: 0 };

export function buildLive() {
  const built = table("Latest events", COLUMNS);
  body = built.tBodies[0];
  $("live").replaceChildren(built);
  for (const id of ["filter", "filter-outcome"]) $(id).addEventListener("input", filter);
  $("pause").addEventListener("click", () => { paused = !paused; addRows([]); });
}

// Adds what a poll has returned; after a restart of the agent its numbers begin anew, and the next poll asks for all.
export function addFeed(live) {
  if (feed.started !== live.started) {
    const restarted = feed.started !== 0;
    Object.assign(feed, { started: live.started, after: 0 });
    waiting = [];
    if (restarted) return;
  }
  for (const one of live.feed) {
    feed.after = Math.max(feed.after, one.number);
    if (one.outcome === "accepted") series.add(one.device, one.data);
  }
  addRows(live.feed);
}

function addRows(entries) {
  waiting = [...waiting, ...entries].slice(-ROWS_MAX);
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? `Resume${waiting.length ? ` (${waiting.length} new)` : ""}` : "Pause";
  if (paused) return;
  for (const one of waiting) rows.unshift(built(one));
  for (const old of rows.splice(ROWS_MAX)) old.node.remove();
  body.prepend(...rows.slice(0, waiting.length).map((one) => one.node));
  waiting = [];
  filter();
}

// Returns a row; one that cannot be shown hides no other.
function built(one) {
  try {
    return { node: line(one), one, text: searched(one) };
  } catch (error) {
    return { node: message(`This entry cannot be shown: ${error.message}`, COLUMNS), one, text: "" };
  }
}

function line(one) {
  const [sign, kind] = OUTCOMES[one.outcome] || ["", "plain"];
  const outcome = element("span", [element("span", sign, "sign"), element("span", ` ${one.outcome}`, "word")], `outcome-${kind}`);
  const print = one.fingerprint ? [fingerprintButton(one.fingerprint), eventLink(one.fingerprint, "›")] : "";
  return row([[clock(one.received), "time"], [outcome, "outcome"], [deviceLink(one.device), "wide"],
    [one.reason ? printable(one.reason) : readings(one.data, one.units), "values"], [one.via, "via"], [print, "print"]]);
}

function searched(one) {
  const values = measurements(one.data).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [one.device, one.reason, one.via, one.fingerprint, ...values].join(" ").toLowerCase();
}

function filter() {
  const text = $("filter").value.trim().toLowerCase(), outcome = $("filter-outcome").value;
  let shown = 0;
  for (const { node, one, text: all } of rows) {
    node.hidden = !(all.includes(text) && (!outcome || one.outcome === outcome));
    shown += !node.hidden;
  }
  $("live-empty").textContent = shown ? "" : rows.length ? "No event matches the filter." : "No event since the agent started.";
}
