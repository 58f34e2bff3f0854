// Polls the agent while the page is visible, and shows the view that the address names.
import { $, element, printable, setText } from "./dom.js";
import { SilentError, TokenError, getJson, setToken } from "./api.js";
import { clock, moment } from "./format.js";
import { buildOverview, refreshHistory, showOverview } from "./overview.js";
import { addFeed, buildLive, feed } from "./live.js";
import { buildRejected, showRejected } from "./rejected.js";
import { buildSearch, showFound } from "./search.js";
import { showConditions } from "./conditions.js";
import { showDevice } from "./device.js";
import { showDevices } from "./devices.js";
import { showEvent } from "./event.js";
import { showLanes } from "./lanes.js";

const PERIOD_MS = 2000;
const VIEWS = { overview: null, rejected: showRejected, device: showDevice, event: showEvent, find: showFound };
let lastResponse = Date.now();
let gateway = "";
let timer = 0, polling = false;
const shown = { view: "overview", argument: "", counts: "" };

function badge(text, kind) {
  setText($("state"), text);
  $("state").className = `badge ${kind}`;
}

function showState(live, conditions) {
  const kinds = new Set(conditions.map(([kind]) => kind));
  if (live.trouble) badge("✗ Refusing events", "bad");
  else if (kinds.has("bad")) badge("! Accepting events", "warning");
  else badge("✓ Accepting events", "good");
}

function showLive(live) {
  gateway = live.status.gateway;
  setText($("gateway"), printable(gateway));
  addFeed(live);
  const conditions = showConditions(live);
  showState(live, conditions);
  showOverview(live);
  showLanes(live);
  showDevices(live);
  if (isOutdated(live)) $("newer").hidden = false;
  setText($("footer"), `oncegate ${live.version} (${live.form}), running since ${moment(live.started)}. Figures as of ${clock(Date.now())}.`);
}

function showFailure(error) {
  $("token-form").hidden = !(error instanceof TokenError);
  const silent = error instanceof SilentError;
  document.body.classList.toggle("stale", silent);
  $("gone").hidden = !silent;
  if (silent) {
    setText($("gone"), `✗ Agent not responding since ${clock(lastResponse)}. The figures are from then.`);
    badge("✗ Agent not responding", "bad");
  } else badge(`? ${error.message}`, "unknown");
}

// Whether the view of a device or event shows an older state. It is read again on request: a reader may have scrolled.
// The first poll has what the view has just read, too.
function isOutdated(live) {
  const counts = JSON.stringify(live.status.events), first = !shown.counts, changed = counts !== shown.counts;
  shown.counts = counts;
  if (first) return false;
  return shown.view === "device" ? live.feed.some((one) => one.device === shown.argument) : shown.view === "event" && changed;
}

async function poll() {
  if (polling) return;
  polling = true;
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      const [live] = await Promise.all([getJson(`/api/v1/live?after=${feed.after}`), refreshHistory()]);
      lastResponse = Date.now();
      document.body.classList.remove("stale");
      $("gone").hidden = true;
      if (!$("token-form").hidden) {
        $("token-form").hidden = true;
        route();
      }
      showLive(live);
    } catch (error) { showFailure(error); }
  }
  polling = false;
  timer = setTimeout(poll, PERIOD_MS);
}

// Shows the view of the address: `#/device/NAME`, `#/event/FINGERPRINT`, `#/find/TEXT`, `#/rejected`, or the overview.
async function route() {
  const [, name, argument] = /^#\/([a-z]+)\/?(.*)$/.exec(location.hash) || [null, "overview", ""];
  const view = Object.hasOwn(VIEWS, name) ? name : "overview";
  Object.assign(shown, { view, argument: decode(argument) });
  $("newer").hidden = true;
  for (const one of Object.keys(VIEWS)) $(`view-${one}`).hidden = one !== view;
  for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("data-current", link.hash === `#/${view}`);
  document.title = `${gateway ? `${gateway} · ` : ""}Oncegate`;
  if (!VIEWS[view]) return;
  try {
    await VIEWS[view](shown.argument);
    $(`view-${view}`).querySelector("h2")?.focus({ preventScroll: true });
  } catch (error) {
    if (view !== "rejected") $(`view-${view}`).replaceChildren(element("p", error.message, "card empty"));
    if (error instanceof TokenError) showFailure(error);
  }
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value);
  $("token").value = "";
  poll();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
$("newer").addEventListener("click", route);
addEventListener("hashchange", () => { scrollTo(0, 0); route(); });
buildOverview();
buildLive();
buildRejected();
buildSearch();
route();
poll();
