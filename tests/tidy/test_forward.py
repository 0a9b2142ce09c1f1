"""Forward returns against a plain loop over rows, and what no later row may change."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kinds import close, fewest, rows

import marketdata as md

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.CoarseGridWarning")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)
FEE = 0.02
TOKENS = [("a", "1", "Yes"), ("a", "2", "No"), ("b", "3", "Yes")]

prices = st.integers(1, 99).map(lambda cents: cents / 100)
sides = st.lists(st.tuples(prices, st.sampled_from([50.0, 100.0])), max_size=2, unique_by=lambda level: level[0])
# One token: minutes that have a snapshot, and the bids and asks of each.
snapshots = st.dictionaries(st.integers(0, 8), st.tuples(sides, sides), max_size=7)
studies = st.lists(snapshots, min_size=3, max_size=3)


def level_rows(study: list[dict[int, Any]]) -> pl.DataFrame:
    """The snapshots as tidy books, with a sentinel row for each empty side."""
    out = []
    for ids, times in zip(TOKENS, study, strict=True):
        for minute, (bids, asks) in sorted(times.items()):
            for side, levels in (("bid", sorted(bids, reverse=True)), ("ask", sorted(asks))):
                given_ = [(i, p, s) for i, (p, s) in enumerate(levels)] or [(None, None, None)]
                out += [(START + minute * MINUTE, *ids, side, *level) for level in given_]
    schema = {"ts": pl.Datetime("us", "UTC"), "market_id": pl.String, "token_id": pl.String, "token_label": pl.String,
              "side": pl.String, "level": pl.Int32, "price": pl.Float64, "size": pl.Float64}  # fmt: skip
    return pl.DataFrame(out, schema, orient="row")


def micros(minute: int) -> int:
    return int((START + minute * MINUTE).timestamp()) * 1_000_000


def average(levels: list[tuple[float, float]], size: float | None) -> float | None:
    """The price per share, best level first; None if the levels have too few."""
    if size is None:
        return levels[0][0] if levels else None
    if sum(s for _, s in levels) < size:
        return None
    return partly(levels, size)[0] / size


def fee_of(order: list[tuple[float, float]], size: float | None, kind: str) -> float:
    """The fee per share of an order of these levels: a share of the notional, or Kalshi's up to the cent."""
    if kind == "flat":
        return FEE * sum(p * s for p, s in order) / (size or 1.0)
    fee = sum(0.07 * s * p * (1 - p) for p, s in order)
    return fee if size is None else math.ceil(round(100 * fee, 6)) / 100 / size


def taken(levels: list[tuple[float, float]], size: float) -> list[tuple[float, float]]:
    """What an order takes of each level, best first."""
    out = []
    for price, shares in levels:
        out.append((price, min(size, shares)))
        size -= min(size, shares)
    return out


def partly(levels: list[tuple[float, float]], size: float) -> tuple[float, float]:
    """Return the cost of the shares that are there, and the number of missing ones."""
    paid = 0.0
    for price, shares in levels:
        paid += price * min(size, shares)
        size -= min(size, shares)
    return paid, size


