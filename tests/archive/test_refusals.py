"""What an archive refuses, each with its class and the words that say what to do."""

from __future__ import annotations

import gzip
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference.columns import coded_series
from reference.polymarket_stub import PolymarketStub
from reference.venues import client_of

import marketdata as md
from marketdata.archive.feed import Feed
from marketdata.errors import (
    ArchiveBusyError,
    ArchiveCorruptError,
    ArchiveError,
    ArchiveFullError,
    ConfigError,
    NotFoundError,
    NotTidyError,
)
from marketdata.points.columns import Token
from marketdata.times import SECOND, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
TOKEN = "7" * 40
Case = tuple[Callable[["Store"], Any], type[Exception], str]


class Store:
    """A small archive, and what a case may change."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.later: Callable[[], object] = lambda: None
        self.archive = md.Archive(folder / "a", frame="polars")
        self.archive.add(markets=[market()])
        self.archive.add(prices=prices())

    def file(self, name: str, text: str) -> Path:
        (path := self.folder / name).write_text(text)
        return path


def market(**more: Any) -> dict[str, Any]:
    return {"market_id": "m", "slug": "rain", "token_ids": [TOKEN], "token_labels": ["Yes"], **more}


def prices(**more: Any) -> pl.DataFrame:
    row = {"ts": [to_datetime(START)], "market_id": ["m"], "token_id": [TOKEN], "token_label": ["Yes"], "price": [0.5]}
    return pl.DataFrame({**row, **more})


def columns(market_id: str = "m", token_id: str | None = TOKEN, label: str | None = "Yes") -> Any:
    """One price as the library itself holds it."""
    token = Token(market_id, token_id, label)
    return coded_series([token], np.zeros(1, np.int32), np.array([START]), {"price": np.array([0.5])})


def books(price: float) -> pl.DataFrame:
    return prices().drop("price").with_columns(side=pl.lit("bid"), level=0, price=pl.lit(price), size=1.0)


def refused_open(store: Store) -> Any:
    """An archive whose folder the system does not let be looked at."""

    def fails(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    store.patch.setattr("pathlib.Path.is_file", fails)
    return md.Archive(store.folder / "b")


def rivals(store: Store) -> Any:
    """A write during which others always commit first."""
    from marketdata.archive.storage.tables import Table

    store.patch.setattr("time.sleep", lambda _: None)
    store.patch.setattr(Table, "_sent", lambda *_, **__: False)
    return store.archive.add(prices=prices(price=[0.25]))


def changing(store: Store) -> Any:
    """A vacuum of a folder whose files come and go."""

    def gone(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError

    store.patch.setattr("pyarrow.fs.FileSelector", gone)
    return store.archive.vacuum()


def forked(store: Store) -> Any:
    """A read in a process whose parent has used an archive."""
    from marketdata.archive.storage.errors import _Process

    store.patch.setattr(_Process, "first", os.getpid() + 1)
    return store.archive.prices()


def without(store: Store, module: str) -> md.Archive[Any]:
    store.patch.setitem(sys.modules, module, None)
    return store.archive


def imported(store: Store, name: str, text: str, **options: Any) -> Any:
    return store.archive.add_files(store.file(name, text), **options)


def stopped(store: Store) -> Any:
    """A statement that is told to end before it has begun to answer."""
    (stop := threading.Event()).set()
    return store.archive.sql("select count(*) from range(1000000000) a, range(1000) b", stop=stop)


def client() -> Any:
    return md.Client("http://127.0.0.1:9", "k" * 32)


def pulled(store: Store) -> Any:
    with client_of(PolymarketStub(count=1)) as source:
        return store.archive.pull(source, ["will-it-rain-0"], end="2026-01-06")


def cut(store: Store) -> Any:
    whole = gzip.compress(b'{"event_type":"book"}\n' * 3)
    (path := store.folder / "x.jsonl.gz").write_bytes(whole[:12])
    return store.archive.add_files(path, format="market-channel", token_id="7")


def torn(store: Store) -> Any:
    """A book whose sizes are fewer than its prices, as another program has written it."""
    from deltalake import DeltaTable, write_deltalake

    store.archive.add(books=books(0.4))
    table = f"{store.folder}/a/books"
    (row,) = DeltaTable(table).to_pyarrow_table().to_pylist()
    schema = DeltaTable(table).to_pyarrow_table().schema
    write_deltalake(table, pa.Table.from_pylist([{**row, "bid_price": [0.4, 0.3]}], schema), mode="overwrite")
    return md.Archive(store.folder / "a", frame="polars").books(on_missing="partial")


def failing_storage(store: Store) -> Any:
    """A statement during which the storage fails."""
    import duckdb

    def fails(*_: Any) -> Any:
        raise duckdb.IOException("IO Error: Could not read from file")

    store.patch.setattr("marketdata.archive.sql._define", fails)
    return store.archive.sql("select 1")


def fewer_rows(store: Store) -> Any:
    """A reader that gives other rows than the footer of a file says."""
    read = pq.ParquetFile.read_row_groups
    store.patch.setattr(pq.ParquetFile, "read_row_groups", lambda *a, **k: read(*a, **k).slice(1))
    return md.Archive(store.folder / "a").prices()


def without_its_first_commit(store: Store) -> Any:
    """A table whose log has commits, and none that makes it a table."""
    log = store.folder / "a" / "prices" / "_delta_log"
    kept = {file: file.read_bytes() for file in log.glob("*.json")}
    store.later = lambda: [file.write_bytes(content) for file, content in kept.items()]
    for file in kept:
        file.unlink()
    (log / "00000000000000000000.json").write_text("")
    return md.Archive(store.folder / "a").prices()


def no_table(store: Store) -> Any:
    """A storage that fails while the first table of a kind is made."""

    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device (os error 28)")

    store.patch.setattr("deltalake.DeltaTable.create", fails)
    return md.Archive(store.folder / "b").add(prices=prices())


def gone_since(store: Store) -> Any:
    """The past of which a file has been removed."""
    import datetime as dt

    then = dt.datetime.now(dt.UTC)
    old = {*store.folder.glob("a/prices/**/*.parquet")}
    store.archive.add(prices=prices(price=[0.25]), replace=True)
    for file in old:
        file.unlink()
    return md.Archive(store.folder / "a", as_of=then).prices()


def below_zero(store: Store) -> Any:
    """Quotes of a size that is none."""
    head = "ts,market_id,token_id,best_bid,best_ask,best_bid_size"
    return imported(store, "q.csv", f"{head}\n{START // SECOND},m,{TOKEN},0.4,0.5,-4\n")


def over(store: Store) -> Any:
    """The stream of an event whose markets have resolved."""
    stub = PolymarketStub(count=1)
    tell = stub.record
    stub.record = lambda one: tell(one) | {"closed": True}  # type: ignore[method-assign]
    with client_of(stub) as source:
        return [*store.archive.record(source, event_slug="weather-0")]


def large(store: Store) -> Any:
    """The stream of a market with more tokens than a connection has."""
    ids = [str(10**40 + k) for k in range(1_000)]
    store.archive.add(markets=[{"market_id": "n", "token_ids": ids, "token_labels": ids}])
    return [*store.archive.record(md.Client("polymarket", hosts={"stream": "http://127.0.0.1:9"}), "n")]


def no_session(store: Store) -> Any:
    """Spark without a running session."""
    session = SimpleNamespace(getActiveSession=lambda: None)
    modules = {"pyspark": {}, "pyspark.sql": {"SparkSession": session}, "pyspark.sql.pandas": {},
               "pyspark.sql.pandas.types": {"from_arrow_schema": None}}  # fmt: skip
    for name, content in modules.items():
        store.patch.setitem(sys.modules, name, SimpleNamespace(**content))
    return store.archive.scan("prices", engine="spark")


class Own(Feed):
    """A source of one's own, which has no stream."""


