"""What backtesters take holds what the frames say, in the order in which it was known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from coded import levels_of
from hypothesis import given
from kinds import KINDS, few, of_kind, rows

import marketdata as md
from marketdata.testing.strategies import MINUTE, START, book_columns, metric_columns, price_columns
from marketdata.tidy.export.hftbacktest import HFT_EVENT
from marketdata.tidy.frames import to_frame
from marketdata.times import to_datetime

BUY, SELL = 1 << 29, 1 << 28


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow", "shuffled polars"])
@few
@given(columns=price_columns())
def test_a_matrix_holds_every_price_in_its_place(kind: str, columns: Any) -> None:
    """Row by time, column by token: each price stands there, and nothing else does."""
    out = md.pivot(of_kind(columns, kind))
    if kind == "pandas":
        stamps = [int(t.value) // 1000 for t in out.index.as_unit("ns")]
        table = {str(c): out[c].tolist() for c in out.columns}
    else:
        out = out.collect() if kind == "lazy" else pl.from_arrow(out) if kind == "arrow" else out
        stamps = out["ts"].dt.timestamp("us").to_list()
        table = {c: out[c].to_list() for c in out.columns if c != "ts"}
    assert stamps == sorted({int(t) for t in columns.ts})
    assert list(table) == [columns.tokens[i].token_id for i in sorted(set(columns.token.tolist()))]
    want = {
        (columns.tokens[i].token_id, int(t)): float(p)
        for i, t, p in zip(columns.token, columns.ts, columns.price, strict=True)
    }
    for token, values in table.items():
        for ts, value in zip(stamps, values, strict=True):
            there = want.get((token, ts), math.nan)
            assert value == there or (math.isnan(there) and (value is None or math.isnan(value)))


def test_a_matrix_refuses_what_would_mix_tokens() -> None:
    """Labels that repeat over markets, and rows that stand twice, are refused."""
    archive = md.simulate(events=2, days=1)
    markets = [m["id"] for m in archive.records("markets") if len(m["tokens"]) == 2][:2]
    prices = archive.prices(markets, frame="polars")
    with pytest.raises(md.ConfigError, match="token_id"):
        md.pivot(prices, columns="token_label")
    with pytest.raises(md.ConfigError, match="allowed"):
        md.pivot(prices, columns="slug")
    assert md.pivot(pl.concat([prices, prices])).equals(md.pivot(prices))
    with pytest.raises(md.NotTidyError, match="different price"):
        md.pivot(pl.concat([prices, prices.with_columns(price=1 - pl.col("price") / 3)]))
    assert md.pivot(archive.metrics(markets), "volume").columns.tolist() == sorted(markets)


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
    archive = md.simulate(events=1, days=1)
    frame = archive.prices(archive.records("markets")[0]["id"], frame="polars").sort("ts")
    taken = []

    def pages() -> Any:
        for at in range(0, len(frame), 100):
            taken.append(at)
            yield frame.slice(at, 100)

    events = md.replay(prices=pages(), width="1m")
    next(events)
    assert taken == [0]
    assert len(list(events)) == len(frame) - 1
    with pytest.raises(md.NotTidyError, match="back in time"):
        list(md.replay(prices=[frame, frame], width="1m"))
    with pytest.raises(md.ConfigError, match="books="):
        md.replay(width="1m")


def replay(array: np.ndarray[Any, Any]) -> dict[int, list[Any]]:
    """The book after each time, by the meaning that hftbacktest gives to the events."""
    sides: dict[int, dict[float, float]] = {BUY: {}, SELL: {}}
    out = {}
    for event in array:
        side = sides[int(event["ev"]) & (BUY | SELL)]
        if int(event["ev"]) & 0xFF == 3:
            buy = bool(int(event["ev"]) & BUY)
            for price in [p for p in side if (p >= event["px"] if buy else p <= event["px"])]:
                del side[price]
        else:
            side[float(event["px"])] = float(event["qty"])
        out[int(event["exch_ts"])] = [sorted(sides[BUY].items(), reverse=True), sorted(sides[SELL].items())]
    return out


@pytest.mark.parametrize("kind", KINDS)
@few
@given(books=book_columns())
def test_the_event_array_replays_to_the_same_books(kind: str, books: Any) -> None:
    """Clearing and setting, event by event, gives each snapshot again at the end of its bucket."""
    one = books.take(np.flatnonzero(books.token == 0))
    array = md.to_hftbacktest(of_kind(one, kind), "1m", latency=0.25)
    got, at = replay(array), 0
    assert array.dtype == HFT_EVENT
    assert (array["local_ts"] - array["exch_ts"] == 250_000_000).all()
    assert (np.diff(array["exch_ts"]) >= 0).all()
    assert len(got) == len(one)
    for i, ts in enumerate(one.ts):
        nb, na = one.counts[2 * i : 2 * i + 2]
        bids, asks = levels_of(one)[at : at + nb].tolist(), levels_of(one)[at + nb : at + nb + na].tolist()
        at += nb + na
        assert [[list(level) for level in side] for side in got[(int(ts) + MINUTE) * 1000]] == [bids, asks]


def test_several_tokens_are_no_event_array() -> None:
    """An array is of one asset; the error says how to get there."""
    archive = md.simulate(events=1, days=1)
    with pytest.raises(md.ConfigError, match="Filter by token_id"):
        md.to_hftbacktest(archive.books(archive.records("markets")[0]["id"]), "1m")


@few
@given(books=book_columns())
def test_nautilus_records_read_back_as_the_same_books(books: Any) -> None:
    """Depth records hold every level as text; quotes are the tops of two-sided books."""
    frame = to_frame(books, "polars")
    cents = frame.with_columns(pl.col("price").round(4), pl.col("size").round(2))
    back = []
    for record in md.to_nautilus_depth(cents, "1m"):
        token = record["instrument_id"].removesuffix(".MARKETDATA")
        for side, found in (("bid", record["bids"]), ("ask", record["asks"])):
            assert len(found) == 10
            assert record[f"{side}_counts"] == [int(order["side"] != "NO_ORDER_SIDE") for order in found]
            back += [
                (record["ts_event"] // 1000 - MINUTE, token, side, float(o["price"]), float(o["size"]))
                for o in found
                if o["side"] != "NO_ORDER_SIDE"
            ]
    held = cents.filter(pl.col("price").is_not_null()).with_columns(pl.col("ts").dt.timestamp("us"))
    want = held.with_columns(pl.col("token_id", "side").cast(pl.String)).select(
        "ts", "token_id", "side", "price", "size"
    )
    assert sorted(back) == sorted(want.rows())
    top = [row for row in rows(md.bbo(cents)) if row[8] is not None]
    quotes = list(md.to_nautilus_quotes(cents, "1m"))
    assert sorted(float(q["bid_price"]) for q in quotes) == sorted(row[4] for row in top)


def test_numbers_are_never_rounded_in_silence() -> None:
    """Too few digits are refused."""
    frame = md.testing.books()
    with pytest.raises(md.ConfigError, match="price needs more"):
        next(md.to_nautilus_quotes(frame, "1m", digits=(1, 2)))
    assert next(md.to_nautilus_quotes(frame, "1m", digits=(4, 6)))["bid_size"].split(".")[1].__len__() == 6


def small() -> pl.DataFrame:
    """Two snapshots of one token: the second has lost its best levels and its asks."""
    return pl.DataFrame(
        [
            (0, "bid", 0, 0.52, 100.0),
            (0, "bid", 1, 0.51, 40.0),
            (0, "ask", 0, 0.54, 75.0),
            (1, "bid", 0, 0.5, 10.0),
            (1, "ask", None, None, None),
        ],
        schema=["ts", "side", "level", "price", "size"],
        orient="row",
    ).with_columns(
        ts=pl.lit(to_datetime(START)) + pl.duration(minutes="ts"),
        market_id=pl.lit("m"),
        token_id=pl.lit("1"),
        token_label=pl.lit("Yes"),
    )


def test_hftbacktest_reads_the_array() -> None:
    """The package's own book has the best prices of each snapshot, and none where a side is missing."""
    hft = pytest.importorskip("hftbacktest", reason="hftbacktest is not installed: make handover")
    array = md.to_hftbacktest(small(), "1m", latency=0.001)
    assert array.dtype == hft.types.event_dtype
    asset = hft.BacktestAsset().data(array).linear_asset(1.0).constant_order_latency(0, 0)
    asset = asset.risk_adverse_queue_model().no_partial_fill_exchange().trading_value_fee_model(0, 0)
    backtest = hft.HashMapMarketDepthBacktest([asset.tick_size(0.01).lot_size(0.01)])
    backtest.elapse(1_000_000_000)
    first = backtest.depth(0)
    assert (round(first.best_bid, 6), round(first.best_ask, 6)) == (0.52, 0.54)
    assert first.bid_qty_at_tick(51) == 40.0
    backtest.elapse(60_000_000_000)
    second = backtest.depth(0)
    assert (round(second.best_bid, 6), math.isnan(second.best_ask)) == (0.5, True)
    assert second.bid_qty_at_tick(52) == 0.0
    backtest.close()


