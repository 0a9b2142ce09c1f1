"""Each function on foreign frames with the plain loop that says what is right."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import narwhals as nw
from reference import foreign
from reference import loops as plain

import marketdata as md

IDS = list(plain.IDS)
VALUES = ("volume", "liquidity", "spread")
QUOTE = ("bid_price", "bid_size", "ask_price", "ask_size")
Rows = plain.Rows


class Case(NamedTuple):
    """A verb: the view that it takes, the call, and what a loop gives."""

    view: str
    call: Callable[[Any], Any]
    want: Callable[[Rows], Rows]


def blank_books(row: dict[str, Any]) -> Rows:
    return [{**plain.who(row), "side": side, "level": None, "price": None, "size": None} for side in ("bid", "ask")]


def blank_values(row: dict[str, Any]) -> Rows:
    return [{c: v if c in IDS else None for c, v in row.items()}]


def once(frame: Any) -> Rows:
    """The rows of a join, each once, with the price and the time of knowing of the right frame by short names."""
    names = {"price_right": "joined", "price_r": "joined", "available_at": "known"}
    found = [{names.get(c, c): v for c, v in row.items()} for row in plain_rows(frame)]
    return [row for i, row in enumerate(found) if row not in found[:i]]


def replayed(frame: Any, view: str) -> Rows:
    events = md.replay(**{view: frame}, width="1m")
    out = []
    for e in events:
        ids = {c: getattr(e, c) for c in IDS if view != "metrics" or c == "market_id"}
        data: Any = e.data
        if view == "books":
            data = {"bids": [tuple(x) for x in e.data.bids.tolist()], "asks": [tuple(x) for x in e.data.asks.tolist()]}
        elif view == "prices":
            data = {"price": e.data}
        else:
            data = {c: e.data[c] for c in VALUES}
        out.append({"ts": int(e.ts.timestamp()), **ids, **data})
    return sorted(out, key=lambda r: (r["market_id"], r.get("token_id") or "", r["ts"]))


def books_of(rows: Rows) -> Rows:
    return [{**head, "bids": bids, "asks": asks} for head, bids, asks in plain.snapshots(rows)]


def alone(rows: Rows) -> bool:
    """Whether a market does not have two tokens."""
    return any(len(tokens) != 2 for tokens in plain.tokens_of(rows).values())


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda r: (r["market_id"] or "", r.get("token_id") or "", r["ts"]))


def report(frame: Any, *names: str) -> Rows:
    found = {row["check"]: row["n_failed"] for row in plain_rows(md.check(frame))}
    return [{name: found[name] for name in names}]


def oddities(rows: Rows) -> dict[str, int]:
    tops = [plain.top(bids, asks) for _, bids, asks in plain.snapshots(rows)]
    return {
        "crossed": sum(t["spread"] is not None and t["spread"] < 0 for t in tops),
        "locked": sum(t["spread"] == 0 for t in tops),
        "one_sided": sum((t["best_bid"] is None) != (t["best_ask"] is None) for t in tops),
    }


def doubled(rows: Rows) -> Rows:
    return [{**row, "price_count": int(row["price"] is not None)} for row in rows]


CASES: dict[str, Case] = {
    "resample books": Case("books", lambda f: md.resample(f, "1h"), lambda r: plain.resampled_books(r, 3600)),
    "resample books to 15m": Case("books", lambda f: md.resample(f, "15m"), lambda r: plain.resampled_books(r, 900)),
    "resample prices": Case("prices", lambda f: md.resample(f, "1h"), lambda r: plain.means(r, 3600, ("price",))),
    "resample prices to weeks": Case(
        "prices", lambda f: md.resample(f, "1w"), lambda r: plain.means(r, plain.WEEK, ("price",))
    ),
    "resample metrics": Case("metrics", lambda f: md.resample(f, "4h"), lambda r: plain.means(r, 14_400, VALUES)),
    "fill books": Case(
        "books",
        lambda f: md.resample(f, "1h", fill="forward"),
        lambda r: plain.on_grid(plain.resampled_books(plain.with_markers(r), 3600), 3600, True, blank_books),
    ),
    "fill books with nulls": Case(
        "books",
        lambda f: md.resample(f, "1h", fill="null"),
        lambda r: plain.on_grid(plain.resampled_books(plain.with_markers(r), 3600), 3600, False, blank_books),
    ),
    "fill prices": Case(
        "prices",
        lambda f: md.resample(f, "1h", fill="forward"),
        lambda r: plain.on_grid(plain.means(r, 3600, ("price",)), 3600, True, blank_values),
    ),
    "fill metrics": Case(
        "metrics",
        lambda f: md.resample(f, "1h", fill="null"),
        lambda r: plain.on_grid(plain.means(r, 3600, VALUES), 3600, False, blank_values),
    ),
    "bbo": Case("books", md.bbo, plain.bbo),
    "mid": Case("books", md.mid, lambda r: [{c: x[c] for c in ("ts", *IDS, "mid")} for x in plain.bbo(r)]),
    "spread": Case("books", md.spread, lambda r: [{c: x[c] for c in ("ts", *IDS, "spread")} for x in plain.bbo(r)]),
    "gaps": Case("prices", lambda f: md.gaps(f, "1m"), lambda r: plain.gaps(r, 60)),
    "gaps of books": Case("books", lambda f: md.gaps(f, "5m"), lambda r: plain.gaps(r, 300)),
    "align": Case(
        "prices",
        lambda f: md.align(f, "1m", fill="forward"),
        lambda r: plain.on_grid(r, 60, True, blank_values),
    ),
    "align metrics": Case("metrics", lambda f: md.align(f, "1m"), lambda r: plain.on_grid(r, 60, False, blank_values)),
    "asof_join": Case(
        "prices",
        lambda f: once(md.asof_join(f, f, width="1m")),
        lambda r: plain.joined(r, r, 60, "price", exact=False, tolerance=None),
    ),
    "asof_join near": Case(
        "prices",
        lambda f: once(md.asof_join(f, f, width="1m", tolerance="1h", allow_exact_matches=True, suffix="_r")),
        lambda r: plain.joined(r, r, 60, "price", exact=True, tolerance=3600),
    ),
    "ohlc": Case("prices", lambda f: md.ohlc(f, "1h"), lambda r: plain.ohlc(r, 3600, "price")),
    "ohlc of books": Case("books", lambda f: md.ohlc(f, "1h"), lambda r: plain.ohlc(plain.bbo(r), 3600, "mid")),
    **{
        f"returns {how}": Case(
            "prices", lambda f, h=how: md.returns(f, how=h), lambda r, h=how: plain.returns(r, "price", h, None)
        )
        for how in ("simple", "log", "change", "log_odds")
    },
    "returns of books": Case(
        "books", lambda f: md.returns(f, how="change"), lambda r: plain.returns(plain.bbo(r), "mid", "change", None)
    ),
    "returns next to each other": Case(
        "prices", lambda f: md.returns(f, width="1m"), lambda r: plain.returns(r, "price", "simple", 60)
    ),
    "to_wide": Case("books", lambda f: md.to_wide(f, 3), lambda r: plain.wide(r, 3)),
    "replay books": Case("books", lambda f: replayed(f, "books"), books_of),
    "replay prices": Case("prices", lambda f: replayed(f, "prices"), lambda r: r),
    "replay metrics": Case("metrics", lambda f: replayed(f, "metrics"), lambda r: r),
    "available_at": Case(
        "prices",
        lambda f: in_order(once(md.available_at(f, "10m"))),
        lambda r: [{**x, "known": x["ts"] + 600} for x in r],
    ),
    "check books": Case("books", lambda f: report(f, "crossed", "locked", "one_sided"), lambda r: [oddities(r)]),
    "check prices": Case("prices", lambda f: report(f, "outside_0_1"), lambda _: [{"outside_0_1": 0}]),
    "overround": Case("books", md.overround, plain.overround),
    "arbitrage": Case("books", md.arbitrage, plain.arbitrage),
    "complement": Case("books", md.complement, lambda r: plain.complement(r) if not alone(r) else []),
    "concat": Case("prices", lambda f: in_order(plain_rows(md.resample(md.concat([f, f]), "1m"))), doubled),
}


# These calls refuse some rows, which must not count as a wrong result.
REFUSED: dict[str, Callable[[Rows], bool]] = {
    "complement": alone,
}


# Faults that a call looks for and reports, or that do not matter to it.
TOLD_APART = {"check books", "check prices", "available_at", "around", "time_to_resolution"}


# Calls to which a fault is none: they keep every row.
# A label that no record maps is a token without an id.
TAKEN = {("archive.add books", "null token"), ("archive.add prices", "null token")}


def plain_rows(frame: Any) -> Rows:
    """Rows of any frame as dictionaries: times as seconds, texts and numbers as Python has them, NaN as None."""
    if isinstance(frame, list):
        return frame
    data = nw.from_native(frame)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    columns = {}
    for name in data.columns:
        column = data[name]
        if isinstance(column.dtype, nw.Datetime):
            values = [None if v is None else v // 1_000_000 for v in column.dt.timestamp("us").to_list()]
        elif isinstance(column.dtype, nw.Categorical | nw.Enum):
            values = column.cast(nw.String).to_list()
        else:
            values = column.to_list()
        values = [None if v is None or str(v) in ("<NA>", "nan", "NaT") else v for v in values]
        columns[name] = [math.floor(v.timestamp()) if isinstance(v, dt.datetime) else v for v in values]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def is_nested(frame: Any) -> bool:
    names = set() if isinstance(frame, list) else set(nw.from_native(frame).collect_schema().names())
    return set(QUOTE) <= names and "level" not in names  # a ladder has such columns too, of numbers


def as_levels(frame: Any) -> Any:
    return md.explode(frame) if is_nested(frame) else frame


def judged(name: str, case: Case, drawn: foreign.Foreign) -> tuple[str, str]:
    """Whether the verb was "right" or "refused" as it should, "wrong", or failed with an error that is "untyped"."""
    is_refused = name in REFUSED and REFUSED[name](drawn.rows)
    try:
        got = plain_rows(as_levels(case.call(drawn.frame)))
    except (md.errors.NotTidyError, md.errors.ArchiveError) as error:
        return ("refused" if drawn.fault and len(str(error)) > 30 else "wrong"), f"{error}"
    except md.errors.ConfigError as error:
        return ("refused" if is_refused or drawn.fault else "wrong"), f"{error}"
    except Exception as error:
        return "untyped", f"{type(error).__name__}: {error}"
    if is_refused:
        return "wrong", "these rows were not refused"
    want = case.want(drawn.rows)
    if drawn.fault == "a token with two labels":  # it is one token, by its ids
        got, want = ([row | {"token_label": None} for row in some] for some in (got, want))
    missing = {c for row in want[:1] for c in row} - {c for row in got[:1] for c in row}
    same = len(got) == len(want) and not (missing and got)
    same = same and all(close(g[c], w[c]) for g, w in zip(got, want, strict=True) for c in w)
    if drawn.fault and (name in TOLD_APART or ((name, drawn.fault) in TAKEN and len(got) == len(want))):
        return "right", ""
    if drawn.fault and not same:
        return "wrong", f"not refused: {drawn.fault}; got {got[:3]} want {want[:3]}"
    at = next(
        (i for i, (g, w) in enumerate(zip(got, want, strict=False)) if any(not close(g.get(c), w[c]) for c in w)), -1
    )
    shown = f"got {len(got)} rows, {got[at : at + 2]}, want {len(want)} rows, {want[at : at + 2]}"
    return ("right" if same else "wrong"), shown
