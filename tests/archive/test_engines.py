"""Every engine reads the tables: the same points as the archive answers, whole and of one market."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.source import MARKETS
from archive.stored import books, data_files, prices
from reference.engines import Engine, ordered
from reference.kinds import close

import marketdata as md
from marketdata.archive import Archive

M, N = MARKETS
# Level rows of a side, from rows with list columns; what is common to the dialects of SQL.
DUCK = """
    select epoch(ts), token_id, unnest(range(len(bid_price))), unnest(bid_price), unnest(bid_size)
    from read_parquet($files) where market_id = $market
"""
SPARK = """
    select ts, token_id, level, price, bid_size[level] as size
    from books lateral view posexplode(bid_price) as level, price where market_id = 'm/1'
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two markets in several files, one range of them replaced: dropped files lie beside those that count."""
    archive = Archive(tmp_path_factory.mktemp("engines") / "archive", frame="polars")
    for market in MARKETS:
        archive.add(books=books(market, 0, 60), prices=prices(market, 0, 60))
        archive.add(books=books(market, 30, 60, size=2.0), prices=prices(market, 30, 60, value=0.25))
    return archive


@pytest.fixture(scope="module", params=["duckdb", "spark"])
def outside(request: pytest.FixtureRequest, engine: Any) -> Engine:
    return engine(request.param)


def bids(archive: Archive) -> list[Any]:
    """Bid levels of one market as the archive answers them."""
    rows = archive.scan("books", M).filter(side="bid").drop_nulls("price").collect()
    return sorted(rows.select(pl.col("ts").dt.epoch("s"), "token_id", "level", "price", "size").rows())


def test_polars_reads_the_delta_table(filled: Archive) -> None:
    """scan_delta gives one row per snapshot, and explodes to the archive's rows."""
    rows = pl.scan_delta(str(Path(filled.location, "books"))).filter(market_id=M)
    level = pl.int_ranges(pl.col("bid_price").list.len()).alias("level")
    levels = rows.select(pl.col("ts").dt.epoch("s"), "token_id", level, price="bid_price", size="bid_size")
    found = levels.explode("level", "price", "size", empty_as_null=False, keep_nulls=False).collect()
    assert sorted(found.rows()) == bids(filled)


def test_duckdb_and_spark_read_the_files(filled: Archive, outside: Engine) -> None:
    """DuckDB and Spark explode books to the archive's rows, and resample prices as its frame does."""
    files = list(map(str, data_files(filled, "books")))
    if outside.name == "duckdb":
        assert sorted(outside.native.execute(DUCK, {"files": files, "market": M}).fetchall()) == bids(filled)
        frame = outside.native.read_parquet(list(map(str, data_files(filled, "prices"))))
    else:
        outside.native.read.parquet(*files).createOrReplaceTempView("books")
        rows = outside.native.sql(SPARK).collect()
        assert sorted((int(r.ts.timestamp()), r.token_id, r.level, r.price, r["size"]) for r in rows) == bids(filled)
        frame = outside.native.read.parquet(*list(map(str, data_files(filled, "prices"))))
    assert close(ordered(md.resample(frame, "1h")), ordered(md.resample(filled.prices(list(MARKETS)), "1h")))
