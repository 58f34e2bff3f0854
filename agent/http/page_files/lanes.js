// Lists the lanes, the first to be sent first: what waits in each, and the state of its connections.
import { $, element } from "./dom.js";
import { ago, events } from "./format.js";
import { SIGNS, linkState, since } from "./path.js";

const NAMES = { kafka: "Kafka", receipts: "confirmations" };

function connection(lane, now) {
  const broken = Object.entries(lane.links).filter(([, link]) => !link.up), { kafka } = lane.links;
  if (broken.length) return ["bad", broken.map(([name, link]) => `${NAMES[name] || name} ${since(link, now)}`).join(", ")];
  if (!kafka) return ["idle", "not yet connected"];
  return kafka.paused ? ["idle", since(kafka, now)] : ["good", linkState(kafka)];
}

export function showLanes(live) {
  $("lanes-card").hidden = !live.lanes.length;
  $("lanes").replaceChildren(...live.lanes.map((lane) => {
    const [kind, words] = connection(lane, live.now);
    const waiting = lane.new ? `${events(lane.new)} waiting, oldest ${ago(lane.oldest_new, live.now)}` : "no event waiting";
    return element("li", [element("strong", lane.name), element("span", `priority ${lane.priority}`, "faint"),
      element("span", waiting), element("span", `${SIGNS[kind]} ${words}`, `connection ${kind}`)]);
  }));
}
