"use strict";
// --- the key --------------------------------------------------------------------------------------------------

const open = async (given) => {
  key = given;
  say("");
  if (!/^[\x21-\x7e]+$/.test(given)) {
    key = null;
    at("access").hidden = false;
    say("A key has no spaces and only plain letters, digits and signs.");
    return;
  }
  try {
    await list(true);
    if (key !== given) return; // another key was given while this one was asked for
    kept.write(given);
    at("access").hidden = true;
    const [first] = document.querySelectorAll("#markets button");
    if (first) first.focus({ preventScroll: true });
    if (await follow()) return;
    const place = Math.max(0, listed.findIndex((market) => DRAWN.some((view) => plan.views.includes(view) && market.coverage[view].length)));
    if (listed.length) choose(listed[place]);
  } catch (problem) {
    if (key !== given) return;
    at("access").hidden = false;
    fail(at("key-form"))(problem);
  }
};

// The market and time of the address, whether or not it is listed; false if the address names none that is there.
const follow = async () => {
  const want = wanted();
  if (!key || !want.market) return false;
  if (shown?.market && name_of(shown.market) === want.market) { choose(shown.market, want); return true; }
  const { data: [market] } = await request("/coverage", { market: want.market });
  if (market) choose(market, want); else say(`This service has no market ${want.market}.`, at("search-form"));
  return market !== undefined;
};

const forget = () => {
  key = plan = shown = null;
  kept.forget();
  listed = [];
  listing += 1;
  if (loading) loading.abort();
  for (const id of ["held", "market", "plans", "message"]) at(id).hidden = true;
  for (const body of document.querySelectorAll("#markets, #plans dl, #ladder tbody, #chart, #scale")) body.replaceChildren();
  at("access").hidden = false;
  at("key").focus();
  connect();
};

// --- markets --------------------------------------------------------------------------------------------------

const list = async (anew) => {
  const turn = ++listing;
  const params = { search: at("search").value.trim(), sort: "end_date", limit: 25, cursor: anew ? null : following };
  const answer = await request("/coverage", params);
  if (turn !== listing) return;
  following = answer.metadata.next_cursor;
  if (answer.totals) {
    of_all = { totals: answer.totals, markets: answer.markets };
    const ends = VIEWS.flatMap((view) => answer.totals[view] ? [answer.totals[view].start, answer.totals[view].end] : []).map(Date.parse);
    period_of_all = [Math.min(...ends), Math.max(...ends)];
  }
  const body = at("markets");
  if (anew) { body.replaceChildren(); listed = []; }
  listed.push(...answer.data);
  answer.data.forEach((market) => body.append(row(market)));
  if (!body.children.length && !params.search) body.append(make("li", "This service has no market yet."));
  at("totals").textContent = sum(of_all, params.search);
  at("more").hidden = !following;
  at("held").hidden = false;
  plan = answer.plan;
  show_plan(plan);
  connect();
};

// What was found and what there is, in one text.
const sum = ({ totals, markets }, search) => {
  const many = (found) => count(found, "market");
  const same = new Map();
  for (const view of VIEWS.filter((one) => totals[one])) {
    const { markets: with_view, start, end } = totals[view];
    const text = `of ${many(with_view)}, ${day(Date.parse(start))} to ${day(Date.parse(end) - 1)}`;
    same.set(text, [...(same.get(text) ?? []), view]);
  }
  const parts = [...same].map(([text, views]) => `${views.join(", ")} ${text}`);
  const found = following ? `More than ${number(listed.length)}` : listed.length ? number(listed.length) : "None";
  const listing = search ? `${found} of ${many(markets)} ${found === "1" ? "has" : "have"} these words` : many(markets);
  return `${listing}. Recorded of all: ${parts.join("; ") || "no history yet"}. Days are UTC.`;
};

const row = (market) => {
  const line = make("li");
  const button = make("button", market.question || market.slug || market.id, { type: "button", dir: "auto" });
  button.addEventListener("click", () => { choose(market, {}, true); go(); });
  const same = new Map();
  for (const view of VIEWS.filter((one) => market.coverage[one].length)) {
    const text = period(market.coverage[view]);
    same.set(text, [...(same.get(text) ?? []), view]);
  }
  const texts = [...same].map(([text, views]) => `${views.join(", ")}: ${text}`);
  mark(line, market);
  line.append(button, bars(market.coverage), make("div", texts.join("; ") || "no history", { class: "quiet" }));
  return line;
};

const period = (intervals) => {
  const first = Date.parse(intervals[0][0]), last = Date.parse(intervals.at(-1)[1]);
  const days = day(first) === day(last - 1) ? day(first) : `${day(first)} to ${day(last - 1)}`;
  return intervals.length > 1 ? `${days}, ${count(intervals.length - 1, "gap")}` : days;
};

// A bar for each view, over the time of all markets.
const bars = (coverage) => {
  const out = draw("svg", { class: "held", viewBox: "0 0 1000 12", preserveAspectRatio: "none", "aria-hidden": "true" });
  const [low, high] = period_of_all, scale = 1000 / Math.max(1, high - low);
  VIEWS.forEach((view, lane) => {
    for (const [start, end] of coverage[view]) {
      const x = (Date.parse(start) - low) * scale;
      out.append(draw("rect", { class: view, x, y: 4 * lane, height: 3, width: Math.max(3, (Date.parse(end) - low) * scale - x) }));
    }
  });
  return out;
};

const show_plan = (one) => {
  const days = one.max_history_days;
  const facts = [["Plan", one.name], ["Requests a minute", number(one.requests_per_minute)],
    ["Resolutions", one.resolutions.join(", ") || "none"], ["Views", one.views.join(", ") || "none"],
    ["Lookback", days === null ? "unlimited" : length(days)]];
  document.querySelector("#plans dl").replaceChildren(...facts.map(pair));
  at("plans").hidden = false;
};
