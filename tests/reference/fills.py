"""Orders, books and their fills by a loop."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import strategies as st

import marketdata as md
from marketdata.testing.strategies import START, book_columns
from marketdata.times import to_datetime

MINUTE = 60_000_000


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]], dict[str, Any]]:
    """Books of a market, orders on its tokens, and how they are filled."""
    books = draw(book_columns())
    tokens = sorted(set(books.tokens)) or [("0xm", "1", "Yes")]
    times = sorted({int(t) for t in books.ts}) or [START]
    order = st.tuples(
        st.sampled_from(times).flatmap(lambda t: st.sampled_from([t, t - MINUTE, t + MINUTE])),
        st.sampled_from(tokens),
        st.sampled_from(["buy", "buy", "sell"]),
        st.one_of(st.integers(1, 1000), st.floats(0.01, 1e7), st.sampled_from([0.1, 0.2, 0.3, 0.7])),
        st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9])),
    )
    options = {
        "latency": draw(st.sampled_from([0, 1, 2])),
        "exit_after": draw(st.sampled_from([None, 1, 3])),
        "tolerance": draw(st.sampled_from([0, 2])),
        "fees": draw(st.sampled_from([0.0, 0.02, "odds"])),
    }
    return books, draw(st.lists(order, max_size=8)), options


def as_floats(orders: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*o[:3], float(o[3]), o[4]) for o in orders]


def signals_of(orders: list[tuple[Any, ...]]) -> pl.DataFrame:
    columns = {"ts": [to_datetime(o[0]) for o in orders], "market_id": [o[1][0] for o in orders]}
    columns |= {"token_id": [o[1][1] for o in orders], "side": [o[2] for o in orders]}
    columns |= {"size": [float(o[3]) for o in orders], "limit": [o[4] for o in orders]}
    types = {"ts": pl.Datetime("us", "UTC"), **dict.fromkeys(("market_id", "token_id", "side"), pl.String)}
    return pl.DataFrame(columns, schema={**types, "size": pl.Float64, "limit": pl.Float64})


def called(options: dict[str, Any]) -> dict[str, Any]:
    rate = options["fees"]
    fees = (lambda price, shares: shares * price * (1 - price)) if rate == "odds" else md.Fees.flat(rate)
    latency, hold, tolerance = (options[name] for name in ("latency", "exit_after", "tolerance"))
    durations = {"latency": f"{latency}m", "exit_after": hold and f"{hold}m", "tolerance": f"{tolerance}m"}
    return {"fees": fees, **durations}


@st.composite
def settled_cases(draw: st.DrawFn) -> tuple[Any, Any, dict[str, int], dict[Any, float]]:
    """A case, a frame of outcomes, and what it says: when markets resolved, and what tokens paid."""
    case = draw(cases())
    tokens = sorted({*case[0].tokens, *(order[1] for order in case[1])})
    times = sorted({int(t) for t in case[0].ts}) or [START]
    markets = sorted({token[0] for token in tokens})
    resolved = {m: draw(st.one_of(st.none(), st.sampled_from(times))) for m in markets}
    paid = {}
    for market in markets:  # the tokens of a market pay 1 together
        first = draw(st.sampled_from([0.0, 1.0, 0.5]))
        whole = [first, 1 - first, *[0.0] * len(tokens)]
        for token, share in zip([t for t in tokens if t[0] == market], whole, strict=False):
            paid[token] = draw(st.sampled_from([share, share, share, None, float("nan")]))
    told = [t for t in tokens if draw(st.sampled_from([True, True, True, False]))]
    schema = {"market_id": pl.String, "token_id": pl.String, "token_label": pl.String, "payoff": pl.Float64}
    columns = {name: [t[i] for t in told] for i, name in enumerate(list(schema)[:3])}
    outcomes = pl.DataFrame({**columns, "payoff": [paid[t] for t in told]}, schema=schema)
    ends = [None if resolved[t[0]] is None else to_datetime(resolved[t[0]]) for t in told]
    outcomes = outcomes.with_columns(pl.Series("resolved_at", ends, dtype=pl.Datetime("us", "UTC")))
    made = draw(st.sampled_from(["polars", "pandas", "arrow", "lazy"]))
    kinds = {"pandas": outcomes.to_pandas, "arrow": outcomes.to_arrow, "lazy": outcomes.lazy, "polars": outcomes.clone}
    known = {t[0] for t in told}
    there = {m: at for m, at in resolved.items() if at is not None and m in known}
    return case, kinds[made](), there, {t[:2]: p for t, p in paid.items() if t in told and p == p and p is not None}  # noqa: PLR0124