def loop(study: list[dict[int, Any]], horizons: list[int], options: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Each row by its definition, one at a time."""
    out = []
    buys, size, ends = options["side"] == "buy", options["size"], options["ends"]
    last = max((m for times in study for m in times), default=-1)
    for (market, token, label), times in zip(TOKENS, study, strict=True):
        books = {m: (sorted(b, reverse=True), sorted(a)) for m, (b, a) in times.items()}
        end, payoff = ends.get(market, (math.inf, {}))
        for minute in sorted(books):
            for horizon in horizons:
                start, due = minute + options["latency"], minute + options["latency"] + horizon
                head = (micros(minute), market, token, label, f"{horizon}m")
                entry = average(books[start][1 if buys else 0], size) if start in books and start < end else None
                if entry is None:
                    out.append((*head, None, None, None, None, None, "no_entry", False))
                    continue
                later = next((m for m in range(due, due + options["tolerance"] + 1) if m in books), None)
                bid, ask = (books[start][i][0][0] if books[start][i] else None for i in (0, 1))
                mid_in = None if bid is None or ask is None else (bid + ask) / 2
                sign, amount = (1 if buys else -1), size or 1.0
                fees, worst = options["fees"], (0.0 if buys else 1.0)
                fee_in = fee_of(taken(books[start][1 if buys else 0], amount), size, fees)
                if end <= (later if later is not None else due + options["tolerance"]):
                    exit_, mid_out, status, fee_out = payoff[token], payoff[token], "settled", 0.0
                    low = exit_
                elif later is None:
                    exit_, mid_out, status = None, None, "no_exit_book"
                    low = worst
                    fee_out = fee_of([(worst, amount)], size, fees)
                else:
                    levels = books[later][0 if buys else 1]
                    exit_ = average(levels, size)
                    status = "exit" if exit_ is not None else f"no_exit_{'bid' if buys else 'ask'}"
                    b, a = (books[later][i][0][0] if books[later][i] else None for i in (0, 1))
                    mid_out = None if b is None or a is None else (b + a) / 2
                    paid, missing = partly(levels, amount) if size else (0.0, amount)
                    low = exit_ if exit_ is not None else (paid + missing * worst) / amount
                    sold = taken(levels, amount) if size or exit_ is not None else []
                    fee_out = fee_of([*sold, (worst, missing if exit_ is None else 0.0)], size, fees)
                net_low = sign * (low - entry) - fee_in - fee_out
                move = None if mid_in is None or mid_out is None else mid_out - mid_in
                at_end = status == "no_exit_book" and due > last
                out.append((*head, entry, exit_, move, None if exit_ is None else net_low, net_low, status, at_end))
    return out


options_ = st.fixed_dictionaries({
    "side": st.sampled_from(["buy", "sell"]), "size": st.sampled_from([None, 50.0, 120.0]),
    "latency": st.integers(0, 2), "tolerance": st.integers(0, 2), "fees": st.sampled_from(["flat", "kalshi"]),
    "ends": st.sampled_from([{}, {"a": (4, {"1": 1.0, "2": 0.0})}, {"b": (0, {"3": 0.5})}]),
})  # fmt: skip


def call(frame: Any, horizons: list[int], options: dict[str, Any]) -> Any:
    ends = options["ends"]
    outcomes = pl.DataFrame(
        [(m, t, p, START + end * MINUTE) for m, (end, paid) in ends.items() for t, p in paid.items()],
        {"market_id": pl.String, "token_id": pl.String, "payoff": pl.Float64, "resolved_at": pl.Datetime("us", "UTC")},
        orient="row",
    )
    return md.forward_returns(
        frame, [f"{h}m" for h in horizons], side=options["side"], size=options["size"],
        fees=md.Fees.flat(FEE) if options["fees"] == "flat" else md.Fees.kalshi(),
        latency=options["latency"] * MINUTE, tolerance=options["tolerance"] * MINUTE,
        outcomes=outcomes if ends else None, width="1m",
    )  # fmt: skip


FRAME_KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "pandas": pl.DataFrame.to_pandas, "polars": pl.DataFrame.clone, "lazy": pl.DataFrame.lazy,
    "arrow": pl.DataFrame.to_arrow, "nested": md.nest,
}  # fmt: skip
kinds = st.sampled_from([*FRAME_KINDS])


@given(study=studies, options=options_, kind=kinds)
def test_forward_returns_equal_a_plain_loop(study: list[Any], options: dict[str, Any], kind: str) -> None:
    """Entry, exit, move, net, the worst net and the status of each row, in every kind of frame."""
    frame = FRAME_KINDS[kind](level_rows(study))
    returns = call(frame, [1, 3], options)
    assert type(returns) is type(frame)
    assert close(rows(returns), loop(study, [1, 3], options), digits=1e-9, least=1e-12)


@fewest
@given(study=studies, options=options_, last=st.integers(0, 8), kind=kinds)
def test_no_later_row_changes_a_forward_return(study: list[Any], options: Any, last: int, kind: str) -> None:
    """Rows of ts or earlier are the same without the books after ts + latency + horizon + tolerance."""
    books, horizon = level_rows(study), 2
    reach = last + options["latency"] + horizon + options["tolerance"]
    all_rows, early_rows = (
        [row for row in rows(call(FRAME_KINDS[kind](frame), [horizon], options)) if row[0] <= micros(last)]
        for frame in (books, books.filter(pl.col("ts") <= START + reach * MINUTE))
    )
    assert all_rows == early_rows
