"""Prices that are no probabilities, and negative sizes: every function that computes with them refuses them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kinds import fewest
from reference.markets import in_kind

import marketdata as md

PRICES = md.testing.prices("polars", markets=2, buckets=3)
BOOKS = md.testing.books("polars", markets=2, buckets=3)
TRADES = PRICES.with_columns(side=pl.lit("buy"), size=pl.lit(5.0))
MARKETS = md.testing.markets("polars", markets=2).with_columns(exclusive=True, open_list=False)
ENDS = MARKETS.with_columns(end_date=PRICES["ts"].max(), closed_at=PRICES["ts"].max())
LADDER = MARKETS.with_columns(
    exclusive=False, event_id=pl.lit("e"), strike=pl.Series([1.0, 2.0]), comparison=pl.lit(">")
)
FIRST = PRICES.head(1).select("ts", "market_id", "token_id")
ORDERS = FIRST.with_columns(side=pl.lit("buy"), size=1.0)
FILLS = md.execute(ORDERS, BOOKS, "1m", fees=0).fills
PAIRS = md.pairs([{"market_a": "rain", "market_b": "snow", "orientation": "same", "confirmed": True}], MARKETS)
FRAMES = {"books": BOOKS, "nested": md.nest(BOOKS), "bbo": md.bbo(BOOKS), "prices": PRICES, "trades": TRADES}
ARGUMENTS: dict[str, Any] = {
    "outcomes": MARKETS, "fees": 0, "resolution": "1h", "size": 1.0, "side": "buy", "horizon": "1m", "width": "1m",
    "markets": ENDS, "reference": 0.5, "measures": ["mid"], "signal": FIRST.with_columns(x=1.0),
    "pairs": PAIRS, "lags": ["1m"], "orders": ORDERS, "fills": FILLS,
    "before": "1m", "of": "actual", "moments": FIRST, "after": "1m",
}  # fmt: skip
# What moves rows without a look at their prices, and what lists or shows the wrong ones.
OF_ROWS = {
    "asof_join", "check", "cluster_mean", "concat", "named", "rebuild", "replay", "show", "slope",
    "to_nautilus",
}  # fmt: skip
# What has no argument that is a frame with prices.
OF_OTHERS = {
    "candidates", "measure", "outcomes", "pairs", "read_pages", "read_trades", "replay_server", "serve", "simulate",
    "without_answers",
}  # fmt: skip


def calls() -> Iterator[tuple[str, str, Callable[[Any], Any]]]:
    """Each public function of prices, and each view that it takes, as a function of the frame alone."""
    for name, function in inspect.getmembers(md, inspect.isfunction):
        if name in OF_ROWS | OF_OTHERS:
            continue
        takes = inspect.signature(function).parameters
        given_ = {one.name: ARGUMENTS[one.name] for one in takes.values()
                  if one.name in ARGUMENTS and (one.default is one.empty or one.name == "width")}  # fmt: skip
        given_ |= {
            "depth": {"within": 0.5}, "sweep": {"size": 1.0}, "align": {"resolution": "1m"},
            "event_contradictions": {"markets": LADDER}, "event_distribution": {"markets": LADDER},
        }.get(name, {})  # fmt: skip
        frames = [one for one in takes if one in ("frame", "books", "prices", "trades", "forecast")]
        for argument in frames:
            others = {one: {"trades": TRADES, "books": BOOKS}[one] for one in frames if one != argument}
            call = partial(_called, function, argument, {**given_, **others})
            taken = [view for view, frame in FRAMES.items() if _takes(call, frame)]
            assert taken, f"{name} takes no frame as {argument}"
            yield from ((f"{name}({argument})", view, call) for view in taken)


def _called(function: Callable[..., Any], argument: str, others: dict[str, Any], frame: Any) -> Any:
    return computed(function(**{**others, argument: frame}))


def _takes(call: Callable[[Any], Any], frame: Any) -> bool:
    try:
        call(frame)
    except md.MarketDataError:
        return False
    return True


def test_frames_together_charts_and_events_refuse_cents() -> None:
    """One price in cents is refused where frames are put together, replayed or drawn."""
    pytest.importorskip("matplotlib", reason="charts are drawn")
    cents, books = spoiled("prices", cents=True, one=True), spoiled("books", cents=True, one=True)
    bars = md.ohlc(PRICES, "1h").with_columns(pl.col("open", "high", "low", "close") * 100)
    rain = pl.col("market_id") == "rain"
    for call in (
        lambda: md.concat([PRICES, cents]),
        lambda: list(md.replay(books=books, width="1m")),
        lambda: md.plot.prices(cents),
        lambda: md.plot.prices(spoiled("bbo", cents=True, one=True)),
        lambda: md.plot.outcomes(cents.filter(rain)),
        lambda: md.plot.candles(bars),
        *(partial(chart, books.filter(rain)) for chart in (md.plot.book, md.plot.depth, md.plot.ladder)),
    ):
        with pytest.raises(md.errors.NotTidyError, match="are probabilities: divide cents by 100"):
            call()


def computed(frame: Any) -> Any:
    """The rows of what is lazy."""
    compute = getattr(frame, "collect", None) or getattr(frame, "fetchall", None)
    return frame if compute is None else compute()


def spoiled(view: str, *, cents: bool, one: bool) -> pl.DataFrame:
    """A view with prices in cents, or sizes below 0: all of them, or those of the last snapshot."""
    levels = PRICES if view == "prices" else TRADES if view == "trades" else BOOKS
    column = "price" if cents else "size"
    last = (pl.col("ts") == levels["ts"].max()) & (pl.col("market_id") == "rain")
    wrong = pl.col(column) * (100 if cents else -1)
    frame = levels.with_columns(pl.when(last).then(wrong).otherwise(column).alias(column) if one else wrong)
    if view == "bbo":
        names = ["best_bid", "best_ask", "mid", "spread"] if cents else ["best_bid_size", "best_ask_size"]
        whole = FRAMES["bbo"]
        return whole.with_columns(
            pl.when(last | (not one)).then(pl.col(n) * (100 if cents else -1)).otherwise(n).alias(n) for n in names
        )
    return md.nest(frame) if view == "nested" else frame


@pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
def test_every_function_of_prices_refuses_cents_and_negative_sizes() -> None:
    """One price in cents or one size below 0 is enough for NotTidyError, which names it and says what to do."""
    every = list(calls())
    assert {"sweep(frame)", "mid(frame)", "ohlc(frame)", "vwap(trades)", "effective_spread(books)", "study(books)",
            "brier(frame)", "before_end(frame)", "account(prices)"} <= {name for name, *_ in every}  # fmt: skip
    taken = []
    for name, view, call in every:
        for cents in (True, False):
            # A score or a sum of prices reads no size of a frame that is no book.
            has_size = view in ("books", "nested", "trades") or name.split("(")[0] in (
                "mid",
                "bbo",
                "microprice",
                "spread",
            )
            for one in (True, False) if cents or has_size else ():
                try:
                    call(spoiled(view, cents=cents, one=one))
                except md.errors.NotTidyError as refused:
                    told = "are probabilities: divide cents by 100" if cents else "is not negative"
                    assert told in str(refused), (name, view)  # noqa: PT017 the calls are in a loop
                else:
                    taken.append((name, view, "cents" if cents else "sizes"))
    assert taken == []


@fewest
@given(kind=st.sampled_from(["lazy", "pandas", "arrow"]), view=st.sampled_from(["books", "prices"]), one=st.booleans())
def test_every_kind_of_frame_is_refused(kind: str, view: str, one: bool) -> None:
    """A score of cents is refused in each kind of frame."""
    frame = in_kind(spoiled(view, cents=True, one=one), kind)
    for function in (md.brier, md.calibration, md.log_score):
        with pytest.raises(md.errors.NotTidyError, match="are probabilities: divide cents by 100"):
            computed(function(frame, MARKETS))
    with pytest.raises(md.errors.NotTidyError, match="are probabilities: divide cents by 100"):
        computed(md.probabilities(frame))


@pytest.mark.parametrize("view", ["prices", "books"])
def test_an_engine_refuses_cents_when_it_computes(view: str, engine: Any) -> None:
    """The engine raises its own error, with the same text."""
    frame = engine("duckdb").frame(spoiled(view, cents=True, one=False))
    for function in (md.probabilities, md.ohlc) if view == "prices" else (md.overround, md.mid, md.complement):
        with pytest.raises(Exception, match="outside of 0 to 1; prices are probabilities"):
            computed(function(frame, "1h") if function is md.ohlc else function(frame))


def test_zero_one_and_what_sums_are_off_by_are_probabilities() -> None:
    """Prices of 0 and 1, and of some bits beyond, are taken."""
    frame = PRICES.with_columns(price=pl.when(pl.int_range(pl.len()) % 2 == 0).then(-1e-12).otherwise(1 + 1e-12))
    assert len(md.brier(frame, {"rain": "Yes"})) == 1