def test_nautilus_trader_reads_the_records() -> None:
    """The package's own types take the records and give them back."""
    data = pytest.importorskip("nautilus_trader.model.data", reason="nautilus_trader is not installed: make handover")
    for kind, make in (("QuoteTick", md.to_nautilus_quotes), ("OrderBookDepth10", md.to_nautilus_depth)):
        type_ = getattr(data, kind)
        for record in make(small(), "1m"):
            back = type_.to_dict(type_.from_dict(record))
            for key in ("instrument_id", "ts_event", "bid_price", "bid_counts", "ask_counts"):
                assert back.get(key) == record.get(key)
            for side in ("bids", "asks"):
                for a, b in zip(back.get(side, []), record.get(side, []), strict=True):
                    assert (float(a["price"]), float(a["size"])) == (float(b["price"]), float(b["size"]))


def test_nautilus_trader_reads_the_catalog(tmp_path: Path) -> None:
    """One call writes instruments, quotes and books, and the package's catalog gives the same numbers back."""
    catalogs = pytest.importorskip(
        "nautilus_trader.persistence.catalog", reason="nautilus_trader is not installed: make handover"
    )
    books, markets = md.testing.books("polars", markets=2), md.testing.markets("polars", markets=3)
    # The first snapshot of each token has an empty side: its zeros must not decide the decimals of the file.
    first = (pl.col("side") == "bid") & (pl.col("ts") == books["ts"].min())
    empty = [pl.when(~first).then(pl.col(c)).alias(c) for c in ("level", "price", "size")]
    books = books.with_columns(empty).unique(maintain_order=True)
    written = md.write_nautilus_catalog(tmp_path / "catalog", books, "1m", markets, fees=0)
    assert written == {"instruments": 4, "quotes": 8, "books": 12}
    catalog = catalogs.ParquetDataCatalog(str(tmp_path / "catalog"))
    assert {str(i.id) for i in catalog.instruments()} == {f"{t}.MARKETDATA" for t in ("11", "12", "21", "22")}
    assert {(i.outcome, i.price_precision) for i in catalog.instruments()} == {("Yes", 3), ("No", 3)}
    back = {
        (str(depth.instrument_id), depth.ts_event, side, float(order.price), float(order.size))
        for depth in catalog.order_book_depth10()
        for side, orders in (("bid", depth.bids), ("ask", depth.asks))
        for order in orders
        if order.size > 0
    }
    want = books.drop_nulls("price").select(
        pl.format("{}.MARKETDATA", pl.col("token_id")),
        (pl.col("ts").dt.timestamp("us") + MINUTE) * 1000,
        pl.col("side").cast(pl.String),
        "price",
        "size",
    )
    assert back == set(want.rows())
    assert len(catalog.quote_ticks()) == 8
    with pytest.raises(md.ConfigError, match="in no record"):
        md.write_nautilus_catalog(tmp_path / "other", books, "1m", markets.head(1), fees=0)


