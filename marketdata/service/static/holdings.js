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
    const usage = await ask("/v1/usage");
    plan = { name: usage.plan, resolutions: usage.limits.granularity_allowed.split(","), days: parseFloat(usage.limits.max_history_days) || null };
    at("key-plan").textContent = `Key accepted: plan ${usage.plan}, ${number(usage.limits.requests_per_minute)} requests a minute.`;
    at("key-form").hidden = true;
    at("key-state").hidden = false;
    await list(true);
    const first = document.querySelector("#markets button");
    if (first) first.focus({ preventScroll: true });
  } catch (problem) { fail(problem); }
};

const forget = () => {
  key = plan = shown = null;
  listing += 1;
  if (loading) loading.abort();
  for (const id of ["held", "market", "plans", "key-state", "message"]) at(id).hidden = true;
  for (const body of document.querySelectorAll("#markets tbody, #plans tbody, #ladder tbody")) body.replaceChildren();
  at("chart").replaceChildren();
  at("key-form").hidden = false;
  at("key").focus();
  connect();
};

// --- what is held ---------------------------------------------------------------------------------------------

const list = async (anew) => {
  const turn = ++listing;
  const params = { search: at("search").value.trim(), sort: "end_date", limit: 25, cursor: anew ? null : following };
  const answer = await ask("/holdings", params);
  if (turn !== listing) return;
  following = answer.metadata.next_cursor;
  const body = document.querySelector("#markets tbody");
  if (anew) body.replaceChildren();
  answer.data.forEach((market) => body.append(row(market)));
  if (!body.children.length) body.append(none(params.search ? "No market has these words." : "This service holds no market yet.", 4));
  at("more").hidden = !following;
  at("held").hidden = false;
  if (answer.totals) at("totals").textContent = sum(answer.totals, answer.markets);
  show_plan(answer.plan);
};

const sum = (totals, markets) => {
  const many = (count) => `${number(count)} market${count === 1 ? "" : "s"}`;
  const same = new Map();
  for (const view of VIEWS.filter((one) => totals[one])) {
    const { markets: count, start, end } = totals[view];
    const text = `of ${many(count)}, ${day(Date.parse(start))} to ${day(Date.parse(end) - 1)}`;
    same.set(text, [...(same.get(text) ?? []), view]);
  }
  const parts = [...same].map(([text, views]) => `${views.join(", ")} ${text}`);
  return `${many(markets)} listed. Held: ${parts.join("; ") || "no history yet"}. Days are UTC.`;
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
  if (market.slug && market.question) name.append(make("div", market.slug, { class: "quiet", dir: "auto" }));
  line.append(name);
  const all = VIEWS.flatMap((view) => market.held[view].flat()).map(Date.parse);
  for (const view of VIEWS) line.append(cell(view, market.held[view], Math.min(...all), Math.max(...all)));
  return line;
};

const cell = (view, stretches, low, high) => {
  if (!stretches.length) return make("td", "\u2013", { "data-view": view });
  const first = Date.parse(stretches[0][0]), last = Date.parse(stretches.at(-1)[1]);
  const days = day(first) === day(last - 1) ? day(first) : `${day(first)} to ${day(last - 1)}`;
  const gaps = stretches.length - 1;
  const out = make("td", days + (gaps ? `, ${gaps} gap${gaps === 1 ? "" : "s"}` : ""), { "data-view": view });
  const bar = draw("svg", { class: "held", viewBox: "0 0 1000 6", preserveAspectRatio: "none", "aria-hidden": "true" });
  const scale = 1000 / Math.max(1, high - low);
  for (const [start, end] of stretches) {
    const x = (Date.parse(start) - low) * scale;
    bar.append(draw("rect", { x, y: 0, height: 6, width: Math.max(3, (Date.parse(end) - low) * scale - x) }));
  }
  out.append(bar);
  return out;
};

const show_plan = (one) => {
  const days = one.max_history_days;
  const texts = [one.name, number(one.requests_per_minute), one.resolutions.join(" ") || "none",
    one.views.join(" ") || "none", days === null ? "unlimited" : length(days)];
  const line = make("tr");
  line.append(...texts.map((text) => make("td", text)));
  document.querySelector("#plans tbody").replaceChildren(line);
  at("plans").hidden = false;
};

// Days as a reader says them: half a day is 12 hours.
const length = (days) => {
  const [count, unit] = days < 1 ? [days * 24, "hour"] : [days, "day"];
  return `${count.toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}${count === 1 ? "" : "s"}`;
};
