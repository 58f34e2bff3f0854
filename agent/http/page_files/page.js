"use strict";
// The page polls every two seconds while it is visible.

const PERIOD_MS = 2000;
const TIMEOUT_MS = 10000;
const RATE_SAMPLES_MAX = 30;
const LIVE_ROWS_MAX = 100;
const LINK_NAMES = { kafka: "Kafka", receipts: "Confirmations", mqtt: "MQTT broker" };
const LINK_STATES = { "topic-missing": "topic missing", cloned: "stopped, duplicate gateway", flowing: "arriving", held: "on hold" };
const EVENT_STATES = {
  new: "stored, not yet sent to Kafka", forwarded: "in Kafka, awaiting confirmation",
  processed: "confirmed: in the table", lost: "lost, declared by a gateway.gap event",
};
const TRACE_FIELDS = {
  committed: "stored", accepted: "received", clock: "gateway clock", topic_id: "Kafka topic id",
  batch_offsets: "Kafka offsets of its batch", receipt: "confirmed by table", duplicates: "duplicates received",
};
const $ = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const samples = [];
let after = 0;
let epoch = "";

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function duration(seconds) {
  if (seconds === null || !isFinite(seconds)) return "unknown";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const parts = [];
  let rest = Math.max(0, Math.round(seconds));
  for (const [unit, length] of units) {
    const amount = Math.floor(rest / length);
    rest -= amount * length;
    if (amount || (unit === "s" && !parts.length)) parts.push(`${amount} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

function size(bytes) {
  let unit = 0;
  while (bytes >= 1000 && unit < 4) { bytes /= 1000; unit += 1; }
  return `${unit ? bytes.toFixed(1) : bytes} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

function clock(ms) { return new Date(ms).toLocaleTimeString("en-GB"); }

function ago(ms, now) { return ms === null ? "never" : `${duration((now - ms) / 1000)} ago`; }

async function getJson(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (response.status === 401 || response.status === 403) {
    $("token-form").hidden = false;
    throw new Error("Reader token required");
  }
  const body = await response.json();
  if (!response.ok) throw new Error(body.message);
  $("token-form").hidden = true;
  return body;
}

function badge(text, kind) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = `badge ${kind}`;
}

function list(id, entries) {
  $(id).replaceChildren(...entries.map(([name, value, note]) => {
    const group = element("div"), description = element("dd", value);
    if (note) description.append(element("small", note));
    group.append(element("dt", name), description);
    return group;
  }));
}

function rates(live) {
  const status = live.status;
  const sent = status.accepted - status.events.new;
  samples.push({ at: live.now / 1000, accepted: status.accepted, sent, confirmed: sent - status.events.forwarded });
  if (samples.length > RATE_SAMPLES_MAX) samples.shift();
  const first = samples[0], last = samples[samples.length - 1];
  const seconds = last.at - first.at;
  const rate = (name) => (seconds > 0 ? (last[name] - first[name]) / seconds : 0);
  return { accepted: rate("accepted"), sent: rate("sent"), confirmed: rate("confirmed") };
}

function perSecond(rate) { return `${rate < 10 ? Math.max(0, rate).toFixed(1) : count.format(Math.round(rate))}/s`; }

function linkState(link) { return LINK_STATES[link.state] || link.state; }

function showState(live) {
  const { kafka, receipts } = live.links;
  if (live.trouble) badge(`✗ Refusing events: ${live.trouble}`, "bad");
  else if (kafka && !kafka.up) badge(`! Accepting events, Kafka ${linkState(kafka)}`, "warning");
  else if (receipts && !receipts.up) badge(`! Accepting events, confirmations ${linkState(receipts)}`, "warning");
  else badge("✓ Accepting events", "good");
}

function drainTime(live, rate) {
  const kafka = live.links.kafka, waiting = live.status.events.new;
  if (waiting === 0) return "nothing to send";
  if (rate.sent > rate.accepted) return `drained in ${duration(waiting / (rate.sent - rate.accepted))}`;
  return kafka && !kafka.up ? `not draining, Kafka ${linkState(kafka)}` : "not draining";
}

function showOverview(live, rate) {
  const status = live.status, pending = status.events.new + status.events.forwarded;
  list("glance", [
    ["Accepted", count.format(status.accepted), perSecond(rate.accepted)],
    ["Duplicates", count.format(status.duplicates), "acknowledged again, not stored"],
    ["Rejected", count.format(status.rejected), "invalid; kept with the reason"],
    ["Awaiting confirmation", count.format(pending), pending ? `oldest ${duration((live.now - status.oldest_unprocessed) / 1000)}` : "none pending"],
    ["Not yet sent", count.format(status.events.new), drainTime(live, rate)],
    ["Store", size(status.store_bytes), `${(100 * status.store_bytes / live.store_bytes_max).toFixed(1)} % of the limit`],
    ["Written to disk", size(live.written_bytes), "since the store was created"],
    ["Clock", live.clock, live.clock === "trusted" ? "considered correct" : "not synchronised"],
  ]);
}

function showDelivery(live, rate) {
  const status = live.status;
  const stages = [["Stored, not yet sent", status.events.new, `${perSecond(rate.sent)} sent`],
    ["In Kafka, not yet confirmed", status.events.forwarded, `${perSecond(rate.confirmed)} confirmed`],
    ["Confirmed", status.events.processed, "in the table, still kept here"],
    ...(status.events.lost ? [["Lost", status.events.lost, "declared by gateway.gap events"]] : [])];
  $("stages").replaceChildren(...stages.map(([name, number, note]) => {
    const item = element("li", name);
    item.append(element("strong", count.format(number)), element("small", note));
    return item;
  }));
  const links = Object.entries(live.links).map(([name, link]) => [LINK_NAMES[name] || name,
    `${linkState(link)} for ${duration((live.now - link.since) / 1000)}${link.reason ? `: ${link.reason}` : ""}`]);
  list("links", [...links, ["Table id", status.table || "no confirmation received yet"],
    ["Latest event", status.epoch === null ? "none yet" : `epoch ${status.epoch}, sequence ${count.format(status.sequence)}`]]);
}

function row(cells) {
  const line = element("tr");
  line.append(...cells.map((cell) => {
    if (cell instanceof Node) { const box = element("td"); box.append(cell); return box; }
    return typeof cell === "number" ? element("td", count.format(cell), "number") : element("td", cell);
  }));
  return line;
}

function searchButton(text, query) {
  const button = element("button", text, "link code");
  button.type = "button";
  button.addEventListener("click", () => { $("query").value = query; find(query); $("search").scrollIntoView(); });
  return button;
}

function showDevices(live) {
  if (!live.devices.length) return;
  $("devices").replaceChildren(...live.devices.map((one) => row([searchButton(one.device, one.device),
    ago(one.last_seen, live.now), one.events, one.duplicates, one.possible_duplicates, one.rejected, one.reason])));
}

function showFeed(live) {
  if (epoch !== live.started) { epoch = live.started; after = 0; $("live").replaceChildren(); samples.length = 0; }
  if ($("pause").checked) return;
  for (const one of live.feed) {
    after = Math.max(after, one.number);
    const last = one.fingerprint ? searchButton(one.fingerprint, one.fingerprint) : one.reason;
    $("live").prepend(row([clock(one.received), one.outcome, one.device, one.via, last]));
  }
  while ($("live").rows.length > LIVE_ROWS_MAX) $("live").deleteRow(-1);
  if (!$("live").rows.length) {
    const empty = row(["no events yet"]);
    empty.cells[0].colSpan = 5;
    $("live").append(empty);
  } else if ($("live").rows.length > 1 && $("live").rows[$("live").rows.length - 1].cells.length === 1) $("live").deleteRow(-1);
}

function showErrors(live) {
  const items = live.errors.map((one) => element("li", `${new Date(one.time).toISOString()} ${one.level}: ${one.message}`));
  $("errors").replaceChildren(...(items.length ? items.reverse() : [element("li", "none")]));
}

function plain(value) {
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

function traced(one) {
  const box = element("div", undefined, "found");
  const facts = element("dl", undefined, "facts");
  for (const [name, value] of Object.entries(one)) {
    const text = name === "state" ? EVENT_STATES[value] || value : plain(value);
    facts.append(element("dt", TRACE_FIELDS[name] || name), element("dd", text, "code"));
  }
  box.append(facts);
  return box;
}

async function find(query) {
  try {
    const isFingerprint = /^[0-9a-f]{32}$/i.test(query);
    const path = isFingerprint ? `/api/v1/trace?fingerprint=${query.toLowerCase()}` : `/api/v1/latest?device=${encodeURIComponent(query)}`;
    const found = await getJson(path);
    const none = isFingerprint ? "Not found: never accepted here, or older than identity.retention." :
      "No stored event from a matching device.";
    if (!found.length) $("found").replaceChildren(element("p", none));
    else if (isFingerprint) $("found").replaceChildren(...found.map(traced));
    else {
      const items = found.map((one) => {
        const item = element("li", `${new Date(one.received).toISOString()} ${one.device}: ${EVENT_STATES[one.state] || one.state} `);
        item.append(searchButton(one.fingerprint, one.fingerprint));
        return item;
      });
      const results = element("ul");
      results.append(...items);
      $("found").replaceChildren(element("p", items.length === 1 ? "1 event" : `Latest ${items.length} events`), results);
    }
  } catch (error) { $("found").replaceChildren(element("p", error.message)); }
}

let lastResponse = new Date();

// A fetch without a response throws a TypeError, or a DOMException after the timeout.
function showFailure(error) {
  const isSilent = error instanceof TypeError || error instanceof DOMException;
  document.body.classList.toggle("stale", isSilent);
  if (isSilent) badge(`✗ Agent not responding since ${lastResponse.toLocaleTimeString()}`, "bad");
  else badge(`? ${error.message}`, "unknown");
}

async function refresh() {
  if (!document.hidden) {
    try {
      const live = await getJson(`/api/v1/live?after=${after}`);
      lastResponse = new Date();
      document.body.classList.remove("stale");
      $("gateway").textContent = live.status.gateway;
      document.title = `${live.status.gateway} · Oncegate`;
      const rate = rates(live);
      showState(live); showOverview(live, rate); showDelivery(live, rate);
      showDevices(live); showFeed(live); showErrors(live);
      $("footer").textContent = `oncegate ${live.version} (${live.form}); running since ${new Date(live.started).toISOString()}`;
    } catch (error) { showFailure(error); }
  }
  setTimeout(refresh, PERIOD_MS);
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  $("token").value = "";
});
$("search").addEventListener("submit", (event) => { event.preventDefault(); find($("query").value.trim()); });
refresh();