def test_a_catalog_has_the_instrument_of_the_market_of_the_books(tmp_path: Path) -> None:
    """A record of another market with the same short token ids makes no second instrument of that name."""
    catalogs = pytest.importorskip(
        "nautilus_trader.persistence.catalog", reason="nautilus_trader is not installed: make handover"
    )
    books, markets = md.testing.books("polars", buckets=1), md.testing.markets("polars")
    other = markets.with_columns(market_id=pl.lit("other"), question=pl.lit("Another one?"))
    for records in ([markets, other], [other, markets]):
        path = tmp_path / str(records[0]["market_id"][0])
        written = md.write_nautilus_catalog(path, books, "1m", pl.concat(records), fees=0)
        assert written["instruments"] == 2
        found = {instrument.description for instrument in catalogs.ParquetDataCatalog(str(path)).instruments()}
        assert found == {markets["question"][0]}
    with pytest.raises(md.ConfigError, match="needs more than 9 decimals"):
        md.write_nautilus_catalog(path, books.with_columns(pl.col("size") / 3), "1m", markets, fees=0)


def test_a_catalog_is_not_written_twice(tmp_path: Path) -> None:
    """Later books are added; the same ones again, and an instrument that changed, are refused and not left out."""
    catalogs = pytest.importorskip(
        "nautilus_trader.persistence.catalog", reason="nautilus_trader is not installed: make handover"
    )
    books, markets = md.testing.books("polars", buckets=4), md.testing.markets("polars")
    middle = books["ts"].unique().sort()[2]
    early, late = books.filter(pl.col("ts") < middle), books.filter(pl.col("ts") >= middle)
    fees = md.Fees.quadratic(0.05)
    md.write_nautilus_catalog(tmp_path, early, "1m", markets, fees=fees)
    for again in (early, books, early.with_columns(pl.col("size") + 1)):
        with pytest.raises(md.ConfigError, match="The catalog has quotes of '11"):
            md.write_nautilus_catalog(tmp_path, again, "1m", markets, fees=fees)
    with pytest.raises(md.ConfigError, match="The catalog has another instrument"):
        md.write_nautilus_catalog(tmp_path, late, "1m", markets, fees=0)
    md.write_nautilus_catalog(tmp_path, late, "1m", markets, fees=fees)
    catalog = catalogs.ParquetDataCatalog(str(tmp_path))
    assert (len(catalog.instruments()), len(catalog.quote_ticks()), len(catalog.order_book_depth10())) == (2, 8, 8)


