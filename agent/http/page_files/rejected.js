// The page of the rejected events: lists, filters and downloads them.
import { $, button, deviceLink, download, element, printable, row, table } from "./dom.js";
import { count, moment } from "./format.js";
import { getJson } from "./api.js";

const ROWS_A_PAGE = 50, ROWS_MAX = 1000;
const PREVIEW_BYTES = 96;
const COLUMNS = [["Received", "moment"], ["Device", "wide"], ["Protocol", "via"], ["Reason", "values"], ["First bytes", "raw"], ["Bytes", "save"]];
let shown = [];

export function buildRejected() {
  $("rejected-filter").addEventListener("submit", (event) => { event.preventDefault(); run(showRejected); });
  $("rejected-more").addEventListener("click", () => run(showMore));
  $("rejected-download").addEventListener("click", () => run(downloadAll));
}

async function run(action) {
  try { await action(); } catch (error) { $("rejected-note").textContent = error.message; }
}

function query(limit, before) {
  const words = new URLSearchParams({ limit });
  const device = $("rejected-device").value.trim();
  if ($("rejected-via").value) words.set("via", $("rejected-via").value);
  if (device) words.set("device", /[*?[]/.test(device) ? device : `*${device}*`);
  if ($("rejected-reason").value.trim()) words.set("reason", $("rejected-reason").value.trim());
  if (before) words.set("before", before);
  return `/api/v1/rejected?${words}`;
}

export async function showRejected() {
  shown = [];
  $("rejected-note").textContent = "";
  $("rejected-list").replaceChildren(table("Rejected events", COLUMNS));
  await showMore();
}

async function showMore() {
  const listed = shown, found = await getJson(query(ROWS_A_PAGE, shown.at(-1)?.number));
  if (listed !== shown) return; // another filter was applied meanwhile
  shown.push(...found);
  $("rejected-list").querySelector("tbody").append(...found.map(line));
  $("rejected-more").hidden = found.length < ROWS_A_PAGE;
  $("rejected-download").disabled = !shown.length;
  $("rejected-note").textContent = shown.length ? `${count(shown.length)} shown, the latest first` : "No rejected event matches.";
}

function line(one) {
  const save = button("Save", "link", () => download(`rejected-${one.number}.bin`, [bytes(one.raw)], "application/octet-stream"));
  save.setAttribute("aria-label", `Save the bytes of rejected event ${one.number}`);
  return row([[moment(one.received), "moment"], [deviceLink(one.device), "wide"], [one.via, "via"], [printable(one.reason), "values"], [preview(one.raw), "raw"], [one.raw ? save : "", "save"]]);
}

// Shows bytes as text where they are UTF-8, else as hex digits.
function preview(raw) {
  const first = bytes(raw.slice(0, 2 * PREVIEW_BYTES));
  const cut = raw.length > 2 * PREVIEW_BYTES ? "…" : "";
  try {
    return element("code", printable(new TextDecoder("utf-8", { fatal: true }).decode(first, { stream: true })) + cut);
  } catch {
    return element("code", raw.slice(0, PREVIEW_BYTES) + cut);
  }
}

function bytes(raw) { return Uint8Array.from(raw.match(/../g) || [], (digits) => parseInt(digits, 16)); }

async function downloadAll() {
  const all = await getJson(query(ROWS_MAX));
  download("rejected.jsonl", all.map((one) => `${JSON.stringify(one)}\n`), "application/jsonl");
}
