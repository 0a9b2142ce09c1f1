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

// The key that a link carried guards nothing and is shown; any other is read from the environment.
const connect = () => {
  const { market, view = plan?.views[0] ?? "books", span } = example();
  const name = (market && plain(market.slug, market.id)) ?? "MARKET";
  const [from, to] = span ? span.map((ms) => iso(ms).replace("T00:00:00Z", "")) : recent();
  const allowed = plan?.resolutions ?? ["1h"];
  const resolution = shown?.resolution ?? allowed.findLast((one) => width_of(one) <= HOUR) ?? allowed[0];
  const simulated = document.documentElement.dataset.simulated === "yes";
  const own = carried && key === carried && plain(key);
  at("code-title").textContent = shown?.points.length ? "The lines that draw it" : "Connect";
  at("python").textContent = "import marketdata as md\n\n" +
    (own ? `client = md.Client("${location.origin}", "${own}")\n` : `client = md.Client("${location.origin}")  # the key: MARKETDATA_API_KEY\n`) +
    `${view} = client.${view}("${name}", "${from}", "${to}", "${resolution}")\n` +
    `${view}.md.plot.${view === "books" ? "book" : view}(${[...picture(view), ...(simulated ? ["simulated=True"] : [])].join(", ")})`;
  at("curl").textContent = `curl -H "X-API-Key: ${own || "$MARKETDATA_API_KEY"}" '${location.origin}/v1/markets/${name}/${view}?start_ts=${from}&end_ts=${to}&resolution=${resolution}'`;
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
at("span").addEventListener("change", () => { shown.span = Number(at("span").value); load(true); });
at("earlier").addEventListener("click", () => { shown.end = shown.start; load(); });
at("later").addEventListener("click", () => { shown.end = Math.min(shown.end + shown.span, shown.last); load(); });
at("time").addEventListener("input", select);
at("chart").addEventListener("pointermove", point_at);
at("chart").addEventListener("pointerdown", point_at);
document.querySelectorAll("[data-copy]").forEach((button) => {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", () => copy(button).catch(() => {}));
});
const again = () => { if (shown?.points.length) { chart(); select(); } };
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
at("access").hidden = false;
connect();
if (carried) open(carried);
