"use strict";
// The page asks every two seconds; a page that nobody looks at asks nothing.

const PERIOD_MS = 2000;
const SILENCE_MS = 10000;
const RATE_SAMPLES_MAX = 30;
const LIVE_ROWS_MAX = 100;
const $ = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");
const samples = [];
let after = 0;
let epoch = "";

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
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

async function ask(path) {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(SILENCE_MS) });
  if (answer.status === 401 || answer.status === 403) {
    $("token-form").hidden = false;
    throw new Error("a token is needed");
  }
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.message);
  $("token-form").hidden = true;
  return said;
}

function badge(text, kind) {
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = `badge ${kind}`;
}

function list(id, entries) {
  $(id).replaceChildren(...entries.map(([name, value, note]) => {
    const group = element("div"), shown = element("dd", value);
    if (note) shown.append(element("small", note));
    group.append(element("dt", name), shown);
    return group;
  }));
}

function rates(live) {
  const status = live.status;
  const sent = status.accepted - status.events.new;
  samples.push({ at: live.now / 1000, taken: status.accepted, sent, done: sent - status.events.forwarded });
  if (samples.length > RATE_SAMPLES_MAX) samples.shift();
  const first = samples[0], last = samples[samples.length - 1];
  const seconds = last.at - first.at;
  const rate = (name) => (seconds > 0 ? (last[name] - first[name]) / seconds : 0);
  return { taken: rate("taken"), sent: rate("sent"), done: rate("done") };
}

function perSecond(rate) { return `${rate < 10 ? Math.max(0, rate).toFixed(1) : count.format(Math.round(rate))} a second`; }

function showState(live) {
  const kafka = live.links.kafka;
  if (live.trouble) badge(`✗ refuses events: ${live.trouble}`, "bad");
  else if (kafka && !kafka.up) badge(`! takes events; Kafka is ${kafka.state}`, "warning");
  else if (live.links.receipts && !live.links.receipts.up) {
    badge(`! takes events; receipts are ${live.links.receipts.state}`, "warning");
  } else badge("✓ takes events", "good");
}

function showGlance(live) {
  const status = live.status, rate = rates(live);
  const waiting = status.events.new + status.events.forwarded;
  const drain = status.events.new === 0 ? "nothing to send" :
    rate.sent > rate.taken ? `${duration(status.events.new / (rate.sent - rate.taken))} to drain` : "does not drain now";
  list("glance", [
    ["Accepted", count.format(status.accepted), perSecond(rate.taken)],
    ["Copies recognised", count.format(status.duplicates), "acked again, never stored"],
    ["Rejected", count.format(status.rejected), "kept with the reason"],
    ["Waits for the table", count.format(waiting), waiting ? `the oldest ${duration((live.now - status.oldest_unprocessed) / 1000)}` : "nothing waits"],
    ["Backlog", count.format(status.events.new), drain],
    ["Store", size(status.store_bytes), `${(100 * status.store_bytes / live.store_bytes_max).toFixed(1)} % of its bound`],
    ["Written", size(live.written_bytes), "in all the store's life"],
    ["Clock", live.clock, live.clock === "trusted" ? "synchronised" : "not synchronised"],
  ]);
  $("way").replaceChildren(...[["New", status.events.new, `${perSecond(rate.sent)} leave`],
    ["Forwarded", status.events.forwarded, `${perSecond(rate.done)} receipted`],
    ["Processed, kept", status.events.processed, "in the table"],
    ...(status.events.lost ? [["Lost", status.events.lost, "declared as gaps"]] : [])].map(([name, number, note]) => {
    const item = element("li", name);
    item.append(element("strong", count.format(number)), element("small", note));
    return item;
  }));
  const links = Object.entries(live.links).map(([name, link]) =>
    [name, `${link.state}, for ${duration((live.now - link.since) / 1000)}${link.reason ? `: ${link.reason}` : ""}`]);
  list("links", [...links, ["table", status.table || "no receipt yet"],
    ["label", `epoch ${status.epoch}, sequence ${count.format(status.sequence)}`]]);
}

