// --- the chart ------------------------------------------------------------------------------------------------

const chart = () => {
  const { points, start, end, width } = shown;
  const wide = Math.max(260, at("chart").clientWidth), high = matchMedia("(max-width: 48rem)").matches ? 280 : 360;
  const [left, right, top, bottom] = [44, wide - 8, 10, high - 24];
  const values = points.flatMap((point) => [point.bid, point.ask, point.price]).filter((value) => value !== null && value !== undefined);
  let [low, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const room = Math.max(0.005, (most - low) * 0.08);
  [low, most] = [Math.max(0, low - room), Math.min(1, most + room)];
  const x = (ms) => left + (right - left) * (ms - start) / Math.max(1, end - start);
  const y = (value) => bottom - (bottom - top) * (value - low) / Math.max(1e-9, most - low);
  shown.x = x;
  shown.time = (px) => start + (px - left) / (right - left) * (end - start);
  const svg = draw("svg", { width: wide, height: high, role: "img" });
  svg.append(draw("title", {}, values.length ? `Price and best bid to best ask, ${minute(start)} to ${minute(end)} UTC, from ${probability(Math.min(...values))} to ${probability(Math.max(...values))}` : "Nothing in this window"));
  axes(svg, { left, right, top, bottom, low, most, x, y, start, end });
  const steps = (of) => points.filter(of).map((point) => [point, x(point.ms), x(point.ms + width)]);
  const two = steps((point) => has(point.bid) && has(point.ask));
  svg.append(draw("path", { class: "band", d: two.map(([p, a, b]) => `M${a} ${y(p.bid)}H${b}V${y(p.ask)}H${a}Z`).join("") }));
  for (const side of ["bid", "ask"]) {
    svg.append(draw("path", { class: "quote", d: steps((point) => has(point[side])).map(([p, a, b]) => `M${a} ${y(p[side])}H${b}`).join("") }));
  }
  svg.append(draw("path", { class: "price", d: trace(points.filter((point) => has(point.price)), x, y, width) }));
  svg.append(draw("line", { class: "cursor", x1: -9, x2: -9, y1: top, y2: bottom }));
  at("chart").replaceChildren(svg);
};

const has = (value) => value !== null && value !== undefined;

// A line through the middles of neighbouring buckets; a bucket without a price breaks it.
const trace = (points, x, y, width) => points.map((point, i) => {
  const joined = i > 0 && point.ms - points[i - 1].ms === width;
  const place = `${x(point.ms + width / 2)} ${y(point.price)}`;
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

const point_at = (event) => {
  if (!shown?.points.length) return;
  const ms = shown.time(event.clientX - at("chart").getBoundingClientRect().left) - shown.width / 2;
  const gaps = shown.points.map((point) => Math.abs(point.ms - ms));
  at("time").value = gaps.indexOf(Math.min(...gaps));
  select();
};
