"""Prices that are no probabilities: verbs that take them for some refuse, and do not give scores of cents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from reference.markets import in_kind

import marketdata as md

PRICES = md.testing.prices("polars", markets=2, buckets=3)
BOOKS = md.testing.books("polars", markets=2, buckets=3)
WON = {"rain": "Yes"}
FIRST = BOOKS.select("ts", "market_id", "token_id").head(1)
SIGNALS = FIRST.with_columns(side=pl.lit("buy"), size=pl.lit(1.0))
OF_PRICES: dict[str, Callable[[Any], Any]] = {
    "brier": lambda f: md.brier(f, WON),
    "brier of all": lambda f: md.brier(f, WON, of="all"),
    "calibration": lambda f: md.calibration(f, WON),
    "probabilities": md.probabilities,
}
OF_BOOKS = {"complement": md.complement, "overround": md.overround, "arbitrage": md.arbitrage, **OF_PRICES}


def in_cents(view: str, *, one: bool = False) -> pl.DataFrame:
    frame = PRICES if view == "prices" else BOOKS
    wrong = pl.col("price") * 100
    last = (pl.col("ts") == frame["ts"].max()) & (pl.col("market_id") == "rain")
    return frame.with_columns(price=pl.when(last).then(wrong).otherwise("price") if one else wrong)


def computed(frame: Any) -> Any:
    """The rows of what is lazy."""
    compute = getattr(frame, "collect", None) or getattr(frame, "fetchall", None)
    return frame if compute is None else compute()


def test_cents_are_refused_by_functions_of_probabilities() -> None:
    """One price in cents is enough for NotTidyError, which names the value and what to do."""
    for view, verbs in (("prices", OF_PRICES), ("books", OF_BOOKS)):
        for kind in ("polars", "lazy", "pandas", "arrow"):
            for one in (False, True):
                frame = in_kind(in_cents(view, one=one), kind)
                for verb in verbs.values():
                    with pytest.raises(md.errors.NotTidyError, match="are probabilities: divide cents by 100"):
                        computed(verb(frame))


@pytest.mark.parametrize("view", ["prices", "books"])
def test_an_engine_refuses_cents_when_it_computes(view: str, engine: Any) -> None:
    """The engine raises its own error, with the same text."""
    frame = engine("duckdb").frame(in_cents(view))
    names = OF_PRICES if view == "prices" else OF_BOOKS.keys() - OF_PRICES.keys()
    for name in names:
        with pytest.raises(Exception, match="outside of 0 to 1; prices are probabilities"):
            computed(OF_BOOKS[name](frame))


def test_trades_refuses_cents() -> None:
    """A taker at 42 USD a share would have settled at 1."""
    md.execute(SIGNALS, BOOKS, width="1m", fees=0)
    with pytest.raises(md.errors.NotTidyError, match="outside of 0 to 1"):
        md.execute(SIGNALS, in_cents("books"), width="1m", fees=0)


def test_zero_one_and_what_sums_are_off_by_are_probabilities() -> None:
    """Prices of 0 and 1, and of some bits beyond, are taken."""
    frame = PRICES.with_columns(price=pl.when(pl.int_range(pl.len()) % 2 == 0).then(-1e-12).otherwise(1 + 1e-12))
    assert len(md.brier(frame, WON)) == 1
