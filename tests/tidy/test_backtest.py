"""Records for backtesters hold what the frames say, in the order in which it was known."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import levels_of
from reference.kinds import FRAME_KINDS, few, of_kind

import marketdata as md
from marketdata.testing.strategies import MINUTE, book_columns, metric_columns, price_columns
from marketdata.tidy.frames import to_columns, to_frame
from marketdata.times import to_datetime


@few
@given(books=book_columns(), prices=price_columns(), metrics=metric_columns())
def test_events_come_in_the_order_in_which_they_were_known(books: Any, prices: Any, metrics: Any) -> None:
    """Every snapshot, price and point comes once, at the end of its bucket, never before an earlier one."""
    frames = {"books": to_frame(books, "polars"), "prices": to_frame(prices, "pandas")}
    got = list(md.replay(**frames, metrics=to_frame(metrics, "polars").lazy(), width="1m"))  # type: ignore[arg-type]
    assert [e.available_at for e in got] == sorted(e.available_at for e in got)
    assert all((e.available_at - e.ts).total_seconds() == 60 for e in got)
    assert sum(e.view == "metrics" for e in got) == len(metrics)
    seen = {(e.ts, e.token_id): e.data for e in got if e.view == "prices"}
    assert len(seen) == len(prices)
    for i, ts in enumerate(prices.ts):
        value = seen[to_datetime(int(ts)), prices.tokens[prices.token[i]].token_id]
        assert value == prices.price[i] or (value is None and math.isnan(prices.price[i]))
    at = 0
    for i, ts in enumerate(books.ts):
        nb, na = books.counts[2 * i : 2 * i + 2]
        (data,) = [
            e.data
            for e in got
            if e.view == "books"
            and e.ts == to_datetime(int(ts))
            and (e.token_id, e.token_label) == books.tokens[books.token[i]][1:]
        ]
        assert data.bids.tolist() == levels_of(books)[at : at + nb].tolist()
        assert data.asks.tolist() == levels_of(books)[at + nb : at + nb + na].tolist()
        at += nb + na


def test_events_of_pages_hold_one_page_at_a_time() -> None:
    """An iterable of frames is read as events are taken, and may not go back in time."""
    frame = md.testing.prices("polars", buckets=150).sort("ts")
    taken = []

    def pages() -> Any:
        for at in range(0, len(frame), 100):
            taken.append(at)
            yield frame.slice(at, 100)

    events = md.replay(prices=pages(), width="1m")
    next(events)
    assert taken == [0]
    assert len(list(events)) == len(frame) - 1
    with pytest.raises(md.errors.NotTidyError, match="back in time"):
        list(md.replay(prices=[frame, frame], width="1m"))
    with pytest.raises(md.errors.NotTidyError, match="rows of one token"):
        list(md.replay(prices=[frame.head(2), frame.head(2)], width="1m"))
    with pytest.raises(md.errors.ConfigError, match="books="):
        md.replay(width="1m")


class Instrument(NamedTuple):
    """The attributes of an instrument that `md.to_nautilus` reads."""

    id: str
    price_precision: int
    size_precision: int


YES = Instrument("1.X", 4, 2)


@given(kind=st.sampled_from(FRAME_KINDS), books=book_columns())
def test_nautilus_records_hold_the_books(kind: str, books: Any) -> None:
    """Depth records hold every level as exact text, and quotes are the tops of two-sided books."""
    cents = to_frame(books.take(np.flatnonzero(books.token == 0)), "polars").with_columns(
        pl.col("price").round(4), pl.col("size").round(2)
    )
    frame = of_kind(to_columns("books", cents), kind)
    read_back = []
    for record in md.to_nautilus(frame, YES, "1m", kind="depth"):
        for side, orders in (("bid", record["bids"]), ("ask", record["asks"])):
            assert len(orders) == 10
            assert record[f"{side}_counts"] == [int(order["side"] != "NO_ORDER_SIDE") for order in orders]
            read_back += [
                (record["ts_event"] // 1000 - MINUTE, side, float(o["price"]), float(o["size"]))
                for o in orders
                if o["side"] != "NO_ORDER_SIDE"
            ]
    levels = cents.drop_nulls("price").with_columns(pl.col("ts").dt.timestamp("us"), pl.col("side").cast(pl.String))
    assert sorted(read_back) == sorted(levels.select("ts", "side", "price", "size").rows())
    tops = md.bbo(cents).drop_nulls("mid").sort("ts")
    quotes = list(md.to_nautilus(frame, YES, "1m"))
    assert [float(q["bid_price"]) for q in quotes] == tops["best_bid"].to_list()
    assert [float(q["ask_size"]) for q in quotes] == tops["best_ask_size"].to_list()


def test_nautilus_records_are_refused_rather_than_wrong() -> None:
    """Too few decimals, several tokens and what is no instrument are errors that say what to do."""
    books = small()
    with pytest.raises(md.errors.ConfigError, match=r"price .* has more than the 1 decimals"):
        md.to_nautilus(books, Instrument("1.X", 1, 2), "1m")
    with pytest.raises(md.errors.ConfigError, match="filter by token_id"):
        md.to_nautilus(md.testing.books(), YES, "1m")
    with pytest.raises(md.errors.ConfigError, match="pass an instrument of nautilus_trader"):
        md.to_nautilus(books, "1.X", "1m")
    with pytest.raises(md.errors.ConfigError, match="quotes, depth"):
        md.to_nautilus(books, YES, "1m", kind="trades")  # type: ignore[arg-type]


def small() -> pl.DataFrame:
    """Two snapshots of one token: the second has lost its best levels and its asks."""
    books = md.testing.books("polars", buckets=2).filter(token_label="Yes")
    is_first = pl.col("ts") == pl.col("ts").min()
    return books.filter(is_first | ((pl.col("side") == "bid") & (pl.col("level") > 0))).with_columns(
        level=pl.when(is_first).then("level").otherwise(pl.col("level") - 1).cast(pl.Int32)
    )


def option(token: str) -> Any:
    """A binary option of nautilus_trader, as the guide makes it."""
    instruments = pytest.importorskip(
        "nautilus_trader.model.instruments", reason="nautilus_trader is not installed: make handover"
    )
    from nautilus_trader.model.currencies import USDC
    from nautilus_trader.model.enums import AssetClass
    from nautilus_trader.model.identifiers import InstrumentId, Symbol
    from nautilus_trader.model.objects import Price, Quantity

    return instruments.BinaryOption(
        instrument_id=InstrumentId.from_str(f"{token}.MARKETDATA"), raw_symbol=Symbol(token), outcome="Yes",
        description="Will it rain?", asset_class=AssetClass.ALTERNATIVE, currency=USDC, price_precision=3,
        price_increment=Price.from_str("0.001"), size_precision=2, size_increment=Quantity.from_str("0.01"),
        activation_ns=0, expiration_ns=0, max_quantity=None, min_quantity=None, maker_fee=Decimal(0),
        taker_fee=Decimal(0), ts_event=0, ts_init=0,
    )  # fmt: skip


def test_nautilus_trader_reads_the_records() -> None:
    """Its own types take the records and give them back."""
    yes = option("1")
    from nautilus_trader.model import data

    for kind, name in (("quotes", "QuoteTick"), ("depth", "OrderBookDepth10")):
        reader = getattr(data, name)
        for record in md.to_nautilus(small(), yes, "1m", kind=kind):  # type: ignore[arg-type]
            read_back = reader.to_dict(reader.from_dict(record))
            for key in ("instrument_id", "ts_event", "bid_price", "bid_counts", "ask_counts"):
                assert read_back.get(key) == record.get(key)


def bought(books: pl.DataFrame, size: float) -> tuple[float, float]:
    """Shares and cost of a market order for Yes on the first book, as `md.execute` fills it."""
    first = books.filter(token_label="Yes").head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"))
    (fill,) = md.execute(first.with_columns(size=size), books, "1m", latency="0s", fees=0).fills.to_dicts()
    return fill["shares"], fill["notional"]


@pytest.mark.parametrize("size", [250, 350, 900])
def test_nautilus_trader_fills_what_execute_fills(size: int) -> None:
    """A strategy buys in the package's engine, level by level, the shares and at the cost that `md.execute` says."""
    instrument = option("11")
    from nautilus_trader.backtest.engine import BacktestEngine
    from nautilus_trader.config import BacktestEngineConfig, LoggingConfig
    from nautilus_trader.model.currencies import USDC
    from nautilus_trader.model.data import OrderBookDepth10
    from nautilus_trader.model.enums import AccountType, BookType, OmsType, OrderSide
    from nautilus_trader.model.identifiers import Venue
    from nautilus_trader.model.objects import Money
    from nautilus_trader.trading.strategy import Strategy

    fills: list[tuple[float, float]] = []

    class Buyer(Strategy):  # type: ignore[misc]
        def on_start(self) -> None:
            self.subscribe_order_book_depth(instrument.id, book_type=BookType.L2_MBP)

        def on_order_book_depth(self, _: object) -> None:
            if self.cache.orders_total_count() == 0:
                self.submit_order(self.order_factory.market(instrument.id, OrderSide.BUY, instrument.make_qty(size)))

        def on_order_filled(self, event: Any) -> None:
            fills.append((float(event.last_qty), float(event.last_px)))

    books = md.testing.books("polars", buckets=1)
    depth = md.to_nautilus(books.filter(token_label="Yes"), instrument, "1m", kind="depth")
    engine = BacktestEngine(BacktestEngineConfig(logging=LoggingConfig(bypass_logging=True)))
    money = [Money(1_000, USDC)]
    engine.add_venue(Venue("MARKETDATA"), OmsType.NETTING, AccountType.CASH, money, book_type=BookType.L2_MBP)
    engine.add_instrument(instrument)
    engine.add_data([OrderBookDepth10.from_dict(record) for record in depth])
    engine.add_strategy(Buyer())
    engine.run()
    engine.dispose()
    shares = sum(quantity for quantity, _ in fills)
    cost = sum(quantity * price for quantity, price in fills)
    assert (shares, pytest.approx(cost)) == bought(books, float(size))


def test_vectorbt_takes_the_matrix() -> None:
    """A portfolio over the matrix buys and holds at its prices."""
    vbt = pytest.importorskip("vectorbt", reason="vectorbt is not installed: make handover")
    archive = md.simulate(events=1, days=1)
    prices = md.align(archive.prices(archive.records("markets")[0]["id"]), "1m", fill="forward")
    prices = prices.pivot(index="ts", columns="token_id", values="price")
    held = vbt.Portfolio.from_holding(prices, init_cash=100.0, freq="1min")
    growth = prices.iloc[-1] / prices.iloc[0] - 1
    assert np.allclose(held.total_return().to_numpy(), growth.to_numpy())
