// What is wrong now, from the agent's state, and the latest warnings of its log: in words, with what to do.
import { $, deviceLink, element, marked, printable } from "./dom.js";
import { count, duration, events, size, when } from "./format.js";

const LOG_BYTES_HIGH = 16 << 20;
const STORE_SHARE_HIGH = 0.8;
const WAITING_HIGH = 100;
const SESSION_LOST_MS = 86400000; // for how long a lost session is shown
const CHARACTERS_MAX = 300;

const LINK_ADVICE = {
  "kafka unreachable": ["Kafka is unreachable", "Events are stored meanwhile. Check the uplink and `kafka.bootstrap_servers` with `oncegate doctor`."],
  "kafka topic-missing": ["The topic does not exist in Kafka", "Create it as docs/kafka.md describes; sending begins by itself."],
  "kafka unsupported": ["This Kafka service lacks what the agent needs", "docs/kafka.md lists the services that can be used."],
  "kafka failing": ["Kafka refuses or fails", "Events are stored meanwhile. `oncegate doctor` examines the topic and the login."],
  "kafka cloned": ["A second agent runs with this gateway's id", "Stop the copy, or give it another `gateway.id`; then restart this agent."],
  "receipts held": ["Confirmations are on hold", "What the group `receipts.group` has committed does not count; docs/receipts.md explains each reason."],
  "mqtt disconnected": ["The MQTT broker is unreachable", "Its messages wait at the broker. Check `mqtt.host` and the password with `oncegate doctor`."],
};

// By the first key and value of a message, or by its first key.
const WARNINGS = {
  "identity=unnamed": "The device has an address for its only name",
  "identity=backwards": "Event ids of the device have decreased",
  "identity=time-before-2000": "The device's clock is before the year 2000",
  kafka: "Kafka", receipts: "Confirmations", mqtt: "MQTT", http: "HTTP", coap: "CoAP", oscore: "OSCORE", store: "Store",
  "request=refused": "Requests are refused", oversized: "An event is larger than Kafka accepts", event: "An event was given up", delivery: "Delivery", login: "Kafka login",
  list: "Zigbee2MQTT's device list", credential: "Sensor credential", systemd: "systemd", flush_socket: "Command socket",
};
const ADVICE = {
  "identity=unnamed": "Have the sensor send `device`: two sensors behind one address would be one device.",
  "identity=backwards": "Have the sensor send `boot` or `time`: after a restart, its equal events would count as duplicates.",
  "identity=time-before-2000": "Have the sensor send `time` in milliseconds since 1970, not in seconds.",
  "coap=shedding": "More requests at once than the gateway serves; docs/sensors.md names the limits.",
  "http=connections-refused": "Too many connections at once; docs/http.md lists the limits.",
  "mqtt=session-lost": "Set `persistence true` in mosquitto.conf; docs/runbook.md lists other causes.",
  "mqtt=waiting": "Check that Zigbee2MQTT runs and uses this broker.",
  "store=failing": "Check the disk and its free space with `oncegate doctor`; sensors resend until it works.",
  "store=full": "Forward the backlog, or raise `store.max_bytes`.",
  "store=damaged": "Intact events are salvaged, and losses are declared. Replace the card soon.",
  "store=log-held": "End the program that reads the store.",
  oversized: "Raise `max.message.bytes` of the topic.",
  login: "Check the files that the configuration names for the login to Kafka.",
  credential: "Check the file, or create the credential again with `oncegate credentials`.",
};
const HANDLED = new Set(["device", "reason", "effect", "hint", "since", "suppressed"]);

function item(kind, title, advice, details) {
  const sign = { bad: "✗", warning: "!", plain: "·" }[kind];
  return element("li", [element("span", sign, "sign", { "aria-hidden": "true" }),
    element("div", [element("p", title, "title"), ...details.filter(Boolean).map((one) => element("p", one, "detail")),
      ...(advice ? [element("p", [element("b", "What to do: "), ...marked(advice)], "advice")] : [])])], kind);
}

