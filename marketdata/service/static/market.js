"use strict";
// --- one market -----------------------------------------------------------------------------------------------

const choose = (market, line) => {
  document.querySelectorAll("#markets li").forEach((other) => other.removeAttribute("aria-current"));
  line.setAttribute("aria-current", "true");
  say("");
  if (loading) loading.abort();
  const views = DRAWN.filter((view) => plan.views.includes(view) && market.coverage[view].length);
  const bounds = views.flatMap((view) => market.coverage[view].flat()).map(Date.parse);
  at("question").textContent = market.question || market.slug || market.id;
  at("question").dir = "auto";
  at("names").textContent = [market.slug, market.id, market.status].filter(Boolean).join(" \u00b7 ");
  at("market").hidden = false;
  // A minute later than the plan's limit, which moves while the page loads.
  const oldest = plan.max_history_days === null ? 0 : Date.now() - plan.max_history_days * DAY + 60_000;
  const [first, last] = bounds.length ? [Math.max(oldest, Math.min(...bounds)), Math.max(...bounds)] : [0, 0];
  shown = { market, views, first, last, token: market.tokens[0], points: [], span: 0, end: last };
  const problem = why_not(market, oldest, last);
  if (!problem) { choices(market.tokens); windows(last - first); }
  connect();
  at("view").hidden = at("controls").hidden = problem !== "";
  at("view").classList.toggle("no-books", !views.includes("books"));
  at("busy").textContent = problem;
  if (!problem) load();
};

// To the market that was chosen: on a phone it is below the list.
const go = () => {
  at("question").focus({ preventScroll: true });
  if (at("market").getBoundingClientRect().top > innerHeight / 2) {
    at("market").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
};

// Why a market cannot be shown; empty if it can.
const why_not = (market, oldest, last) => {
  const recorded = DRAWN.filter((view) => market.coverage[view].length);
  if (!recorded.length || !shown.token) return "Neither books nor prices of this market are recorded.";
  if (!shown.views.length) return `Your plan does not allow ${recorded.join(" or ")} of this market.`;
  if (!plan.resolutions.length) return "Your plan allows no resolution.";
  if (last <= oldest) return `Your plan reaches back ${length(plan.max_history_days)}, to ${minute(oldest)} UTC; the history of this market ends ${minute(last)} UTC.`;
  return "";
};

const choices = (tokens) => {
  for (const old of [...at("outcomes").querySelectorAll("label, select")]) old.remove();
  const pick = (place) => { shown.token = tokens[place]; load(true); };
  if (tokens.length > MOST_RADIOS) {
    const list = make("select", "", { "aria-label": "Outcome" });
    list.append(...tokens.map((token, place) => make("option", token.label ?? token.id, { value: place })));
    list.addEventListener("change", () => pick(Number(list.value)));
    at("outcomes").append(list);
    return;
  }
  tokens.forEach((token, place) => {
    const label = make("label");
    const radio = make("input", "", { type: "radio", name: "outcome", value: place });
    radio.checked = place === 0;
    radio.addEventListener("change", () => pick(place));
    label.append(radio, " ", make("bdi", token.label ?? token.id));
    at("outcomes").append(label);
  });
};

const windows = (recorded) => {
  const finest = Math.min(...plan.resolutions.map(width_of));
  const some = WINDOWS.filter(([, ms]) => ms >= finest);
  const fitting = some.filter(([, ms], i) => i === 0 || some[i - 1][1] < recorded);
  at("span").replaceChildren(...fitting.map(([text, ms]) => make("option", text, { value: ms })));
  at("span").value = String(fitting.findLast(([, ms]) => ms <= 7 * DAY)?.[1] ?? fitting[0][1]);
  shown.span = Number(at("span").value);
};

// The finest resolution that gives few buckets; the plan names its finest first.
const bucket = (span) => plan.resolutions.find((name) => span / width_of(name) <= MOST_BUCKETS) ?? plan.resolutions.at(-1);

const paginate = async (view, resolution, start, end, signal) => {
  const path = `/v1/tokens/${encodeURIComponent(shown.token.id)}/${view}`;
  const params = { start_ts: iso(start), end_ts: iso(end), resolution, limit: 200, cursor: null };
  const points = [];
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await request(path, params, signal);
    points.push(...answer.data);
    params.cursor = answer.metadata.next_cursor;
    if (!params.cursor) break;
  }
  return points;
};

