// The tiles with the figures, and the charts of the history.
import { $, element, setText } from "./dom.js";
import { chart, drawSeries, highest } from "./charts.js";
import { getJson } from "./api.js";
import { linkState, showPath } from "./path.js";
import { clock, count, duration, events, moment, rate, size, when } from "./format.js";

const SPANS = { "15min": { text: "15 minutes", refresh_ms: 4500 }, "24h": { text: "24 hours", refresh_ms: 60000 } };
const CURRENT = "15min";
const ACK_POINTS = 12;
const IN_TRANSIT_SECONDS = 10;
const WIDTH_SHARE_MIN = 1 / 6; // of a span: after a start of the agent, the charts fill this much first
const TILES = [["in", "In"], ["out", "Out"], ["backlog", "Backlog"], ["ack", "Ack latency"],
  ["duplicates", "Duplicates"], ["rejected", "Rejected"], ["disk", "Disk"], ["time", "Clock"]];
const CHARTED = 4;

const tiles = new Map();
const history = new Map();
let span = CURRENT;

export function buildOverview() {
  TILES.forEach(([name, title], at) => {
    const figure = element("strong"), unit = element("small"), note = element("p", [], "note");
    const picture = at < CHARTED ? chart(name) : null, high = element("span", [], "high");
    const drawing = picture ? [element("div", [picture, high], "drawing")] : [];
    tiles.set(name, { figure, unit, note, picture, high });
    $("tiles").append(element("div", [element("h3", title), element("p", [figure, " ", unit], "figure"), ...drawing, note], "tile"));
  });
  for (const node of $("spans").children) {
    node.addEventListener("click", () => {
      span = node.value;
      for (const one of $("spans").children) one.setAttribute("aria-pressed", String(one === node));
      refreshHistory().catch(() => {}); // the next poll reports what is wrong
    });
  }
}

// Reads the spans that are shown, each as often as it changes.
export async function refreshHistory() {
  for (const name of new Set([CURRENT, span])) {
    const known = history.get(name);
    if (known && performance.now() - known.read_ms < SPANS[name].refresh_ms) continue;
    history.set(name, { ...await getJson(`/api/v1/history?span=${name}`), read_ms: performance.now() });
  }
  const shown = history.get(span), points = shown.accepted.length;
  setText($("tiles-since"), points < shown.points_max ? `charts since ${when(shown.end - points * shown.step_seconds * 1000, shown.end)}` : "");
  drawTile("in", shown.accepted, shown, (high) => `${rate(high)}/s`);
  drawTile("out", shown.sent, shown, (high) => `${rate(high)}/s`);
  drawTile("backlog", shown.new.map((one, at) => one + shown.forwarded[at]), shown, (high) => events(high));
  drawTile("ack", shown.ack_ms, shown, (high) => `${milliseconds(high)} ms`);
}

const milliseconds = (one) => (one < 10 ? one.toFixed(1) : count(Math.round(one)));

function drawTile(name, values, shown, format) {
  const { picture, high } = tiles.get(name);
  const text = `highest ${format(highest(values))}`;
  setText(high, text);
  const title = TILES.find(([one]) => one === name)[1];
  drawSeries(picture, values, Math.max(values.length, shown.points_max * WIDTH_SHARE_MIN), `${title} in ${SPANS[span].text}: ${text}`);
}

function show(name, figure, unit, note) {
  const tile = tiles.get(name);
  setText(tile.figure, figure);
  setText(tile.unit, unit);
  setText(tile.note, note);
}

export function showOverview(live) {
  const { status } = live, now = history.get(CURRENT);
  const rates = { accepted: now.accepted.at(-1) || 0, sent: now.sent.at(-1) || 0, confirmed: now.confirmed.at(-1) || 0 };
  showPath(live, rates);
  show("in", rate(rates.accepted), "/s", `${events(status.accepted)} in total`);
  show("out", rate(rates.sent), "/s", `${rate(rates.confirmed)}/s confirmed`);
  const oldest = status.oldest_unprocessed;
  const age = oldest === null ? 0 : Math.max(0, live.now - oldest) / 1000;
  show("backlog", oldest === null ? "none" : duration(age), oldest === null ? "" : "old", drain(live, rates, age));
  const ack = now.ack_ms.slice(-ACK_POINTS).filter((one) => one !== null).at(-1);
  show("ack", ack === undefined ? "–" : milliseconds(ack), ack === undefined ? "" : "ms", ack === undefined ? "no event in the last minute" : "until an event is on disk");
  show("duplicates", count(status.duplicates), "", "acknowledged, not stored again");
  show("rejected", count(status.rejected), "", "invalid; kept with the reason");
  show("disk", size(status.store_bytes), "", `${(100 * status.store_bytes / live.store_bytes_max).toFixed(1)} % of the limit; ${size(live.written_bytes)} written`);
  show("time", clock(live.now), "", live.clock === "trusted" ? `${moment(live.now).slice(0, 10)}, synchronised` : "not synchronised");
}

function drain(live, rates, age) {
  const { kafka } = live.links, waiting = live.status.events.new;
  if (live.status.oldest_unprocessed === null) return "the table has every event";
  if (kafka?.paused) return "waits for kafka.hours";
  if (waiting && kafka && !kafka.up) return `grows: Kafka ${linkState(kafka)}`;
  if (age < IN_TRANSIT_SECONDS) return "on the way to the table";
  if (!waiting) return "awaiting confirmation by the table";
  if (rates.sent > rates.accepted) return `in Kafka in ${duration(waiting / (rates.sent - rates.accepted))}`;
  return "does not shrink";
}
