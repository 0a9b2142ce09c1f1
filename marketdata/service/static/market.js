"use strict";
// --- one market -----------------------------------------------------------------------------------------------

const name_of = (market) => market.slug || market.id;

const mark = (line, market) => {
  if (shown && market.id === shown.market.id) line.setAttribute("aria-current", "true"); else line.removeAttribute("aria-current");
};

// A market, with the outcome and the times that an address may name. ``entered``: as a step of the history of this tab.
const choose = async (market, want = {}, entered = false) => {
  say("");
  if (loading) loading.abort();
  const views = DRAWN.filter((view) => plan.views.includes(view) && market.coverage[view].length);
  const bounds = views.flatMap((view) => market.coverage[view].flat()).map(Date.parse);
  at("question").textContent = market.question || market.slug || market.id;
  at("question").dir = "auto";
  at("names").textContent = at("names").title = [market.status, market.slug, market.id].filter(Boolean).join(" \u00b7 ");
  at("market").hidden = false;
  // A minute later than the plan's limit, which moves while the page loads.
  const oldest = plan.max_history_days === null ? 0 : Date.now() - plan.max_history_days * DAY + 60_000;
  const [first, last] = bounds.length ? [Math.max(oldest, Math.min(...bounds)), Math.max(...bounds)] : [0, 0];
  const named = market.tokens.find((token) => want.outcome !== null && [token.id, token.label].includes(want.outcome));
  // ``time`` is what the user chose; null is the end of the window.
  const mine = shown = { market, views, first, last, token: named ?? market.tokens[0], points: [], span: 0, end: last, time: want.time ?? null, entered };
  listed.forEach((other, place) => mark(at("markets").children[place], other));
  const problem = why_not(market, oldest, last);
  if (!problem) {
    windows(last - first);
    if (want.from < want.to) see(want.from, want.to);
    choices(market.tokens);
    if (market.tokens.length > 2) {
      const tokens = await favourites_first(market);
      if (mine !== shown || shown.picked) return;
      shown.token = named ?? tokens[0];
      choices(tokens);
    }
  }
  connect();
  at("view").hidden = at("controls").hidden = problem !== "";
  at("view").classList.toggle("no-books", !views.includes("books"));
  at("busy").textContent = problem;
  if (!problem) load();
};

// Outcomes in the order of the record, which begins with Yes; of more than two, by the last price.
const favourites_first = async ({ id, tokens }) => {
  try {
    const { last_prices } = await request("/coverage", { market: id });
    return [...tokens].sort((a, b) => (last_prices[b.id] ?? -1) - (last_prices[a.id] ?? -1));
  } catch (problem) { fail(at("controls"))(problem); return tokens; }
};