def bought(books: pl.DataFrame, size: float) -> tuple[float, float]:
    """Shares and cost of a market order for Yes on the first book, as `md.execute` fills it."""
    first = books.filter(token_label="Yes").head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"))
    (fill,) = md.execute(first.with_columns(size=size), books, "1m", latency=0, fees=0).fills.to_dicts()
    return fill["shares"], fill["notional"]


@pytest.mark.parametrize("size", [250, 350, 900])
def test_nautilus_trader_fills_what_execute_fills(tmp_path: Path, size: int) -> None:
    """A strategy buys in the package's engine, level by level, the shares and at the cost that `md.execute` says."""
    pytest.importorskip("nautilus_trader", reason="nautilus_trader is not installed: make handover")
    from nautilus_trader.backtest.engine import BacktestEngine
    from nautilus_trader.config import BacktestEngineConfig, LoggingConfig
    from nautilus_trader.model.currencies import USDC
    from nautilus_trader.model.enums import AccountType, BookType, OmsType, OrderSide
    from nautilus_trader.model.identifiers import InstrumentId, Venue
    from nautilus_trader.model.objects import Money
    from nautilus_trader.persistence.catalog import ParquetDataCatalog
    from nautilus_trader.trading.strategy import Strategy

    yes, fills = InstrumentId.from_str("11.MARKETDATA"), []

    class Buyer(Strategy):  # type: ignore[misc]
        def on_start(self) -> None:
            self.subscribe_order_book_depth(yes, book_type=BookType.L2_MBP)

        def on_order_book_depth(self, _: object) -> None:
            if self.cache.orders_total_count() == 0:
                instrument = self.cache.instrument(yes)
                self.submit_order(self.order_factory.market(yes, OrderSide.BUY, instrument.make_qty(size)))

        def on_order_filled(self, event: Any) -> None:
            fills.append((float(event.last_qty), float(event.last_px)))

    books = md.testing.books("polars", buckets=1)
    md.write_nautilus_catalog(tmp_path, books, "1m", md.testing.markets("polars"), fees=0)
    catalog = ParquetDataCatalog(str(tmp_path))
    engine = BacktestEngine(BacktestEngineConfig(logging=LoggingConfig(bypass_logging=True)))
    money = [Money(1_000, USDC)]
    engine.add_venue(Venue("MARKETDATA"), OmsType.NETTING, AccountType.CASH, money, book_type=BookType.L2_MBP)
    for instrument in catalog.instruments():
        engine.add_instrument(instrument)
    engine.add_data(catalog.order_book_depth10())
    engine.add_strategy(Buyer())
    engine.run()
    engine.dispose()
    shares = sum(quantity for quantity, _ in fills)
    cost = sum(quantity * price for quantity, price in fills)
    assert (shares, pytest.approx(cost)) == bought(books, float(size))


