"use strict";
// --- the chart: resting orders through time --------------------------------------------------------------------

const has = (value) => value !== null && value !== undefined;

const chart = () => {
  const { points, start, end, width } = shown;
  const wide = Math.max(260, at("chart").clientWidth), high = matchMedia("(max-width: 48rem)").matches ? 300 : 420;
  const [left, right, top, bottom] = [44, wide - 8, 10, high - 24];
  const values = points.flatMap((point) => [...(point.bids ?? []), ...(point.asks ?? [])].map(([price]) => price).concat(point.price ?? []));
  const lowest = values.reduce((a, b) => Math.min(a, b), values.length ? 1 : 0), highest = values.reduce((a, b) => Math.max(a, b), values.length ? 0 : 1);
  const room = Math.max(0.01, (highest - lowest) * 0.04);
  const [low, most] = [Math.max(0, lowest - room), Math.min(1, highest + room)];
  const x = (ms) => left + (right - left) * (ms - start) / Math.max(1, end - start);
  const y = (value) => bottom - (bottom - top) * (value - low) / (most - low);
  shown.x = x;
  shown.ms_at = (px) => start + (px - left) / (right - left) * (end - start);
  const svg = draw("svg", { width: wide, height: high, role: "img" });
  svg.append(draw("title", {}, values.length ? `Resting orders and price, ${minute(start)} to ${minute(end)} UTC, from ${probability(lowest)} to ${probability(highest)}` : "Nothing in this window"));
  gaps(svg, points, { x, top, bottom, start, end, width });
  axes(svg, { left, right, top, bottom, low, most, x, y, start, end });
  const line = points.map((point) => ({ ms: point.ms, value: point.price ?? middle(point) })).filter((point) => has(point.value));
  const d = trace(line, x, y, width);
  svg.append(draw("path", { class: "halo", d }), draw("path", { class: "price", d }));
  svg.append(draw("line", { class: "cursor", x1: -9, x2: -9, y1: top, y2: bottom }));
  svg.append(draw("rect", { class: "zoom", x: -9, y: top, width: 0, height: bottom - top }));
  at("chart").replaceChildren(heat(points, { wide, high, x, y, width }), svg);
};

const middle = ({ bid, ask }) => has(bid) && has(ask) ? (bid + ask) / 2 : null;

