"use strict";
// --- how to connect -------------------------------------------------------------------------------------------

// Only a plain name is put into a line that may be pasted into a shell.
const plain = (...names) => names.find((name) => name && /^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(name));

// The market of the lines, and a range in which it has data: what is drawn, else the end of what the plan allows.
const example = () => {
  const oldest = plan?.max_history_days == null ? 0 : Date.now() - plan.max_history_days * DAY + HOUR;
  const view = shown?.views[0];
  const drawn = shown?.points.filter((point) => has(view === "books" ? point.asks : point.price)) ?? [];
  if (drawn.length) return { market: shown.market, view, span: [drawn[0].ms, drawn.at(-1).ms + shown.width] };
  for (const market of shown ? [shown.market] : listed) {
    for (const view of plan.views.filter((one) => market.coverage[one].length)) {
      const [first, last] = market.coverage[view].at(-1).map(Date.parse);
      const start = Math.max(first, last - DAY, oldest);
      if (start < last) return { market, view, span: [start, last] };
    }
  }
  return { market: shown?.market };
};

// The key is read from the environment: a line that is copied goes into notebooks and logs.
const connect = () => {
  const { market, view = plan?.views[0] ?? "books", span } = example();
  const name = (market && plain(market.slug, market.id)) ?? "MARKET";
  const [from, to] = span ? span.map((ms) => iso(ms).replace("T00:00:00Z", "")) : recent();
  const allowed = plan?.resolutions ?? ["1h"];
  const resolution = shown?.resolution ?? allowed.findLast((one) => width_of(one) <= HOUR) ?? allowed[0];
  at("code-title").textContent = shown?.points.length ? "The lines that draw it" : "Connect";
  at("python").textContent = "import marketdata as md\n\n" +
    `client = md.Client("${location.origin}")  # the key: MARKETDATA_API_KEY\n` +
    `${view} = client.${view}("${name}", "${from}", "${to}", "${resolution}")\n` +
    `${view}.md.plot.${view === "books" ? "book" : view}(${[...picture(view), `markets=client.market("${name}")`].join(", ")})`;
  at("curl").textContent = `curl -H "X-API-Key: $MARKETDATA_API_KEY" '${location.origin}/v1/markets/${name}/${view}?start_ts=${from}&end_ts=${to}&resolution=${resolution}'`;
};

// Time and outcome of the book that is shown.
const picture = (view) => {
  if (view !== "books" || !shown) return [];
  const point = shown.points[at("time").value];
  const token = shown.token !== shown.market.tokens[0] && plain(shown.token.id);
  return [...(point?.asks ? [`"${iso(point.ms)}"`] : []), ...(token ? [`token="${token}"`] : [])];
};

// Yesterday, or the part of it that the plan allows.
const recent = () => {
  const today = Math.floor(Date.now() / DAY) * DAY;
  const back = plan?.max_history_days ?? null;
  if (back === null || back >= 2) return [iso(today - DAY), iso(today)].map((text) => text.slice(0, 10));
  const hour = Math.ceil((Date.now() - back * DAY) / HOUR) * HOUR;
  return [iso(hour), iso(hour + HOUR)];
};

const copy = async (button) => {
  await navigator.clipboard.writeText(at(button.dataset.copy).textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
};

// --- events ---------------------------------------------------------------------------------------

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("key").value.trim();
  at("key").value = "";
  open(given);
});
at("forget").addEventListener("click", forget);
at("search-form").addEventListener("submit", (event) => { event.preventDefault(); say(""); list(true).catch(fail(at("search-form"))); });
at("more").addEventListener("click", () => { say(""); list(false).catch(fail(at("more"))); });
at("span").addEventListener("change", () => widen(Number(at("span").value)));
at("earlier").addEventListener("click", () => { shown.end = shown.start; shown.time = null; load(); });
at("later").addEventListener("click", () => { shown.end = Math.min(shown.end + shown.span, shown.last); shown.time = null; load(); });
at("time").addEventListener("input", keep);
at("chart").addEventListener("pointerdown", grab);
at("chart").addEventListener("pointermove", move);
at("chart").addEventListener("pointerup", release);
at("chart").addEventListener("pointercancel", drop);
at("chart").addEventListener("pointerleave", () => { if (grabbed === null && shown?.points.length) rest(); });
addEventListener("popstate", () => { follow().catch(fail(at("search-form"))); });
document.querySelectorAll("[data-copy]").forEach((button) => {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", () => copy(button).catch(() => {}));
});
const again = () => { if (shown?.points.length) { chart(); rest(); } };
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
addEventListener("hashchange", () => { const given = take_key(); if (given) open(given); });
const known = take_key() ?? kept.read();
at("access").hidden = known !== null;
connect();
if (known !== null) open(known);
