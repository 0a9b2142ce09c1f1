// --- the key --------------------------------------------------------------------------------------------------

const open = async (given) => {
  key = given;
  say("");
  if (!/^[\x21-\x7e]+$/.test(given)) {
    key = null;
    say("A key has no spaces and only plain letters, digits and signs.");
    return;
  }
  try {
    const usage = await request("/v1/usage");
    at("key-plan").textContent = `Key accepted: plan ${usage.plan}, ${number(usage.limits.requests_per_minute)} requests a minute.`;
    await list(true);
    at("key-form").hidden = true;
    at("key-state").hidden = false;
    const first = document.querySelector("#markets button");
    if (first) first.focus({ preventScroll: true });
  } catch (problem) { fail(at("key-form"))(problem); }
};

const forget = () => {
  key = plan = shown = null;
  listed = [];
  listing += 1;
  if (loading) loading.abort();
  for (const id of ["held", "market", "plans", "key-state", "message"]) at(id).hidden = true;
  for (const body of document.querySelectorAll("#markets tbody, #plans dl, #ladder tbody")) body.replaceChildren();
  at("chart").replaceChildren();
  at("key-form").hidden = false;
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
  const body = document.querySelector("#markets tbody");
  if (anew) body.replaceChildren();
  answer.data.forEach((market) => body.append(row(market)));
  if (!body.children.length) body.append(none(params.search ? "No market has these words." : "This service has no market yet.", 4));
  at("more").hidden = !following;
  at("held").hidden = false;
  if (answer.totals) at("totals").textContent = sum(answer.totals, answer.markets);
  if (anew) listed = answer.data;
  plan = answer.plan;
  show_plan(plan);
  connect();
};

const sum = (totals, markets) => {
  const many = (found) => count(found, "market");
  const same = new Map();
  for (const view of VIEWS.filter((one) => totals[one])) {
    const { markets: with_view, start, end } = totals[view];
    const text = `of ${many(with_view)}, ${day(Date.parse(start))} to ${day(Date.parse(end) - 1)}`;
    same.set(text, [...(same.get(text) ?? []), view]);
  }
  const parts = [...same].map(([text, views]) => `${views.join(", ")} ${text}`);
  return `${many(markets)} listed. Recorded: ${parts.join("; ") || "no history yet"}. Days are UTC.`;
};

const none = (text, columns) => {
  const line = make("tr");
  line.append(make("td", text, { colspan: columns }));
  return line;
};

const row = (market) => {
  const line = make("tr");
  const name = make("td");
  const button = make("button", market.question || market.slug || market.id, { type: "button", dir: "auto" });
  button.addEventListener("click", () => choose(market, line));
  name.append(button);
  if (market.slug && market.question) name.append(make("div", market.slug, { class: "quiet slug", dir: "auto" }));
  // On a narrow screen one line replaces the three columns.
  const same = new Map();
  for (const view of VIEWS.filter((one) => market.coverage[one].length)) {
    const text = period(market.coverage[view]);
    same.set(text, [...(same.get(text) ?? []), view]);
  }
  const texts = [...same].map(([text, views]) => `${views.join(", ")}: ${text}`);
  name.append(make("div", texts.join("; ") || "no history", { class: "quiet brief" }));
  line.append(name);
  const all = VIEWS.flatMap((view) => market.coverage[view].flat()).map(Date.parse);
  for (const view of VIEWS) line.append(cell(view, market.coverage[view], Math.min(...all), Math.max(...all)));
  return line;
};

const period = (intervals) => {
  const first = Date.parse(intervals[0][0]), last = Date.parse(intervals.at(-1)[1]);
  const days = day(first) === day(last - 1) ? day(first) : `${day(first)} to ${day(last - 1)}`;
  return intervals.length > 1 ? `${days}, ${count(intervals.length - 1, "gap")}` : days;
};

const cell = (view, intervals, low, high) => {
  if (!intervals.length) return make("td", "\u2013", { "data-view": view });
  const out = make("td", period(intervals), { "data-view": view });
  const bar = draw("svg", { class: "held", viewBox: "0 0 1000 6", preserveAspectRatio: "none", "aria-hidden": "true" });
  const scale = 1000 / Math.max(1, high - low);
  for (const [start, end] of intervals) {
    const x = (Date.parse(start) - low) * scale;
    bar.append(draw("rect", { x, y: 0, height: 6, width: Math.max(3, (Date.parse(end) - low) * scale - x) }));
  }
  out.append(bar);
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
