"""Fills that nobody could have had: after the close, in books that were filled in, of shares taken before, unpaid."""

from __future__ import annotations

import datetime as dt
import warnings
from typing import Any

import polars as pl
import pytest

import marketdata as md
from marketdata.errors import MissingValuesWarning, OverdrawnWarning, ReusedDepthWarning

MINUTE = dt.timedelta(minutes=1)
BOOKS = md.testing.books("polars", buckets=12)
START = BOOKS["ts"][0]


def orders(minutes: list[int], size: float = 10.0) -> pl.DataFrame:
    """An order to buy Yes decided in each of these minutes."""
    return pl.DataFrame({"ts": [START + m * MINUTE for m in minutes]}, {"ts": pl.Datetime("us", "UTC")}).with_columns(
        market_id=pl.lit("rain"), token_id=pl.lit("11"), side=pl.lit("buy"), size=pl.lit(size)
    )


@pytest.mark.parametrize("resolved", [None, 9, 5])
def test_nobody_trades_after_the_close(resolved: int | None) -> None:
    """Orders and exits meet no book from the close on; a position is worth the payoff then."""
    outcomes = pl.DataFrame({
        "market_id": ["rain"] * 2, "token_id": ["11", "12"], "payoff": [1.0, 0.0],
        "closed_at": [START + 5 * MINUTE] * 2,
        "resolved_at": [None if resolved is None else START + resolved * MINUTE] * 2,
    }, schema_overrides={"resolved_at": pl.Datetime("us", "UTC")})  # fmt: skip
    done = md.execute(orders([*range(10)]), BOOKS, "1m", fees=0, outcomes=outcomes)
    assert done.fills["status"].to_list() == ["filled"] * 4 + ["resolved"] * 6
    returns = md.forward_returns(BOOKS, "3m", latency="0s", fees=0, outcomes=outcomes, width="1m")
    of_yes = returns.filter(token_label="Yes")
    assert of_yes["status"].to_list() == ["exit"] * 2 + ["settled"] * 3 + ["no_entry"] * 7
    assert of_yes["exit"].to_list()[2:5] == [1.0] * 3
    unpaid = md.forward_returns(
        BOOKS, "3m", latency="0s", fees=0, outcomes=outcomes.with_columns(payoff=None), width="1m"
    ).filter(token_label="Yes")
    assert unpaid["status"].to_list() == ["exit"] * 2 + ["no_exit_book"] * 3 + ["no_entry"] * 7
    assert unpaid["at_end"].sum() == 0


@pytest.mark.parametrize("nested", [False, True])
def test_a_book_that_was_filled_in_fills_nothing(nested: bool) -> None:
    """Carried books fill no order and no exit, and are no entry; an exit that may wait takes the next real one."""
    gap = BOOKS.filter(~pl.col("ts").is_between(START + 4 * MINUTE, START + 6 * MINUTE))
    carried = md.resample(gap, "1m", fill="forward", width="1m")
    carried = md.nest(carried) if nested else carried
    with pytest.warns(MissingValuesWarning, match="3 of 6 orders met a book that was filled in"):
        done = md.execute(orders([1, 2, 3, 4, 5, 6]), carried, "1m", fees=0)
    want = ["filled", "filled", *["not observed"] * 3, "filled"]
    assert done.fills["status"].to_list() == want
    late = md.execute(orders([1]), carried, "1m", fees=0, exit_after="2m", tolerance="5m").fills
    assert late.select("ts", "side", "status").rows() == [
        (START + 2 * MINUTE, "buy", "filled"), (START + 7 * MINUTE, "sell", "filled")
    ]  # fmt: skip
    for frame in (carried, carried.lazy(), carried.to_arrow()):
        got: Any = md.forward_returns(frame, "1m", latency="0s", fees=0, width="1m")
        got = pl.DataFrame(got.collect() if isinstance(got, pl.LazyFrame) else got)
        plain = md.forward_returns(gap, "1m", latency="0s", fees=0, width="1m")
        both = got.filter(pl.col("ts").is_in(plain["ts"].implode()))
        assert both.drop("at_end").equals(plain.drop("at_end"))
        assert {*got.filter(~pl.col("ts").is_in(plain["ts"].implode()))["status"]} == {"no_entry"}


def test_shares_that_were_taken_before_are_counted() -> None:
    """Later books do not know of one's own orders, so a level that did not change is taken again."""
    still = BOOKS.with_columns(
        price=pl.when(side="bid").then(0.4 - 0.01 * pl.col("level")).otherwise(0.42 + 0.01 * pl.col("level"))
    )
    size = still.filter(side="ask", level=0, token_label="Yes")["size"][0]
    with pytest.warns(ReusedDepthWarning, match="are more than rested"):
        done = md.execute(orders([0, 1, 2], size), still, "1m", fees=0)
    assert done.fills["taken_before"].to_list() == [0.0, size, 2 * size]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = md.execute(orders([0, 1, 2, 2], size / 4), still, "1m", fees=0)
        fresh = still.with_columns(size=pl.col("size") + pl.col("ts").dt.minute() / 7)
        new = md.execute(orders([0, 1, 2], size), fresh, "1m", fees=0)
    assert few.fills["taken_before"].to_list() == [0.0, size / 4, size / 2, size / 2]
    assert new.fills["taken_before"].to_list() == [0.0] * 3


def test_an_account_that_spends_more_than_it_has_says_so() -> None:
    """A stated sum that does not pay for the fills rings; without a sum money is no question."""
    fills = md.execute(orders([0, 1], 100.0), BOOKS, "1m", fees=0).fills
    with pytest.warns(OverdrawnWarning, match="begins with 50.00 USD and goes down to -"):
        md.account(fills, BOOKS, "1m", cash=50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        md.account(fills, BOOKS, "1m", cash=100)
        md.account(fills, BOOKS, "1m")