def test_hftbacktest_fills_what_execute_fills() -> None:
    """An order for what rests at the best ask is filled at the cost that `md.execute` says."""
    hft = pytest.importorskip("hftbacktest", reason="hftbacktest is not installed: make handover")
    books = md.testing.books("polars", buckets=1)
    array = md.to_hftbacktest(books.filter(token_label="Yes"), "1m")
    asset = hft.BacktestAsset().data(array).linear_asset(1.0).constant_order_latency(0, 0)
    asset = asset.risk_adverse_queue_model().partial_fill_exchange().trading_value_fee_model(0, 0)
    backtest = hft.HashMapMarketDepthBacktest([asset.tick_size(0.01).lot_size(0.01)])
    backtest.elapse(1_000_000_000)
    backtest.submit_buy_order(0, 1, 0.43, 250.0, hft.order.IOC, hft.LIMIT, True)
    state = backtest.state_values(0)
    assert (state.position, pytest.approx(-state.balance)) == bought(books, 250.0)
    backtest.close()


def test_instruments_are_one_per_token() -> None:
    """Ids, labels, precision and life of each token of each market, whatever the kind of the frame."""
    for kind in ("pandas", "polars"):
        markets = md.testing.markets(kind, markets=2)  # type: ignore[arg-type]
        got = list(md.to_nautilus_instruments(markets, fees=0, digits=(2, 0)))
        assert [(i["id"], i["outcome"]) for i in got][:2] == [("11.MARKETDATA", "Yes"), ("12.MARKETDATA", "No")]
        assert {(i["price_increment"], i["size_increment"], i["info"]["market_id"]) for i in got} == {
            ("0.01", "1", "rain"),
            ("0.01", "1", "snow"),
        }
        assert got[0]["expiration_ns"] - got[0]["activation_ns"] == 86_400 * 10**9
    with pytest.raises(md.NotTidyError, match="token_ids"):
        next(md.to_nautilus_instruments(pl.DataFrame({"market_id": ["m"]}), fees=0))


def test_instruments_carry_the_fee_of_their_market() -> None:
    """The rate of each market is its taker fee; a function has none, and an unknown fee is an error, not 0."""
    markets = md.testing.markets("polars", markets=2).with_columns(
        feeSchedule=pl.Series(['{"rate": 0.05, "exponent": 1}', '{"rate": 0.07}'])
    )
    got = list(md.to_nautilus_instruments(markets, fees=md.Fees.of(markets)))
    assert [(i["taker_fee"], i["maker_fee"]) for i in got] == [("0.05", "0")] * 2 + [("0.07", "0")] * 2
    assert got[0]["info"]["fee_schedule"] == {"rate": 0.05}
    assert "price x (1 - price)" in got[0]["info"]["fee"]
    with pytest.raises(md.ConfigError, match="one rate"):
        next(md.to_nautilus_instruments(markets, fees=lambda price, shares: price * 0))
    with pytest.raises(md.ConfigError, match="'snow' is not known"):
        list(md.to_nautilus_instruments(markets, fees=md.Fees.of(markets.head(1))))


def test_an_id_of_two_markets_is_no_instrument() -> None:
    """Short token ids repeat across markets, and an instrument has one name."""
    books = md.testing.books("polars", markets=2).with_columns(token_id=pl.col("token_label"))
    with pytest.raises(md.ConfigError, match="of several markets"):
        next(md.to_nautilus_depth(books, "1m"))


def test_vectorbt_takes_the_matrix() -> None:
    """A portfolio over the matrix buys and holds at its prices."""
    vbt = pytest.importorskip("vectorbt", reason="vectorbt is not installed: make handover")
    archive = md.simulate(events=1, days=1)
    prices = md.pivot(md.align(archive.prices(archive.records("markets")[0]["id"]), "1m", fill="forward"))
    held = vbt.Portfolio.from_holding(prices, init_cash=100.0, freq="1min")
    growth = prices.iloc[-1] / prices.iloc[0] - 1
    assert np.allclose(held.total_return().to_numpy(), growth.to_numpy())