function row(cells) {
  const made = element("tr");
  made.append(...cells.map((cell) => {
    if (cell instanceof Node) { const box = element("td"); box.append(cell); return box; }
    return typeof cell === "number" ? element("td", count.format(cell), "number") : element("td", cell);
  }));
  return made;
}

function finder(text, query) {
  const button = element("button", text, "link code");
  button.type = "button";
  button.addEventListener("click", () => { $("query").value = query; find(query); $("search").scrollIntoView(); });
  return button;
}

function showDevices(live) {
  if (!live.devices.length) return;
  $("devices").replaceChildren(...live.devices.map((one) => row([finder(one.device, one.device),
    ago(one.last_seen, live.now), one.events, one.duplicates, one.possible_duplicates, one.rejected, one.reason])));
}

function showFeed(live) {
  if (epoch !== live.started) { epoch = live.started; after = 0; $("live").replaceChildren(); samples.length = 0; }
  if ($("pause").checked) return;
  for (const one of live.feed) {
    after = Math.max(after, one.number);
    const last = one.fingerprint ? finder(one.fingerprint, one.fingerprint) : one.reason;
    $("live").prepend(row([clock(one.received), one.outcome, one.device, one.via, last]));
  }
  while ($("live").rows.length > LIVE_ROWS_MAX) $("live").deleteRow(-1);
  if (!$("live").rows.length) {
    const empty = row(["nothing yet"]);
    empty.cells[0].colSpan = 5;
    $("live").append(empty);
  } else if ($("live").rows.length > 1 && $("live").rows[$("live").rows.length - 1].cells.length === 1) $("live").deleteRow(-1);
}

function showErrors(live) {
  const items = live.errors.map((one) => element("li", `${new Date(one.time).toISOString()} ${one.level}: ${one.message}`));
  $("errors").replaceChildren(...(items.length ? items.reverse() : [element("li", "none")]));
}

function plain(value) { return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value); }

function described(one) {
  const box = element("div", undefined, "found");
  const facts = element("dl", undefined, "facts");
  for (const [name, value] of Object.entries(one)) facts.append(element("dt", name), element("dd", plain(value), "code"));
  box.append(facts);
  return box;
}

async function find(query) {
  try {
    const print = /^[0-9a-f]{32}$/i.test(query);
    const path = print ? `/api/v1/trace?fingerprint=${query.toLowerCase()}` : `/api/v1/latest?device=${encodeURIComponent(query)}`;
    const found = await ask(path);
    const none = print ? "not known here: never accepted, or forgotten after identity.retention" : "no stored event of such a device";
    if (!found.length) $("found").replaceChildren(element("p", none));
    else if (print) $("found").replaceChildren(...found.map(described));
    else {
      const items = found.map((one) => {
        const item = element("li", `${new Date(one.received).toISOString()} ${one.device} ${one.state} `);
        item.append(finder(one.fingerprint, one.fingerprint));
        return item;
      });
      const made = element("ul");
      made.append(...items);
      $("found").replaceChildren(element("p", items.length === 1 ? "The one event" : `The latest ${items.length} events`), made);
    }
  } catch (error) { $("found").replaceChildren(element("p", error.message)); }
}

let answered = new Date();

// A fetch that fails without any answer throws a TypeError, or an abort once it has waited for too long.
function showFailure(error) {
  const silent = error instanceof TypeError || error instanceof DOMException;
  document.body.classList.toggle("stale", silent);
  if (silent) badge(`✗ agent not responding since ${answered.toLocaleTimeString()}`, "bad");
  else badge(`? ${error.message}`, "unknown");
}

async function turn() {
  if (!document.hidden) {
    try {
      const live = await ask(`/api/v1/live?after=${after}`);
      answered = new Date();
      document.body.classList.remove("stale");
      $("gateway").textContent = live.status.gateway;
      document.title = `${live.status.gateway} · Oncegate`;
      showState(live); showGlance(live); showDevices(live); showFeed(live); showErrors(live);
      $("footer").textContent = `oncegate ${live.version}; runs since ${new Date(live.started).toISOString()}`;
    } catch (error) { showFailure(error); }
  }
  setTimeout(turn, PERIOD_MS);
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value);
  $("token").value = "";
});
$("search").addEventListener("submit", (event) => { event.preventDefault(); find($("query").value.trim()); });
turn();