def cut_after_its_names(store: Store) -> Any:
    """A table that ends in the middle of its first rows."""
    rows = "".join(f"{START + k},{TOKEN},bid,0.4,{k * 7919 % 1000},true\n" for k in range(5_000))
    whole = gzip.compress(f"ts,token_id,side,price,size,is_snapshot\n{rows}".encode())
    (path := store.folder / "y.csv.gz").write_bytes(whole[:2_000])
    return store.archive.add_files(path, format="incremental")


TRADES = f"ts,token_id,side,price,size\n{START // SECOND},{TOKEN},buy,0.4,{{}}\n"
CASES: dict[str, Case] = {
    "a base that is none": (lambda s: md.Archive(s.folder / "b", base="2d"), ConfigError, "250ms to 1d"),
    "a folder that cannot be looked at": (refused_open, ArchiveError, "Permission denied"),
    "no start": (pulled, ConfigError, "period='7d'"),
    "half a character in an id": (
        lambda s: s.archive.add(prices=columns(token_id="\ud800")), NotTidyError, "a lone surrogate",
    ),
    "half a character": (lambda s: s.archive.add(prices=prices(token_id=["\ud800"])), Exception, "surrogate"),
    "an infinite level": (lambda s: s.archive.add(books=books(float("inf"))), NotTidyError, "infinite or NaN"),
    "points of another view": (lambda s: s.archive.add(metrics=columns()), ConfigError, "takes metrics, not prices"),
    "a slug that is not known": (
        lambda s: s.archive.add(metrics=pl.DataFrame({"ts": [to_datetime(START)], "slug": ["x"], "volume": [1.0],
                                                      "liquidity": [1.0], "spread": [0.1]})),
        ArchiveError, "Add the market first",
    ),
    "a metric of no market": (
        lambda s: s.archive.add(metrics=pl.DataFrame({"ts": [to_datetime(START)], "market_id": [""], "volume": [1.0],
                                                      "liquidity": [1.0], "spread": [0.1]},
                                                     schema_overrides={"market_id": pl.String})),
        NotTidyError, "has no market_id",
    ),
    "a price of nothing": (
        lambda s: s.archive.add(prices=columns("m", None, None)), NotTidyError, "neither a token_id",
    ),
    "some rows without a token": (
        lambda s: s.archive.add(prices=pl.concat([
            prices(token_label=["New"]),
            prices(token_id=[None], token_label=["New"], ts=[to_datetime(START + 60 * SECOND)]),
        ], how="vertical_relaxed")),
        NotTidyError, "have a token_id, others have none",
    ),
    "records that are none": (lambda s: s.archive.add(markets=["m"]), ConfigError, "dicts only"),
    "records of no kind of frame": (lambda s: s.archive.add(markets=5), ConfigError, "is not a frame"),
    "a text with half a character": (
        lambda s: s.archive.add(markets=[market(question="\ud800")]), ConfigError, "Repair",
    ),
    "an id that was a float": (lambda s: s.archive.add(markets=[market(market_id=7.1e76)]), ConfigError, "lost digits"),
    "a list that is a text": (
        lambda s: s.archive.add(markets=[{"id": "n", "tokens": [{"id": "1"}], "token_ids": "1"}]),
        ConfigError, "json.loads",
    ),
    "ids without labels": (
        lambda s: s.archive.add(markets=[market(token_labels=[])]), ConfigError, "each id needs a label",
    ),
    "SQL without DuckDB": (lambda s: without(s, "duckdb").sql("select 1"), ModuleNotFoundError, "pip install"),
    "Dask that is not there": (
        lambda s: without(s, "dask.dataframe").scan("prices", engine="dask"), ModuleNotFoundError, "pip install",
    ),
    "Spark that is not there": (
        lambda s: without(s, "pyspark.sql").scan("prices", engine="spark"), ModuleNotFoundError, "pip install",
    ),
    "SQL that gives nothing": (lambda s: s.archive.sql("-- nothing"), ConfigError, "that gives rows"),
    "a statement that is stopped": (stopped, ConfigError, "stopped before its end"),
    "a fork": (forked, ArchiveError, "spawn"),
    "others who commit first": (rivals, ArchiveBusyError, "kept committing first"),
    "files that come and go": (changing, ArchiveError, "change faster than they can be listed"),
    "a file without a usable row": (
        lambda s: imported(s, "p.csv", f"ts,token_id,price\n{START // SECOND},,0.4\n"),
        ConfigError, "none of its 1 rows",
    ),
    "trades without a usable row": (
        lambda s: imported(s, "t.csv", TRADES.format(-1), format="trades"), ConfigError, "stores none of its 1 rows",
    ),
    "trades of one token called Yes and No": (
        lambda s: imported(s, "t.csv", f"ts,token_id,outcome,side,price,size\n1767225600,{TOKEN},Yes,buy,.4,1\n"
                                       f"1767225601,{TOKEN},No,buy,.4,1\n"),
        ConfigError, "'t.csv'.*is called No and Yes",
    ),
    "a recording that ends before its first row": (
        cut, ConfigError, "ends in the middle|damaged|cannot be read|is empty",
    ),
    "a book with fewer sizes than prices": (torn, ArchiveCorruptError, "not as many as"),
    "a storage that fails in a statement": (failing_storage, ArchiveError, "could not be read"),
    "a file with other rows than it says": (fewer_rows, ArchiveCorruptError, "other rows than were written"),
    "a log without a table": (without_its_first_commit, ArchiveError, "prices"),
    "a table that cannot be made": (no_table, ArchiveFullError, "No space"),
    "a past that was removed": (gone_since, ConfigError, "vacuum has removed files"),
    "a size below zero": (below_zero, NotTidyError, "'q.csv'.*below 0"),
    "a stream of what is over": (over, NotFoundError, "None of these markets is open"),
    "a market larger than a connection": (large, ConfigError, "a connection takes"),
    "points that replace nothing": (
        lambda s: s.archive._store.observe("prices", columns(), {}),
        ArchiveError, "outside of the ranges that were seen",
    ),
    "points outside of what they replace": (
        lambda s: s.archive._store.commit("prices", columns(), {"x": []}), ArchiveError, "they were to replace",
    ),
    "a table that ends before its first row": (cut_after_its_names, ConfigError, "cannot be read further"),
    "Spark without a session": (no_session, ConfigError, "SparkSession.builder"),
    "a stream of one's own source": (lambda s: [*s.archive.record(Own(), "m")], ConfigError, "has no stream"),
    "a stream of a service": (
        lambda s: [*s.archive.record(client(), "m")], ConfigError, "has no stream|no books of this",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Each is an error of its own class, and what was stored before stays."""
    store = Store(tmp_path, monkeypatch)
    call, kind, words = CASES[name]
    with pytest.raises(kind, match=words):
        call(store)
    monkeypatch.undo()
    store.later()
    assert md.Archive(tmp_path / "a", frame="polars").prices().height == 1
