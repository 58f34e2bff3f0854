// Draws the path of the events: sensors, store, Kafka, table, and the state of each link between them.
import { $, element, printable, setText } from "./dom.js";
import { ago, count, duration } from "./format.js";

const LINK_STATES = {
  reachable: "connected", "topic-missing": "topic missing", unsupported: "not supported", cloned: "stopped: duplicate gateway",
  flowing: "confirmed", held: "on hold", "outside-hours": "outside of its hours",
};
const STATIONS = ["sensors", "store", "kafka", "table"];
const TITLES = { sensors: "Sensors", store: "Store", kafka: "Kafka", table: "Table" };
export const SIGNS = { good: "✓", warning: "!", bad: "✗", idle: "–" };
const nodes = new Map();

export const linkState = (link) => LINK_STATES[link.state] || link.state;

function build() {
  for (const name of STATIONS) {
    const figure = element("strong", "–"), note = element("small");
    if (nodes.size) {
      const text = element("span", [], "words");
      const hop = element("li", [element("span", [], "line", { "aria-hidden": "true" }), text], "hop idle");
      nodes.set(`to-${name}`, { hop, text });
      $("path").append(hop);
    }
    nodes.set(name, { figure, note });
    $("path").append(element("li", [element("span", TITLES[name], "title"), figure, note], `station ${name}`));
  }
}

function station(name, figure, note) {
  setText(nodes.get(name).figure, figure);
  setText(nodes.get(name).note, note);
}

function hop(to, kind, text, flows) {
  const { hop: node, text: words } = nodes.get(`to-${to}`);
  setText(words, `${SIGNS[kind]} ${text}`);
  node.className = `hop ${kind}${flows ? " flows" : ""}`;
}

export function since(link, now) { return `${printable(linkState(link))} for ${duration((now - link.since) / 1000)}`; }

function linkHop(to, link, now, without, flows) {
  if (!link) hop(to, "idle", without, false);
  else if (link.paused) hop(to, "idle", since(link, now), false);
  else hop(to, link.up ? "good" : "bad", link.up ? linkState(link) : since(link, now), link.up && flows);
}

export function showPath(live, rates) {
  if (!nodes.size) build();
  const { new: unsent, forwarded, processed } = live.status.events;
  const seen = live.devices.reduce((latest, one) => Math.max(latest, one.last_seen), 0);
  station("sensors", count(live.devices.length), seen ? `latest ${ago(seen, live.now)}` : "no event yet");
  station("store", count(unsent), "not yet in Kafka, its own events too");
  station("kafka", count(forwarded), "not yet confirmed");
  station("table", count(processed), "confirmed, still kept");
  const { kafka, receipts, ...ways } = live.links, { requests } = live.status;
  const down = Object.entries(ways).find(([, link]) => !link.up);
  if (live.trouble) hop("store", "bad", "refused: they resend", false);
  else if (down) hop("store", "bad", `${down[0] === "mqtt" ? "MQTT" : down[0]} ${since(down[1], live.now)}`, false);
  else if (requests?.refused) hop("store", requests.refused === requests.requests ? "bad" : "warning", `${count(requests.refused)} refused`, rates.accepted > 0);
  else hop("store", "good", "accepted", rates.accepted > 0);
  if (live.status.forwarding_stopped) hop("kafka", "bad", "stopped", false);
  else linkHop("kafka", kafka, live.now, "not yet connected", rates.sent > 0);
  linkHop("table", receipts, live.now, "no confirmation yet", rates.confirmed > 0);
}
