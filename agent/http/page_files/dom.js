// Creates elements. Text from outside becomes a text node only, never markup.

export const $ = (id) => document.getElementById(id);

// Characters that control a terminal or the direction of text, which would disguise what follows.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
export const DEVICE_CHARACTERS = 32;

export function printable(text) {
  return String(text).replace(UNPRINTABLE, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export function shorten(text, characters) {
  const all = Array.from(text);
  return all.length > characters ? `${all.slice(0, characters - 1).join("")}…` : text;
}

export function element(name, content = [], className = "", attributes = {}) {
  const node = document.createElement(name);
  for (const one of [content].flat()) if (one !== undefined && one !== "") node.append(one);
  if (className) node.className = className;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// Shows what is in backticks as code.
export function marked(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", part) : part));
}

export function button(text, className, action) {
  const node = element("button", text, className, { type: "button" });
  node.addEventListener("click", action);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The roles keep a table a table for assistive technology where a small screen lays it out as lines.
export function row(cells, header = false) {
  const line = element("tr", [], "", { role: "row" });
  for (const [content, className] of cells) {
    line.append(element(header ? "th" : "td", content, className, header ? { role: "columnheader", scope: "col" } : { role: "cell" }));
  }
  return line;
}

// A row with one text over all columns.
export function message(text, columns) {
  const line = row([[text, "empty"]]);
  line.cells[0].colSpan = columns.length;
  return line;
}

export function table(label, columns, rows = []) {
  const head = element("thead", row(columns, true), "", { role: "rowgroup" });
  return element("table", [head, element("tbody", rows, "", { role: "rowgroup" })], "", { role: "table", "aria-label": label });
}

export function scrolling(label, content) {
  return element("div", content, "scroll", { role: "region", "aria-label": label, tabindex: "0" });
}

export function facts(entries) {
  const list = element("dl", [], "facts");
  for (const [name, value] of entries) list.append(element("div", [element("dt", name), element("dd", value)]));
  return list;
}

// A device of a rejected event may be no Unicode, which encodeURIComponent does not take.
export const inAddress = (text) => encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"));

export function deviceLink(device, characters = DEVICE_CHARACTERS) {
  const name = printable(device);
  return element("a", shorten(name, characters), "device", { href: `#/device/${inAddress(device)}`, title: name });
}

export function eventLink(fingerprint, text) {
  return element("a", text, "", { href: `#/event/${fingerprint}`, "aria-label": `Event ${fingerprint}: ${text}` });
}

// The first digits of a fingerprint; a click copies all of it.
export function fingerprintButton(fingerprint, length = 8) {
  const digits = fingerprint.slice(0, length);
  const node = button(digits, "fingerprint", async () => {
    setText(node, (await copied(fingerprint)) ? "✓ copied" : "no access");
    setTimeout(() => setText(node, digits), 1500);
  });
  node.title = `Copy ${fingerprint}`;
  node.setAttribute("aria-label", `${digits}: copy fingerprint ${fingerprint}`);
  return node;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // without HTTPS, browsers offer the clipboard on the gateway itself only
    const field = element("textarea", text, "hidden-field");
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  element("a", "", "", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
