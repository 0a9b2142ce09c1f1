"""Measures, markets and series on Dask (two processes), DuckDB (a connection far from UTC) and Spark (two threads)."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from reference.engines import ENGINES, Engine, fetched
from reference.kinds import ID_COLUMNS, close
from reference.odd_points import rich

import marketdata as md
from marketdata.tidy.frames import to_frame

WON = {"0xm": "1" * 77, "0xn": "3" * 77}
TS = "2026-01-01T12:00"
RECORDS = pl.DataFrame({
    "market_id": ["0xm", "0xn"], "token_ids": [["1" * 77, "2" * 77], ["3" * 77, "4" * 77]],
    "token_labels": [["Yes", "No"]] * 2, "resolved_token_id": [*WON.values()],
    "closed_at": ["2026-01-02T00:00:00Z", None],
})  # fmt: skip
EVENTS = RECORDS.with_columns(event_id=pl.lit("e"), exclusive=True, open_list=False)
LADDER = EVENTS.drop("exclusive").with_columns(strike=pl.Series([2.0, 1.0]), comparison=pl.lit(">"))
MOMENTS = pl.DataFrame({"ts": [TS, "2026-01-01T10:30"], "market_id": ["0xm", "0xn"], "news": ["a", "b"]}).with_columns(
    pl.col("ts").str.to_datetime(time_zone="UTC")
)


def forward_returns(books: Any) -> Any:
    """The returns over two horizons, with every option."""
    return md.forward_returns(
        books,
        ["1h", "5h"],
        latency="0s",
        size=10,
        fees=md.Fees.flat(0.01),
        tolerance="2h",
        outcomes=RECORDS,
        width="1m",
    )


VERBS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "features": lambda b, p, m: md.features(b, ["mid", "imbalance", ("depth", {"within": 0.2})]),
    "to_wide": lambda b, p, m: md.to_wide(b, 3),
    "nest explode": lambda b, p, m: md.explode(md.nest(b)),
    "overround": lambda b, p, m: md.overround(b),
    "arbitrage": lambda b, p, m: md.arbitrage(b),
    "overround of an event": lambda b, p, m: md.overround(b, EVENTS),
    "arbitrage of an event": lambda b, p, m: md.arbitrage(b, EVENTS, fees=md.Fees.quadratic(0.05), size=10),
    "probabilities": lambda b, p, m: md.probabilities(p),
    "probabilities of an event": lambda b, p, m: md.probabilities(p, EVENTS),
    "event_distribution": lambda b, p, m: md.event_distribution(p, LADDER),
    "event_contradictions": lambda b, p, m: md.event_contradictions(b, LADDER, fees=0, size=1),
    "probabilities of records": lambda b, p, m: md.probabilities(b, tokens=RECORDS),
    "time_to_resolution": lambda b, p, m: md.time_to_resolution(p, RECORDS),
    "around": lambda b, p, m: md.around(p, MOMENTS, before="30m", after="1h"),
    "around any market": lambda b, p, m: md.around(m, MOMENTS.drop("market_id"), before="5h", after="1h", width="1m"),
    "brier of tokens": lambda b, p, m: md.brier(p, WON, of="token"),
    "brier": lambda b, p, m: md.brier(b, RECORDS),
    "brier of all": lambda b, p, m: md.brier(b, RECORDS, of="all", interval=None),
    "log_score": lambda b, p, m: md.log_score(p, RECORDS),
    "brier by topic": lambda b, p, m: md.brier(
        b, RECORDS.with_columns(topic="market_id"), of="all", by="topic", interval=None
    ),
    "calibration": lambda b, p, m: md.calibration(p, WON, 3),
    "calibration with intervals": lambda b, p, m: md.calibration(p, RECORDS, 3, interval=0.9),
    "available_at": lambda b, p, m: md.available_at(p, "1m"),
    "gaps": lambda b, p, m: md.gaps(p, "1m"),
    "forward_returns": lambda b, p, m: forward_returns(b),
    "ohlc": lambda b, p, m: md.ohlc(p, "6h"),
    "ohlc of metrics": lambda b, p, m: md.ohlc(m, "10m", "volume"),
    "returns": lambda b, p, m: md.returns(p),
    "returns side by side": lambda b, p, m: md.returns(p, how="change", width="1m"),
}


@pytest.fixture(scope="module", params=ENGINES)
def running(request: Any, engine: Any) -> Engine:
    return engine(request.param)


@pytest.fixture(scope="module")
def polar() -> list[pl.DataFrame]:
    return [to_frame(rich(view, 30), "polars") for view in ("books", "prices", "metrics")]


def plain(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of any frame, in an order of their own; null and NaN are None, times microseconds."""
    data = fetched(frame)
    data = data.with_columns(nw.col(c).cast(nw.String) for c in (*ID_COLUMNS, "side") if c in data.columns)
    columns = [
        data[c].dt.timestamp("us").to_list() if isinstance(data[c].dtype, nw.Datetime) else data[c].to_list()
        for c in data.columns
    ]
    columns = [[None if str(v) in {"None", "nan", "<NA>"} else v for v in column] for column in columns]
    names = [c for c in (*ID_COLUMNS, "event_id", "ts", "start", "side", "level", "bin_start") if c in data.columns]
    places = [data.columns.index(c) for c in names]
    return sorted(zip(*columns, strict=True), key=lambda row: [(row[i] is None, str(row[i])) for i in places])