// Returns [kind, title, advice, detail] of each condition.
function conditions(live) {
  const { status } = live, found = [];
  const add = (applies, ...condition) => { if (applies) found.push(condition); };
  add(live.trouble, "bad", "No event can be stored; sensors resend theirs", "Check the disk and `store.max_bytes` with `oncegate doctor`.", live.trouble);
  const requests = status.requests || { refused: 0 }, every = requests.refused === requests.requests;
  add(requests.refused, every ? "bad" : "warning", `${count(requests.refused)} of ${count(requests.requests || 0)} requests refused since ${when(requests.since || 0, live.now)}`,
    "Correct the sensors: each was told the reason, which docs/sensors.md explains.",
    (requests.reasons || []).map((one) => `${one.reason} (${one.via}, ${count(one.count)}, last from ${one.sender})`).join("; "));
  add(status.forwarding_stopped, "bad", "Nothing is sent to Kafka until the next start", "Remove the cause, then restart the agent.", status.forwarding_stopped);
  for (const [name, link] of Object.entries(live.links)) {
    const [title, advice] = LINK_ADVICE[`${name} ${link.state}`] || [`${name}: ${link.state}`, "`oncegate doctor` examines the connection."];
    add(!link.up, "bad", `${title}, for ${duration((live.now - link.since) / 1000)}`, advice, link.reason);
  }
  add(status.receipts_held && !live.links.receipts, "bad", ...LINK_ADVICE["receipts held"], status.receipts_held);
  add(status.events.lost, "bad", `${events(status.events.lost)} lost, declared by gateway.gap events`, "`oncegate events --device 'urn:oncegate:gateway:*'` shows which, and why.", "");
  add(status.maybe_lost, "warning", `Up to ${events(status.maybe_lost)} may be lost: at most once, and in flight when the connection ended`, "Select another `kafka.delivery` if that is too many.", "");
  add(status.oversized, "warning", `${events(status.oversized)} waiting: larger than Kafka accepts`, `Raise \`max.message.bytes\` of the topic to at least ${size(status.oversized_bytes || 0)}.`, "");
  const lostAt = status.mqtt_session_lost_at;
  add(lostAt && live.now - lostAt < SESSION_LOST_MS, "warning", `The MQTT broker lost the agent's session at ${when(lostAt || 0, live.now)}, with the messages in it`,
    "Set `persistence true` in mosquitto.conf; docs/runbook.md lists other causes.", "");
  const cap = live.uplink, { kafka } = live.links;
  add(kafka?.paused, "plain", `Outside of kafka.hours for ${duration((live.now - kafka?.since) / 1000)}: nothing is sent to Kafka`, "", kafka?.reason);
  add(cap && cap.waiting > WAITING_HIGH, "plain", `${events(cap?.waiting)} waiting for the cap of the uplink, ${size(cap?.bytes_per_second_max || 0)} a second`, "",
    cap?.seconds_left == null ? "" : kafka?.paused ? `To send all takes ${duration(cap.seconds_left)} of kafka.hours.`
      : `All will be sent in ${duration(cap.seconds_left)}, at ${when(live.now + cap.seconds_left * 1000, live.now)}, if nothing else arrives.`);
  add(status.store_bytes > STORE_SHARE_HIGH * live.store_bytes_max, "warning", "The store is nearly full", "Forward the backlog, or raise `store.max_bytes`.", "");
  add(status.log_bytes > LOG_BYTES_HIGH, "warning", "Another program holds the store's log", "Find it with `fuser -v` on events.db, and end it.", "");
  add(live.clock !== "trusted", "warning", "The gateway's clock is not synchronised", "Enable NTP (`timedatectl set-ntp true`). Until then each event costs the cloud an extra look-up.", "");
  return found;
}

// Returns one item for warnings that are the same but for their time.
function logged(errors, now) {
  const groups = new Map();
  for (const one of errors) {
    const { suppressed, since, ...fields } = one.fields;
    const key = JSON.stringify([one.level, Object.keys(fields).length ? fields : one.message]);
    groups.set(key, { one, times: (groups.get(key)?.times || 0) + 1 });
  }
  return [...groups.values()].sort((left, right) => right.one.time - left.one.time).map(({ one, times }) => warning(one, times, now));
}

function warning(one, times, now) {
  const cut = (text) => printable(text.length > CHARACTERS_MAX ? `${text.slice(0, CHARACTERS_MAX)}…` : text);
  const [[key, state] = ["", ""]] = Object.entries(one.fields);
  const exact = `${key}=${state}`, known = WARNINGS[exact] || WARNINGS[key];
  const title = !known ? cut(one.message) : WARNINGS[exact] || (/ /.test(known) ? known : `${known}: ${cut(state)}`);
  const others = Object.entries(one.fields).slice(1).filter(([name]) => !HANDLED.has(name)).map(([name, text]) => `${name} ${cut(text)}`);
  const { device, reason, effect, hint } = one.fields;
  const advice = ADVICE[exact] || ADVICE[key] || (hint && cut(hint));
  const own = exact in ADVICE && device; // the reason of these is the advice
  const head = [title, ...(device ? [": ", deviceLink(device)] : [])];
  const time = `${when(one.time, now)}${times > 1 ? `, ${times} times` : ""}`;
  return item(one.level === "warning" ? "warning" : "bad", [element("time", time), " ", ...head], advice,
    [own ? "" : reason && cut(reason), effect && `Effect: ${cut(effect)}`, known && others.join(", ")]);
}

export function showConditions(live) {
  const now = conditions(live);
  $("conditions").replaceChildren(...now.map(([kind, title, advice, detail]) => item(kind, title, advice, [printable(detail).slice(0, CHARACTERS_MAX)])));
  $("conditions-card").hidden = !now.length;
  const log = logged(live.errors, live.now);
  $("errors").replaceChildren(...(log.length ? log : [element("li", "None since the agent started.", "empty")]));
  return now;
}
