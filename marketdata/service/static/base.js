"use strict";
// Slugs, questions and labels are untrusted: they are set as text, never as markup.
const at = (id) => document.getElementById(id);
const HOUR = 3_600_000, DAY = 24 * HOUR;
const UNITS = { ms: 1, s: 1_000, m: 60_000, h: HOUR, d: DAY };
// Width of a resolution such as "10m" [ms].
const width_of = (resolution) => {
  const [, count, unit] = resolution.match(/^(\d+)(ms|s|m|h|d)$/);
  return count * UNITS[unit];
};
const WINDOWS = [["3 hours", 3 * HOUR], ["1 day", DAY], ["1 week", 7 * DAY], ["30 days", 30 * DAY], ["1 year", 365 * DAY]];
const VIEWS = ["books", "prices", "metrics"], DRAWN = ["books", "prices"];
const LIMIT = 200, MOST_PAGES = 8, LEVELS = 10, MOST_RADIOS = 10;
// Of two pages; on a wide screen a bucket has two pixels and more.
const MOST_BUCKETS = 2 * LIMIT;

// The key of a link to simulated data, from whose address it is taken; a link to other data carries none.
const take_key = () => {
  const [, given = null] = location.hash.match(/^#key=([\x21-\x7e]+)$/) ?? [];
  if (given) history.replaceState(null, "", location.pathname);
  return document.documentElement.dataset.simulated === "yes" ? given : null;
};

// On this computer a reload keeps the key, for this tab alone; elsewhere it is in memory only.
const kept = {
  store() {
    if (!["127.0.0.1", "localhost", "[::1]"].includes(location.hostname)) return null;
    try { return sessionStorage; } catch { return null; } // switched off in the settings of the browser
  },
  read() { return this.store()?.getItem("key") ?? null; },
  write(value) { this.store()?.setItem("key", value); },
  forget() { this.store()?.removeItem("key"); },
};

// A market, one of its outcomes and a time, as the address names them after "#"; the key is never a part of it.
const wanted = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  const [from, to, time] = ["from", "to", "at"].map((name) => Date.parse(given.get(name) ?? "") || null);
  return { market: given.get("market"), outcome: given.get("outcome"), from, to, time };
};

let key = null;
let plan = null;
let listed = [];
let period_of_all = [0, 0];
let of_all = { totals: {}, markets: 0 };
let following = null;
let listing = 0;
let shown = null;
let loading = null;

// --- requests -------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

const request = async (path, params = {}, signal = undefined) => {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== ""));
  const address = `${path}?${query}`;
  let answer;
  try {
    answer = await fetch(address, { headers: { "X-API-Key": key }, credentials: "omit", cache: "no-store", signal });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused(0, "The service did not answer. Is it still running?");
  }
  const body = await answer.json();
  if (answer.ok) return body;
  const detail = Array.isArray(body.detail) ? body.detail.map((item) => item.msg).join("; ") : String(body.detail);
  const wait = answer.headers.get("Retry-After");
  throw new Refused(answer.status, wait ? `${detail} Again in ${wait} s.` : detail);
};

// Below what was used last: on a phone the top of the page is far away.
const say = (text, beside = at("key-form")) => {
  const message = at("message");
  if (text) beside.after(message);
  message.textContent = text;
  message.hidden = !text;
  if (text) message.scrollIntoView({ block: "center" });
};

const fail = (beside) => (problem) => {
  if (problem.name === "AbortError") return;
  if (problem.status === 401) { forget(); say(problem.message); } else say(problem.message, beside);
};

// --- small parts ---------------------------------------------------------------------------------------------

const make = (tag, text = "", attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const pair = ([name, value]) => {
  const both = make("div");
  both.append(make("dt", name), make("dd", value));
  return both;
};
const draw = (tag, attributes, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
// A number that rounds to zero has no sign.
const number = (value, digits = 0) => (Number(value.toFixed(digits)) || 0).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const count = (value, unit) => `${value.toLocaleString("en", { maximumFractionDigits: 2 })} ${unit}${value === 1 ? "" : "s"}`;
// Half a day is 12 hours.
const length = (days) => days < 1 ? count(days * 24, "hour") : count(days, "day");
const probability = (value, digits = 3) => value === null || value === undefined ? "\u2013" : number(value, digits);
const day = (ms) => new Date(ms).toISOString().slice(0, 10);
const minute = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ");
const iso = (ms) => new Date(ms).toISOString().replace(".000Z", "Z");