// To the market that was chosen: on a phone it is above the list.
const go = () => {
  at("question").focus({ preventScroll: true });
  const { top } = at("question").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) {
    at("question").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
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
  const pick = (place) => { Object.assign(shown, { token: tokens[place], picked: true }); load(); };
  if (tokens.length > MOST_RADIOS) {
    const list = make("select", "", { "aria-label": "Outcome" });
    list.append(...tokens.map((token, place) => make("option", token.label ?? token.id, { value: place })));
    list.value = tokens.indexOf(shown.token);
    list.addEventListener("change", () => pick(Number(list.value)));
    at("outcomes").append(list);
    return;
  }
  tokens.forEach((token, place) => {
    const label = make("label");
    const radio = make("input", "", { type: "radio", name: "outcome", value: place });
    radio.checked = token === shown.token;
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

// A window of the user's own: that of an address, or of a part of the chart.
const see = (start, end) => {
  const finest = Math.min(...plan.resolutions.map(width_of));
  const from = Math.max(shown.first, start), to = Math.min(shown.last, end);
  shown.span = Math.max(5 * finest, to - from);
  shown.end = Math.min(shown.last, from + shown.span);
  at("span").querySelector("[data-own]")?.remove();
  if (![...at("span").options].some((option) => Number(option.value) === shown.span)) {
    at("span").prepend(make("option", length(shown.span / DAY), { value: shown.span, "data-own": "" }));
  }
  at("span").value = String(shown.span);
};

// Another width: the chosen time stays, in the middle where the history allows.
const widen = (span) => {
  shown.span = span;
  if (shown.time !== null) shown.end = Math.min(shown.last, Math.max(shown.time + span / 2, shown.first + span));
  load();
};

// The finest resolution that gives few buckets; the plan names its finest first.
const bucket = (span) => plan.resolutions.find((name) => span / width_of(name) <= MOST_BUCKETS) ?? plan.resolutions.at(-1);

const paginate = async (view, resolution, start, end, signal) => {
  const path = `/v1/tokens/${encodeURIComponent(shown.token.id)}/${view}`;
  const params = { start_ts: iso(start), end_ts: iso(end), resolution, limit: LIMIT, cursor: null };
  const points = [];
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await request(path, params, signal);
    points.push(...answer.data);
    params.cursor = answer.metadata.next_cursor;
    if (!params.cursor) break;
  }
  return points;
};

const load = async () => {
  if (loading) loading.abort();
  const mine = loading = new AbortController();
  const { views, span, first, last } = shown;
  const resolution = bucket(span), width = width_of(resolution);
  const end = Math.min(Math.ceil(shown.end / width) * width, Math.ceil(last / width) * width);
  const start = Math.max(Math.floor((end - span) / width) * width, (plan.max_history_days === null ? Math.floor : Math.ceil)(first / width) * width);
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
  shown.points = [...points].map(([t, point]) => ({ ms: Date.parse(t), ...point })).sort((a, b) => a.ms - b.ms);
  at("busy").textContent = shown.points.length || !at("message").hidden ? "" : "Nothing in this window.";
  at("range").textContent = `${minute(start)} to ${minute(end)} UTC, buckets of ${resolution}; the line is the price`;
  slide();
};

const show_nothing = (text) => {
  Object.assign(shown, { points: [], start: undefined });
  at("view").hidden = true;
  at("busy").textContent = text;
  connect();
};

const touch = ({ bids, asks }) => ({ bids, asks, bid: bids.length ? bids[0][0] : null, ask: asks.length ? asks[0][0] : null });

const slide = () => {
  const { points } = shown;
  at("time").max = Math.max(0, points.length - 1);
  at("time").disabled = !points.length;
  // Prices have the digits of the tick; a mean of prices has one more.
  const prices = points.flatMap(({ bids, asks }) => [...(bids ?? []), ...(asks ?? [])].map(([price]) => price));
  shown.digits = [2, 3].find((digits) => prices.every((price) => Math.abs(price * 10 ** digits - Math.round(price * 10 ** digits)) < 1e-6)) ?? 4;
  if (!prices.length) shown.digits = 3;
  const deepest = (side) => Math.min(LEVELS, Math.max(1, ...points.map((point) => (point[side] ?? []).length)));
  shown.rows = { asks: deepest("asks"), bids: deepest("bids") };
  chart();
  rest();
  remember();
};

// At the time that was chosen: the bucket that has it, else the nearest; without one at the end.
const rest = () => {
  const { points, time, start, end, width } = shown;
  const away = time === null || time < start || time >= end ? [] : points.map(({ ms }) => Math.max(ms - time, time - ms - width + 1, 0));
  at("time").value = away.length ? away.indexOf(Math.min(...away)) : points.length - 1;
  select();
};

// The user's choice of a time.
const keep = () => {
  shown.time = shown.points[at("time").value].ms;
  select();
  remember();
};

// The address of what is shown. Browsers refuse many changes of it in a row.
let remembering = 0;
const remember = (entered = false) => {
  clearTimeout(remembering);
  shown.entered ||= entered;
  const mine = shown;
  remembering = setTimeout(() => {
    if (mine !== shown || shown.start === undefined) return;
    const { market, token, start, end, time, entered: step } = shown;
    const own = token !== market.tokens[0] && { outcome: token.label ?? token.id };
    const parts = { market: name_of(market), ...own, from: iso(start), to: iso(end), ...(time === null ? {} : { at: iso(time) }) };
    const address = "#" + Object.entries(parts).map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%3A", ":")}`).join("&");
    shown.entered = false;
    if (address !== location.hash) history[step && location.hash ? "pushState" : "replaceState"](null, "", address);
  }, 200);
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
  const { digits } = shown;
  const facts = [["Price", price, digits + 1], ...(!shown.views.includes("books") ? [] : [["Bid", bid, digits], ["Ask", ask, digits], ["Mid", both ? (bid + ask) / 2 : null, digits + 1], ["Spread", both ? ask - bid : null, digits]])];
  at("readout").replaceChildren(...facts.map(([name, value, shown_digits]) => pair([name, probability(value, shown_digits)])));
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
      line.append(make("td", number(price, shown.digits)), make("td", number(size, digits)), make("td", number(total, digits)));
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
  return [crossed ? "crossed" : `spread ${probability(point.ask - point.bid, shown.digits)}`, ...more].join(" \u00b7 ");
};
