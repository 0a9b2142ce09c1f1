"""Best bid and ask without depth, of unknown size: every public function takes them or says why it does not."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pandas as pd
import polars as pl
import pytest
from reference.kalshi_stub import KalshiStub
from reference.venues import client_of

import marketdata as md
from marketdata import plot
from marketdata.points.measures import MEASURES

Call = Callable[[Any], Any]
MINUTE = "1m"
SIZES = ("best_bid_size", "best_ask_size")
YES = SimpleNamespace(id="11.X", price_precision=6, size_precision=2)
BOOKS = md.testing.books("polars", buckets=40)
RECORDS = md.testing.markets("polars").with_columns(exclusive=True, open_list=False)
LADDER = md.testing.markets("polars", markets=2).with_columns(strike=pl.Series([1.0, 2.0]), comparison=pl.lit(">"))
SNOW = md.bbo(md.testing.books("polars", markets=2, buckets=40)).filter(market_id="snow")
ORDERS = BOOKS.head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"), size=1.0)
FILLS = md.execute(ORDERS, BOOKS, MINUTE, fees=0).fills
TRADES = BOOKS.head(1).select("ts", "market_id", "token_id", "token_label", "price", "size", side=pl.lit("buy"))
PAIRS = md.pairs([{"market_a": "rain", "market_b": "rain", "orientation": "same", "confirmed": True}], RECORDS)
OTHERS = md.bbo(BOOKS).rename({"spread": "width"})

# How each function that only needs the best prices is called with a frame of them.
TAKEN: dict[str, Call] = {
    **{name: getattr(md, name) for name, one in MEASURES.items() if one.needs == "top" and one.is_function},
    "account": lambda q: md.account(FILLS, q, MINUTE).total,
    "align": lambda q: md.align(q, MINUTE),
    "arbitrage": lambda q: md.arbitrage(q, fees=0),
    "around": lambda q: md.around(q, OTHERS.head(1).select("ts"), before="10m", after="10m", width=MINUTE),
    "asof_join": lambda q: md.asof_join(q, like(OTHERS, q), width=MINUTE),
    "available_at": lambda q: md.available_at(q, MINUTE),
    "before_end": lambda q: md.before_end(q, RECORDS, "1h", of="scheduled", width=MINUTE),
    "brier": lambda q: md.brier(q, RECORDS),
    "calibration": lambda q: md.calibration(q, RECORDS),
    "check": lambda q: md.check(q, MINUTE),
    "cluster_mean": lambda q: md.cluster_mean(q, "mid"),
    "concat": lambda q: md.concat([q]),
    "effective_spread": lambda q: md.effective_spread(like(TRADES, q), q, width=MINUTE),
    "arbitrage of an event": lambda q: md.arbitrage(q, RECORDS, fees=0),
    "overround of an event": lambda q: md.overround(q, RECORDS),
    "probabilities of an event": lambda q: md.probabilities(q, RECORDS),
    "event_contradictions": lambda q: md.event_contradictions(md.concat([q, like(SNOW, q)]), LADDER, fees=0),
    "event_distribution": lambda q: md.event_distribution(q, LADDER),
    "features": lambda q: md.features(q, ["mid", "microprice"]),
    "forward_returns": lambda q: md.forward_returns(q, "10m", fees=0, width=MINUTE),
    "gaps": lambda q: md.gaps(with_a_hole(q), MINUTE),
    "lead_lag": lambda q: md.lead_lag(PAIRS, q, ["0s", MINUTE], width=MINUTE).lags,
    "log_score": lambda q: md.log_score(q, RECORDS),
    "named": lambda q: md.named(q, RECORDS),
    "ohlc": lambda q: md.ohlc(q, "1h"),
    "overround": md.overround,
    "pair_spread": lambda q: md.pair_spread(PAIRS, q, fees=0, width=MINUTE),
    "plot.calibration": lambda q: plot.calibration(q, RECORDS),
    "plot.prices": plot.prices,
    "probabilities": md.probabilities,
    "replay": lambda q: [event[:-1] for event in md.replay(quotes=q, width=MINUTE)],
    "resample": lambda q: md.resample(q, "1h"),
    "returns": lambda q: md.returns(q, width=MINUTE),
    "show": lambda q: md.show(q if not isinstance(q, pl.LazyFrame) else q.collect()),
    "slope": lambda q: md.slope(q, "mid", "spread"),
    "skill": lambda q: md.skill(q, RECORDS, reference="mid"),
    "study": lambda q: md.study(
        q, signal_of(q), "10m", fees=0, width=MINUTE, signal_width=MINUTE, quantiles=2, resamples=10
    ).table,
    "time_to_resolution": lambda q: md.time_to_resolution(q, RECORDS),
    "to_nautilus": lambda q: list(md.to_nautilus(one_token(q), YES, MINUTE)),
}  # fmt: skip
# What looks behind the best prices, or is about another kind of frame, and what its error says.
LEVELS = "best prices; {} takes .*books, with all levels"
REFUSED: dict[str, tuple[Call, str]] = {
    **{name: (getattr(md, name), LEVELS) for name in ("complement", "depth", "imbalance", "nest")},
    **{f"plot.{name}": (getattr(plot, name), LEVELS) for name in ("book", "depth", "ladder")},
    "execute": (lambda q: md.execute(ORDERS, q, MINUTE, fees=0), LEVELS),
    "fill_price": (lambda q: md.fill_price(q, size=1), LEVELS),
    "sweep": (lambda q: md.sweep(q, "buy", size=1), LEVELS),
    "to_wide": (lambda q: md.to_wide(q, 1), LEVELS),
    "diff": (lambda q: md.diff(q, width=MINUTE), "books frame needs the columns"),
    "explode": (md.explode, "best prices; explode takes nested books"),
    "outcomes": (md.outcomes, "frame of market records needs"),
    "rebuild": (md.rebuild, "frame of changes needs"),
    "vwap": (lambda q: md.vwap(q, "1h"), "frame of trades needs"),
    "pnl": (lambda q: md.pnl(q, RECORDS), "frame of trades needs"),
    "without_answers": (md.without_answers, "pass market records"),
    "plot.account": (plot.account, "chart of an account needs"),
    "plot.candles": (plot.candles, "chart of candles needs"),
    "plot.coverage": (plot.coverage, "coverage frame needs"),
    "plot.metrics": (plot.metrics, "best prices; metrics takes metrics"),
}  # fmt: skip
# What takes no frame of history, or is a chart of prices or of frames of another kind.
NO_HISTORY = {
    "Fees", "Study", "candidates", "measure", "pairs", "read_pages", "read_trades", "replay_server", "serve",
    "simulate", "plot.outcomes",
}  # fmt: skip


def like(frame: pl.DataFrame, other: Any) -> Any:
    """A frame as the kind that another one is."""
    return frame.to_pandas() if isinstance(other, pd.DataFrame) else frame.lazy() if is_lazy(other) else frame


def is_lazy(frame: Any) -> bool:
    return isinstance(frame, pl.LazyFrame)


def one_token(quotes: Any) -> Any:
    return quotes[quotes["token_label"] == "Yes"] if isinstance(quotes, pd.DataFrame) else quotes.filter(
        pl.col("token_label") == "Yes"
    )  # fmt: skip


def with_a_hole(quotes: Any) -> Any:
    """Without the second minute."""
    second = BOOKS["ts"].unique().sort()[1]
    return quotes[quotes["ts"] != second] if isinstance(quotes, pd.DataFrame) else quotes.filter(pl.col("ts") != second)


def signal_of(quotes: Any) -> Any:
    """The time within the hour as a signal."""
    frame = pl.from_pandas(quotes) if isinstance(quotes, pd.DataFrame) else quotes.lazy().collect()
    return frame.select("ts", "market_id", "token_id", signal=pl.col("ts").dt.minute().cast(float))


def functions() -> Iterator[str]:
    """Every public function, also those of `marketdata.plot`."""
    yield from (name for name in dir(md) if inspect.isfunction(getattr(md, name)) and name[0] != "_")
    yield from (f"plot.{name}" for name in plot.__all__)


def test_every_function_has_decided_whether_it_takes_quotes() -> None:
    """A new function is one that takes them, one that refuses them, or one that takes no history."""
    decided = {name.removesuffix(" of an event") for name in (*TAKEN, *REFUSED)}
    assert {*functions()} - NO_HISTORY == decided - NO_HISTORY


@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy"])
@pytest.mark.parametrize("name", TAKEN)
def test_quotes_give_what_the_best_prices_of_books_give(name: str, kind: str) -> None:
    """With sizes that are not known the values are the same, or null; no size is invented."""
    known = md.bbo(BOOKS)
    is_known = name == "to_nautilus"  # which needs sizes
    quotes = known if is_known else known.with_columns(pl.lit(None, float).alias(c) for c in SIZES)
    mine, theirs = (rows(TAKEN[name](of(frame, kind))) for frame in (quotes, known))
    if not isinstance(mine, pl.DataFrame):
        assert mine is not None
        return
    assert (mine.columns, len(mine)) == (theirs.columns, len(theirs))
    assert len(mine)
    for column in set(mine.columns) - {"examples"}:
        assert ((mine[column] == theirs[column]) | mine[column].is_null()).all(), column


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_more_than_quotes_says_so(name: str, kind: str) -> None:
    """The error says what the frame is, and what the function takes instead."""
    call, problem = REFUSED[name]
    with pytest.raises(md.errors.NotTidyError, match=problem.format(re.escape(name.removeprefix("plot.")))):
        rows(call(of(md.bbo(BOOKS), kind)))


def of(frame: pl.DataFrame, kind: str) -> Any:
    return {"pandas": frame.to_pandas, "polars": lambda: frame, "lazy": frame.lazy}[kind]()


def rows(result: Any) -> Any:
    """A result in memory, frames as those of polars."""
    if isinstance(result, pd.DataFrame):
        return pl.from_pandas(result)
    return result.collect() if is_lazy(result) else result


def test_a_check_of_quotes_finds_what_one_of_books_finds() -> None:
    """Missing sides, crossed and locked markets, sums, and prices and sizes that cannot be."""
    third, yes = pl.col("ts").dt.minute() % 3 == 0, pl.col("token_label") == "Yes"
    quotes, mid = md.bbo(BOOKS), (pl.col("best_bid") + pl.col("best_ask")) / 2
    faults: dict[str, dict[str, pl.Expr]] = {
        "one_sided": {"best_bid": pl.lit(None), "best_bid_size": pl.lit(None)},
        "empty": {name: pl.lit(None) for name in quotes.columns[4:8]},
        "crossed": {"best_bid": pl.col("best_ask") + 0.01},
        "locked": {"best_bid": pl.col("best_ask")},
        "outside_0_1": {"best_ask": pl.lit(1.5)},
        "bad_size": {"best_ask_size": pl.lit(0.0)},
        "sums_far_from_1": {"best_bid": pl.col("best_bid") + 0.2, "best_ask": pl.col("best_ask") + 0.2},
    }
    count = len(quotes.filter(third & yes))
    for name, values in faults.items():
        wrong = [pl.when(third & yes).then(value).otherwise(column).alias(column) for column, value in values.items()]
        found = md.check(quotes.with_columns(wrong).with_columns(mid=mid), MINUTE)
        failed = dict(found.select("check", "n_failed").rows())
        assert failed[name] == count, name
    sizes = md.check(quotes.with_columns(pl.lit(None, float).alias("best_bid_size")), MINUTE)
    assert not sizes.filter(pl.col("severity") == "error")["n_failed"].sum()


def test_kalshi_says_what_it_does_not_tell_of_an_event() -> None:
    """Whether the list of outcomes is complete: the error names it, and with it the sums are there."""
    stub = KalshiStub(count=3)
    with client_of(stub) as client:
        names = [market.ticker for market in stub.markets]
        quotes = client.quotes(names, "2026-01-05T01:00", "2026-01-05T02:00", MINUTE)
        records = client.markets(event_slug="KXRAIN-0")
    for name, more in (("overround", {}), ("arbitrage", {"fees": 0}), ("probabilities", {})):
        with pytest.raises(md.errors.NotTidyError, match=r"open_list.*kalshi.*add open_list=False"):
            getattr(md, name)(quotes, records, **more)
    sums = md.overround(quotes, records.with_columns(open_list=False))
    assert sums["markets"].to_list() == [3] * len(sums)
    assert sums["overround"].drop_nulls().len() > 0


def test_nautilus_needs_sizes() -> None:
    """A quote whose size is not known is refused; it would have to be invented."""
    quotes = one_token(md.bbo(BOOKS)).with_columns(best_bid_size=pl.lit(None, float))
    with pytest.raises(md.errors.ConfigError, match="both sizes"):
        md.to_nautilus(quotes, YES, MINUTE)