@pytest.mark.filterwarnings("ignore::marketdata.errors.MissingValuesWarning")
@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")
@pytest.mark.parametrize("name", VERBS)
def test_an_engine_gives_the_rows_of_polars(running: Engine, polar: list[pl.DataFrame], name: str) -> None:
    """Each function on the engine's frames gives the same rows, and the engine's kind of frame."""
    frames = [running.frame(f) for f in polar]
    got = VERBS[name](*frames)
    assert type(got) is type(frames[0])
    assert close(plain(got), plain(VERBS[name](*polar)), digits=1e-9, least=1e-9)


def test_no_later_row_changes_a_forward_return(running: Engine, polar: list[pl.DataFrame]) -> None:
    """Rows of ts or earlier are the same without the books after ts + latency + horizon + tolerance."""
    books = polar[0]
    last = books["ts"].min() + dt.timedelta(hours=4)  # type: ignore[operator]
    early_books = books.filter(pl.col("ts") <= last + dt.timedelta(hours=5 + 2))
    assert len(early_books) < len(books)
    all_rows, early_rows = (
        [row for row in plain(forward_returns(running.frame(frame))) if row[0] <= last.timestamp() * 1e6]
        for frame in (books, early_books)
    )
    assert all_rows
    assert all_rows == early_rows


def test_trades_on_an_engine(running: Engine, polar: list[pl.DataFrame]) -> None:
    """Average prices and effective spreads are those of polars; Dask has no joins as of a time."""
    quotes = md.bbo(polar[0]).drop_nulls("mid")
    trades = quotes.select(
        pl.col("ts") + pl.duration(minutes=1), "market_id", "token_id", side=pl.lit("buy"), price="best_ask",
        size="best_ask_size",
    )  # fmt: skip
    frames = [running.frame(frame) for frame in (trades, polar[0])]
    assert close(plain(md.vwap(frames[0], "6h")), plain(md.vwap(trades, "6h")), digits=1e-9)
    if running.name != "dask":
        spreads = md.effective_spread(trades, polar[0], width="1m")
        assert close(plain(md.effective_spread(*frames, width="1m")), plain(spreads), digits=1e-9)


def test_a_complement_on_an_engine(running: Engine, polar: list[pl.DataFrame]) -> None:
    """The mirror of a market with two tokens is the same."""
    books = polar[0].filter(pl.col("market_id").cast(pl.String) == "0xm")
    assert close(plain(md.complement(running.frame(books))), plain(md.complement(books)), least=1e-12)


def test_joins_and_grids_say_where_they_do_not_go(running: Engine, polar: list[pl.DataFrame]) -> None:
    """A join or grid that an engine cannot do is a ConfigError, not a result."""
    _, prices, metrics = (running.frame(f) for f in polar)
    with pytest.raises(md.errors.ConfigError, match="polars"):
        md.align(prices, "1m")
    if running.name == "dask":
        with pytest.raises(md.errors.ConfigError, match="compute"):
            md.asof_join(prices, metrics, width="1m")
    else:
        got = md.asof_join(prices, metrics, width="1m")
        assert close(plain(got), plain(md.asof_join(polar[1], polar[2], width="1m")))


def bought(orders: Any, books: Any) -> Any:
    """The fills of orders on books of any kind, and their account."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.errors.MissingValuesWarning)
        done = md.execute(orders, books, "1m", fees=md.Fees.flat(0.01), latency="0s", outcomes=RECORDS)
    account = md.account(done.fills, books, "1m")
    return done.fills, account.total, account.markets


def test_what_is_computed_is_the_same(running: Engine, polar: list[pl.DataFrame]) -> None:
    """Events, a report, charts and an archive take the rows of an engine's frame."""
    books, prices, _ = (running.frame(f) for f in polar)
    assert len(list(md.replay(prices=prices, width="1m"))) == len(list(md.replay(prices=polar[1], width="1m")))
    orders = polar[1].filter(pl.col("ts") == pl.col("ts").min()).select("ts", "market_id", "token_id")
    orders = orders.with_columns(side=pl.lit("buy"), size=10.0)
    for held in zip(bought(orders, books), bought(orders, polar[0]), strict=True):
        assert close(*(plain(frame) for frame in held))
    report, wanted = (
        nw.from_native(md.check(f)).select("check", "severity", "n_failed", "n_checked") for f in (books, polar[0])
    )
    assert report.rows() == wanted.rows()


def test_relations_of_two_connections_are_refused_by_name() -> None:
    """DuckDB's own message names a variable of this library."""
    duckdb = pytest.importorskip("duckdb")
    prices = duckdb.connect().sql(
        "SELECT now() AS ts, '7' AS market_id, '1' AS token_id, 'Yes' AS token_label, 0.5 AS price"
    )
    metrics = duckdb.connect().sql("SELECT now() AS ts, '7' AS market_id, 1.0 AS volume")
    with pytest.raises(md.errors.ConfigError, match=r"different connections.*one connection"):
        md.asof_join(prices, metrics, width="1m")
