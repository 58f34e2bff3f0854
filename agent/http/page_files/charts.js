// Line charts as SVG. A value that is null interrupts the line.

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300, HEIGHT = 60, PADDING = 3;

function node(name, attributes) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function chart(className) {
  const picture = node("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: `chart ${className}`, role: "img" });
  picture.append(node("path", { class: "area" }), node("path", { class: "line" }));
  return picture;
}

// Draws the values of equal intervals, the last one at the right; `room` values would fill the width.
export function drawSeries(picture, values, room, label, high = highest(values)) {
  const step = WIDTH / Math.max(1, room - 1);
  const points = values.map((value, at) => [WIDTH - (values.length - 1 - at) * step, value]);
  draw(picture, points, 0, high, label);
}

// Draws values at times of any distance, between the lowest and the highest.
export function drawPoints(picture, points, label) {
  const times = points.map(([time]) => time), values = points.map(([, value]) => value);
  const first = Math.min(...times), length = Math.max(...times) - first;
  const scaled = points.map(([time, value]) => [length ? (WIDTH * (time - first)) / length : WIDTH, value]);
  draw(picture, scaled, Math.min(...values), Math.max(...values), label);
}

export function highest(values) { return Math.max(0, ...values.filter((value) => value !== null)); }

function draw(picture, points, low, high, label) {
  picture.setAttribute("aria-label", label);
  const [area, line] = picture.children;
  const runs = [[]];
  for (const [x, value] of points) {
    if (value === null) { if (runs.at(-1).length) runs.push([]); } else runs.at(-1).push([x, height(value, low, high)]);
  }
  const lines = runs.filter((run) => run.length).map((run) => (run.length === 1 ? [[run[0][0] - 2, run[0][1]], run[0]] : run));
  const path = (run) => run.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  line.setAttribute("d", lines.map(path).join(""));
  area.setAttribute("d", lines.map((run) => `${path(run)}L${run.at(-1)[0].toFixed(1)} ${HEIGHT}L${run[0][0].toFixed(1)} ${HEIGHT}Z`).join(""));
}

function height(value, low, high) {
  const share = high > low ? (value - low) / (high - low) : low ? 0.5 : 0;
  return HEIGHT - PADDING - share * (HEIGHT - 2 * PADDING);
}