const load = async (keep = false) => {
  if (loading) loading.abort();
  const mine = loading = new AbortController();
  const { views, span, first, last } = shown;
  const resolution = bucket(span), width = width_of(resolution);
  const end = Math.min(Math.ceil(shown.end / width) * width, Math.ceil(last / width) * width);
  const start = Math.max(end - span, (plan.max_history_days === null ? Math.floor : Math.ceil)(first / width) * width);
  Object.assign(shown, { resolution, width, start, end });
  at("earlier").disabled = start <= first;
  at("later").disabled = end >= last;
  if (start >= end) {
    show_nothing(`Your plan's lookback of ${length(plan.max_history_days)} leaves less than one bucket of ${resolution}.`);
    return;
  }
  at("busy").textContent = "Loading\u2026";
  at("view").hidden = false;
  at("view").classList.add("stale");
  say("");
  const found = await Promise.allSettled(views.map((view) => paginate(view, resolution, start, end, mine.signal)));
  if (mine !== loading || !shown) return;
  at("view").classList.remove("stale");
  const points = new Map();
  found.forEach((one, i) => {
    if (one.status === "rejected") { fail(at("controls"))(one.reason); return; }
    for (const point of one.value) points.set(point.t, { ...points.get(point.t), ...(views[i] === "books" ? touch(point) : { price: point.p }) });
  });
  if (!shown) return;
  const kept = keep && shown.points.length ? shown.points[at("time").value].ms : null;
  shown.points = [...points].map(([t, point]) => ({ ms: Date.parse(t), ...point })).sort((a, b) => a.ms - b.ms);
  at("busy").textContent = shown.points.length || !at("message").hidden ? "" : "Nothing in this window.";
  at("range").textContent = `${minute(start)} to ${minute(end)} UTC, buckets of ${resolution}; the line is the price`;
  slide(kept);
};

const show_nothing = (text) => {
  Object.assign(shown, { points: [], start: undefined });
  at("view").hidden = true;
  at("busy").textContent = text;
  connect();
};

const touch = ({ bids, asks }) => ({ bids, asks, bid: bids.length ? bids[0][0] : null, ask: asks.length ? asks[0][0] : null });

const slide = (kept) => {
  const { points } = shown;
  const near = kept === null ? -1 : points.findIndex((point) => point.ms >= kept);
  at("time").max = Math.max(0, points.length - 1);
  at("time").value = near < 0 ? points.length - 1 : near;
  at("time").disabled = !points.length;
  const deepest = (side) => Math.min(LEVELS, Math.max(1, ...points.map((point) => (point[side] ?? []).length)));
  shown.rows = { asks: deepest("asks"), bids: deepest("bids") };
  chart();
  select();
};

const select = () => {
  const point = shown.points[at("time").value];
  const text = point ? `${minute(point.ms)} UTC` : "\u2013";
  at("at").textContent = text;
  at("time").setAttribute("aria-valuetext", text);
  const line = document.querySelector("#chart .cursor");
  if (line && point) for (const name of ["x1", "x2"]) line.setAttribute(name, shown.x(point.ms + shown.width / 2));
  const { bid = null, ask = null, price = null } = point ?? {};
  const both = bid !== null && ask !== null;
  const facts = [["Price", price], ...(!shown.views.includes("books") ? [] : [["Bid", bid], ["Ask", ask], ["Mid", both ? (bid + ask) / 2 : null], ["Spread", both ? ask - bid : null]])];
  at("readout").replaceChildren(...facts.map(([name, value]) => pair([name, probability(value)])));
  ladder(point, both && bid >= ask);
  connect();
};

// --- the ladder -----------------------------------------------------------------------------------------------

const ladder = (point, crossed) => {
  const sides = { asks: point?.asks ?? [], bids: point?.bids ?? [] };
  // Bars begin at zero, on one scale for both sides.
  const full = Math.max(0, ...[...sides.asks.slice(0, LEVELS), ...sides.bids.slice(0, LEVELS)].map(([, size]) => size));
  const deepest = Math.max(...["asks", "bids"].map((side) => sides[side].slice(0, LEVELS).reduce((sum, [, size]) => sum + size, 0)));
  const digits = deepest < 10_000 ? 2 : 0;
  at("bar").textContent = full ? `Bars show the size; a full bar is ${number(full, digits)} shares.` : "";
  for (const side of ["asks", "bids"]) {
    let total = 0;
    const rows = sides[side].slice(0, LEVELS).map(([price, size]) => {
      total += size;
      const line = make("tr");
      line.append(make("td", number(price, 3)), make("td", number(size, digits)), make("td", number(total, digits)));
      line.style.backgroundSize = `${full ? 100 * size / full : 0}% 100%`;
      return line;
    });
    while (rows.length < shown.rows[side]) rows.push(blank());
    if (side === "asks") rows.reverse();
    at(side).replaceChildren(...rows);
  }
  const line = make("tr");
  line.append(make("td", between(point, sides, crossed), { colspan: 3 }));
  at("middle").replaceChildren(line);
};

const blank = () => {
  const line = make("tr");
  line.append(make("td", "\u00a0"), make("td"), make("td"));
  line.style.backgroundSize = "0 0";
  return line;
};

const between = (point, { asks, bids }, crossed) => {
  if (!point?.asks) return "no book in this bucket";
  const more = [[asks, "ask"], [bids, "bid"]].filter(([levels]) => levels.length > LEVELS)
    .map(([levels, name]) => `${levels.length - LEVELS} more ${name}${levels.length - LEVELS === 1 ? "" : "s"}`);
  if (!asks.length && !bids.length) return "the book is empty";
  if (!asks.length) return "no asks";
  if (!bids.length) return "no bids";
  return [crossed ? "crossed" : `spread ${probability(point.ask - point.bid)}`, ...more].join(" \u00b7 ");
};
