"""Each function on foreign frames, and what it should give."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import narwhals as nw
import polars as pl
import polars.selectors as cs
from reference import foreign, tables
from reference.kinds import polars_of
from reference.tables import IDS

import marketdata as md
from marketdata.points.schema import LISTS
from marketdata.tidy.outcomes import tokens_of
from marketdata.times import to_datetime

Rows = list[dict[str, Any]]
MOMENTS = pl.DataFrame({"ts": [to_datetime(1_767_229_200 * 1_000_000)]})
ENDS = MOMENTS.select(pl.lit("m").alias("market_id"), resolved_at="ts")
MEASURES: Any = ["microprice", "locked", ("depth", {"within": 0.05}), ("sweep", {"side": "buy", "size": 150.0})]


class Case(NamedTuple):
    """A function: the view that it takes, the call, and a query of polars that gives the same for a tidy frame.

    Without a query it has a loop among its own tests: a foreign frame gives what a tidy frame of the same rows gives.
    """

    view: str
    call: Callable[[Any], Any]
    want: Callable[[pl.DataFrame], pl.DataFrame] | None = None


def once(frame: Any) -> Rows:
    """The rows of a join, each once, with the price and the time of knowing of the right frame by short names."""
    names = {"price_right": "joined", "price_r": "joined", "available_at": "known"}
    found = [{names.get(c, c): v for c, v in row.items()} for row in plain_rows(frame)]
    return [row for i, row in enumerate(found) if row not in found[:i]]


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda r: (r["market_id"] or "", r.get("token_id") or "", r["ts"]))


def replayed(frame: Any, view: str) -> Rows:
    """The events of a frame, in tidy order."""
    out = []
    for e in md.replay(**{view: frame}, width="1m"):
        data: Any = {"price": e.data} if view == "prices" else e.data
        if view == "books":
            data = {"bids": e.data.bids.tolist(), "asks": e.data.asks.tolist()}
        out.append({"ts": int(e.ts.timestamp()), **{c: getattr(e, c) for c in IDS}, **data})
    return in_order(out)


def report(frame: Any, *names: str) -> Rows:
    found = {row["check"]: row["n_failed"] for row in plain_rows(md.check(frame))}
    return [{name: found[name] for name in names}]


def oddities(frame: pl.DataFrame) -> pl.DataFrame:
    bid, ask = pl.col("best_bid"), pl.col("best_ask")
    one_sided = (bid.is_null() != ask.is_null()).sum()
    return tables.bbo(frame).select(crossed=(bid > ask).sum(), locked=(bid == ask).sum(), one_sided=one_sided)


def winners(frame: Any) -> dict[str, str]:
    """The first token of each market comes true."""
    found: dict[str, str] = {}
    for market, token, *_ in sorted(tokens_of(frame), key=lambda one: one[:2]):
        found.setdefault(market, token)
    return found


def executed(frame: Any, **options: Any) -> Any:
    """Buy orders at each snapshot, filled from the snapshot of the next minute."""
    orders = nw.from_native(md.bbo(frame)).lazy().collect("polars").to_native().select("ts", "market_id", "token_id")
    orders = orders.with_columns(side=pl.lit("buy"), size=150.0)
    return md.execute(orders, frame, "1m", fees=md.Fees.flat(0.02), **options)


CASES: dict[str, Case] = {
    **{
        f"resample {view} to {width}": Case(
            view,
            partial(md.resample, resolution=width),
            partial(tables.last_books if view == "books" else tables.means, width=width),
        )
        for view, width in (("books", "15m"), ("books", "1h"), ("prices", "1h"), ("prices", "1w"), ("metrics", "4h"))
    },
    **{
        f"fill {view} {fill}": Case(
            view,
            partial(md.resample, resolution="1h", fill=fill),
            lambda f, reduced=reduced, fill=fill: tables.on_grid(reduced(f), "1h", forward=fill == "forward"),
        )
        for view, fill, reduced in (
            ("books", "forward", lambda f: tables.last_books(tables.with_sentinels(f), "1h")),
            ("books", "null", lambda f: tables.last_books(tables.with_sentinels(f), "1h")),
            ("prices", "forward", lambda f: tables.means(f, "1h")),
            ("metrics", "null", lambda f: tables.means(f, "1h")),
        )
    },
    "align": Case(
        "prices", lambda f: md.align(f, "1m", fill="forward"), lambda f: tables.on_grid(f, "1m", forward=True)
    ),
    "align metrics": Case("metrics", lambda f: md.align(f, "1m"), lambda f: tables.on_grid(f, "1m", forward=False)),
    "bbo": Case("books", md.bbo, tables.bbo),
    "mid": Case("books", md.mid, lambda f: tables.bbo(f).select("ts", *IDS, "mid")),
    "spread": Case("books", md.spread, lambda f: tables.bbo(f).select("ts", *IDS, "spread")),
    "gaps": Case("prices", lambda f: md.gaps(f, "1m"), lambda f: tables.gaps(f, "1m")),
    "gaps of books": Case("books", lambda f: md.gaps(f, "5m"), lambda f: tables.gaps(f, "5m")),
    "asof_join": Case(
        "prices",
        lambda f: once(md.asof_join(f, f, width="1m")),
        lambda f: tables.joined(f, f, "1m", exact=False, tolerance=None),
    ),
    "asof_join near": Case(
        "prices",
        lambda f: once(md.asof_join(f, f, width="1m", tolerance="1h", allow_exact_matches=True, suffix="_r")),
        lambda f: tables.joined(f, f, "1m", exact=True, tolerance="1h"),
    ),
    "ohlc": Case("prices", lambda f: md.ohlc(f, "1h"), lambda f: tables.ohlc(f, "1h", "price")),
    "ohlc of books": Case("books", lambda f: md.ohlc(f, "1h"), lambda f: tables.ohlc(tables.bbo(f), "1h", "mid")),
    **{
        f"returns {how}": Case("prices", partial(md.returns, how=how), partial(tables.returns, value="price", how=how))
        for how in ("simple", "log", "change", "log_odds")
    },
    "returns of books": Case(
        "books", lambda f: md.returns(f, how="change"), lambda f: tables.returns(tables.bbo(f), "mid", "change")
    ),
    "returns of adjacent rows": Case(
        "prices", lambda f: md.returns(f, width="1m"), lambda f: tables.returns(f, "price", "simple", "1m")
    ),
    "to_wide": Case("books", lambda f: md.to_wide(f, 3), lambda f: tables.wide(f, 3)),
    **{f"replay {view}": Case(view, partial(replayed, view=view)) for view in ("books", "prices", "metrics")},
    "available_at": Case(
        "prices",
        lambda f: in_order(once(md.available_at(f, "1m"))),
        lambda f: f.with_columns(known=pl.col("ts").dt.offset_by("1m")),
    ),
    "check books": Case("books", lambda f: report(f, "crossed", "locked", "one_sided"), oddities),
    "check prices": Case("prices", lambda f: report(f, "outside_0_1"), lambda _: pl.DataFrame({"outside_0_1": [0]})),
    "concat": Case(
        "prices", lambda f: in_order(plain_rows(md.resample(md.concat([f, f]), "1m"))), lambda f: tables.means(f, "1m")
    ),
    "overround": Case("books", md.overround),
    "arbitrage": Case("books", md.arbitrage),
    "complement": Case("books", md.complement),
    "features": Case("books", lambda f: md.features(f, MEASURES)),
    "probabilities": Case("prices", md.probabilities),
    "probabilities of books": Case("books", md.probabilities),
    "brier": Case("prices", lambda f: md.brier(f, winners(f), of="token")),
    "brier of books": Case("books", lambda f: md.brier(f, winners(f), of="token")),
    "calibration": Case("prices", lambda f: md.calibration(f, winners(f), 4, of="token")),
    "log_score": Case("prices", lambda f: md.log_score(f, winners(f), of="market")),
    "fills": Case("books", lambda f: executed(f).fills),
    "positions": Case("books", lambda f: executed(f, outcomes=winners(f), exit_after="2m").positions),
    "time_to_resolution": Case("prices", lambda f: in_order(once(md.time_to_resolution(f, ENDS)))),
    "around": Case("prices", lambda f: once(md.around(f, MOMENTS, before="2h", after="1d"))),
}  # fmt: skip


# Faults that a call looks for and reports, or that do not matter to it.
REPORTED = {"check books", "check prices", "available_at", "around", "time_to_resolution"}
# A label that no record maps is a token without an id: every row is kept.
KEPT = {("archive.add books", "null token"), ("archive.add prices", "null token")}


def plain_rows(frame: Any) -> Rows:
    """Rows of any frame as dictionaries: times as seconds, texts and numbers as Python has them, NaN as None."""
    return frame if isinstance(frame, list) else polars_of(frame).with_columns(cs.datetime().dt.epoch("s")).to_dicts()


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def as_levels(frame: Any) -> Any:
    """Nested books as rows of levels; a ladder has such columns too, of numbers."""
    names = set() if isinstance(frame, list) else set(nw.from_native(frame).collect_schema().names())
    return md.explode(frame) if {*LISTS} <= names and "level" not in names else frame


def judged(name: str, case: Case, drawn: foreign.Foreign) -> tuple[str, str]:
    """Whether a call was "right" or "refused" as it should, "wrong", or failed with an error that is "untyped"."""
    tidy = drawn.tidy()
    try:
        want = plain_rows(as_levels((case.want or case.call)(tidy)))
        refused = None
    except md.errors.ConfigError as error:  # such rows are refused in any frame
        want, refused = [], error
    try:
        got = plain_rows(as_levels(case.call(drawn.frame)))
    except (md.errors.NotTidyError, md.errors.ArchiveError) as error:
        return ("refused" if drawn.fault and len(str(error)) > 30 else "wrong"), f"{error}"
    except md.errors.ConfigError as error:
        return ("refused" if refused or drawn.fault else "wrong"), f"{error}"
    except Exception as error:
        return "untyped", f"{type(error).__name__}: {error}"
    if refused:
        return "wrong", f"these rows were not refused: {refused}"
    if drawn.fault == "a token with two labels":  # it is one token, by its ids
        got, want = ([row | {"token_label": None} for row in some] for some in (got, want))
    missing = {c for row in want[:1] for c in row} - {c for row in got[:1] for c in row}
    same = len(got) == len(want) and not (missing and got)
    same = same and all(close(g[c], w[c]) for g, w in zip(got, want, strict=True) for c in w)
    if drawn.fault and (name in REPORTED or ((name, drawn.fault) in KEPT and len(got) == len(want))):
        return "right", ""
    if drawn.fault and not same:
        return "wrong", f"not refused: {drawn.fault}; got {got[:3]} want {want[:3]}"
    differs = (i for i, (g, w) in enumerate(zip(got, want, strict=False)) if any(not close(g.get(c), w[c]) for c in w))
    at = next(differs, -1)
    shown = f"got {len(got)} rows, {got[at : at + 2]}, want {len(want)} rows, {want[at : at + 2]}"
    return ("right" if same else "wrong"), shown