// Buckets without any point are hatched: they are not times without orders.
const gaps = (svg, points, { x, top, bottom, start, end, width }) => {
  const hatch = draw("pattern", { id: "hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  hatch.append(draw("rect", { class: "nothing", width: 7, height: 7 }), draw("line", { class: "hatch", y2: 7 }));
  svg.append(hatch);
  const ends = [start, ...points.map(({ ms }) => ms + width)];
  [...points.map(({ ms }) => ms), end].forEach((next, i) => {
    if (next > ends[i]) svg.append(draw("rect", { class: "gap", fill: "url(#hatch)", x: x(ends[i]), y: top, width: x(next) - x(ends[i]), height: bottom - top }));
  });
};

// Shares in steps of price. A bid belongs to the step below its price and an ask to the one above, so that both have their own.
const summed = (levels, side, step) => {
  const found = new Map();
  for (const [price, size] of levels ?? []) {
    const place = Math.floor((price + (side === "asks" ? 5e-4 : -5e-4)) / step);
    found.set(place, (found.get(place) ?? 0) + size);
  }
  return found;
};

const heat = (points, { wide, high, x, y, width }) => {
  // Steps of 0.001 where they are at least two pixels high and the prices have them.
  const fine = y(0) - y(0.001) >= 2 && points.some((point) => (point.bids ?? []).some(([price]) => Math.abs(price * 100 - Math.round(price * 100)) > 1e-6));
  const step = fine ? 0.001 : 0.01;
  const found = points.flatMap((point) => ["bids", "asks"].map((side) => [side, point.ms, summed(point[side], side, step)]));
  const shades = found.flatMap(([, , cells]) => [...cells.values()].map((shares) => Math.log10(1 + shares))).sort((a, b) => a - b);
  const limit = Math.max(1, shades[Math.floor(shades.length * 0.99)] ?? 0);
  const ramps = { bids: ramp("--bids"), asks: ramp("--asks") };
  const canvas = make("canvas", "", { "aria-hidden": "true" });
  const dense = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [wide * dense, high * dense];
  const paper = canvas.getContext("2d");
  const pixel = (value) => Math.round(value * dense);
  for (const [side, ms, cells] of found) {
    const [a, b] = [pixel(x(ms)), pixel(x(ms + width))];
    for (const [place, shares] of cells) {
      const [above, below] = [pixel(y((place + 1) * step)), pixel(y(place * step))];
      paper.fillStyle = ramps[side][Math.round(63 * Math.min(1, Math.log10(1 + shares) / limit))];
      paper.fillRect(a, above, Math.max(1, b - a), Math.max(1, below - above));
    }
  }
  at("scale").replaceChildren(...(shades.length ? [scale(ramps, limit, step)] : []));
  return canvas;
};

// 64 colours from few shares to many, through the three of a property of the style.
const ramp = (name) => {
  const stops = getComputedStyle(document.documentElement).getPropertyValue(name).trim().split(/\s+/)
    .map((text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)));
  return Array.from({ length: 64 }, (_, i) => {
    const place = i / 63 * (stops.length - 1), from = Math.min(stops.length - 2, Math.floor(place));
    return `rgb(${stops[from].map((value, k) => Math.round(value + (stops[from + 1][k] - value) * (place - from))).join(" ")})`;
  });
};

const scale = (ramps, limit, step) => {
  const svg = draw("svg", { width: 250, height: 46, role: "img" });
  svg.append(draw("title", {}, `Shares at each ${step} of price, from few to many`));
  ["asks", "bids"].forEach((side, row) => {
    svg.append(draw("text", { x: 0, y: 11 + 14 * row }, side));
    ramps[side].forEach((fill, i) => svg.append(draw("rect", { x: 34 + 3 * i, y: 2 + 14 * row, width: 3, height: 10, fill })));
  });
  for (let power = 1; power <= limit + 0.02; power += 1) {
    const place = 34 + 192 * Math.min(1, Math.log10(1 + 10 ** power) / limit);
    svg.append(draw("text", { class: "tick", x: place, y: 42, "text-anchor": "middle" }, power > 5 ? `${10 ** (power - 6)}M` : power > 2 ? `${10 ** (power - 3)}k` : `${10 ** power}`));
  }
  svg.append(draw("text", { x: 0, y: 42 }, "shares"));
  return svg;
};

// A line through the middles of neighbouring buckets; a bucket without a value breaks it.
const trace = (points, x, y, width) => points.map(({ ms, value }, i) => {
  const joined = i > 0 && ms - points[i - 1].ms === width;
  const place = `${x(ms + width / 2)} ${y(value)}`;
  return joined ? `L${place}` : `M${place}h0`;
}).join("");

const axes = (svg, { left, right, top, bottom, low, most, x, y, start, end }) => {
  const rise = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2].find((step) => (most - low) / step <= 6) ?? 0.25;
  for (let i = Math.ceil(low / rise - 1e-9); i * rise <= most + 1e-9; i += 1) {
    svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: y(i * rise), y2: y(i * rise) }));
    svg.append(draw("text", { x: left - 6, y: y(i * rise) + 4, "text-anchor": "end" }, number(i * rise, rise < 0.01 ? 3 : 2)));
  }
  const most_labels = Math.max(2, Math.floor((right - left) / 90));
  const minutes = [10, 30, 60, 180, 360, 720, 1440, 2880, 10080, 20160, 43200, 86400, 172800];
  const step = (minutes.find((one) => (end - start) / (one * 60_000) <= most_labels) ?? 345600) * 60_000;
  for (let ms = Math.ceil(start / step) * step; ms <= end; ms += step) {
    const text = new Date(ms).toLocaleString("en-GB", ms % DAY ? { hour: "2-digit", minute: "2-digit", timeZone: "UTC" } : { day: "numeric", month: "short", timeZone: "UTC" });
    svg.append(draw("line", { class: "grid", x1: x(ms), x2: x(ms), y1: bottom, y2: bottom + 5 }));
    const near = x(ms) > right - 20 ? "end" : x(ms) < left + 20 ? "start" : "middle";
    svg.append(draw("text", { x: x(ms), y: bottom + 18, "text-anchor": near }, text));
  }
  svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: bottom, y2: bottom }));
  if (document.documentElement.dataset.simulated === "yes") {
    svg.append(draw("text", { class: "ghost", x: right - 6, y: top + 14, "text-anchor": "end" }, "SIMULATED"));
  }
};

// --- the pointer ------------------------------------------------------------------------------------------------

const MOVED = 6;  // a shorter way [pixels] is a click
let grabbed = null;
const place_of = (event) => event.clientX - at("chart").getBoundingClientRect().left;

// Shows the time under the pointer; ``keep`` or ``rest`` say what stays when it has left.
const point_at = (event) => {
  if (!shown?.points.length) return;
  const ms = shown.ms_at(place_of(event)) - shown.width / 2;
  const away = shown.points.map((point) => Math.abs(point.ms - ms));
  at("time").value = away.indexOf(Math.min(...away));
  select();
};

const band = (from = -9, to = -9) => {
  const mark = document.querySelector("#chart .zoom");
  if (mark) for (const [name, value] of [["x", Math.min(from, to)], ["width", Math.abs(to - from)]]) mark.setAttribute(name, value);
};

// A mouse drags a window; a finger scrolls the page, or reads the values under it.
const grab = (event) => {
  if (!shown?.points.length || event.button > 0) return;
  if (event.pointerType !== "mouse") { point_at(event); keep(); return; }
  grabbed = place_of(event);
  event.preventDefault();
  if (event.isTrusted) at("chart").setPointerCapture(event.pointerId);
};

const move = (event) => {
  if (grabbed === null) { point_at(event); if (event.pointerType === "touch") keep(); } else band(grabbed, place_of(event));
};

const release = (event) => {
  if (grabbed === null) return;
  const [from, to] = [grabbed, place_of(event)].sort((a, b) => a - b);
  drop();
  if (to - from < MOVED) { point_at(event); keep(); return; }
  see(shown.ms_at(Math.max(from, shown.x(shown.start))), shown.ms_at(Math.min(to, shown.x(shown.end))));
  shown.entered = true;
  load();
};

const drop = () => { grabbed = null; band(); };
