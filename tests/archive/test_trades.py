"""Prints in an archive: each once, whatever brings it again, and as plain rows, bars and SQL."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.archive import maintenance
from marketdata.errors import ArchiveError, ConfigError, NotTidyError
from marketdata.recordings import partitions
from marketdata.testing import strategies

START = 1_767_225_600_000_000


class Print(NamedTuple):
    """A print as a plain row; what a source does not know is None."""

    ts: int
    token_id: str
    side: str | None
    price: float
    size: float
    trade_id: str | None = None
    transaction_hash: str | None = None
    log_index: int | None = None
    maker: str | None = None


def frame_of(prints: list[Print]) -> pl.DataFrame:
    """Prints as a frame, without the columns that no print has."""
    types = dict.fromkeys(Print._fields, pl.String) | {"ts": pl.Int64, "log_index": pl.Int64}
    types |= dict.fromkeys(("price", "size"), pl.Float64)
    rows = pl.DataFrame(prints, schema=types, orient="row")
    known = [name for name in rows.columns if name in Print._fields[:5] or rows[name].null_count() < len(rows)]
    ts = (pl.lit(START) + pl.col("ts") * 1_000_000).cast(pl.Datetime("us", "UTC"))
    return rows.select(known).with_columns(ts=ts, market_id=pl.lit("m"))


def stored(archive: md.Archive) -> list[tuple[Any, ...]]:
    """The prints of an archive as plain rows, without what the archive adds."""
    rows = archive.trades(on_missing="partial")
    names = [name for name in Print._fields if name in rows.columns]
    seconds = (pl.col("ts").dt.epoch("us") - START) // 1_000_000
    whole = {"log_index": pl.col("log_index").cast(pl.Int64)} if "log_index" in names else {}
    return sorted(rows.select(names).with_columns(ts=seconds, **whole).rows(), key=repr)


def new_archive(tmp_path_factory: pytest.TempPathFactory) -> md.Archive:
    """An empty archive of polars frames."""
    return md.Archive(tmp_path_factory.mktemp("prints"), frame="polars")


# Few values, so that equal prints are frequent.
PLAIN = st.tuples(
    st.integers(0, 3), st.sampled_from(["y", "n"]), st.sampled_from(["buy", "sell", None]),
    st.sampled_from([0.25, 0.5]), st.sampled_from([1.0, 10.0]),
).map(lambda values: Print(*values))  # fmt: skip


@settings(max_examples=5, deadline=None)
@given(st.lists(st.lists(PLAIN, min_size=1, max_size=6), min_size=1, max_size=4))
def test_equal_prints_without_an_id_are_counted(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[Print]]
) -> None:
    """Each add may repeat prints: of equal ones as many are stored as the add with the most of them has."""
    archive, most = new_archive(tmp_path_factory), Counter[Print]()
    for part in parts:
        archive.add(trades=frame_of(part))
        most |= Counter(part)
    assert Counter(stored(archive)) == Counter({row[:5]: count for row, count in most.items()})
    assert sum(archive.coverage()["rows"]) == most.total()
    assert not len(archive.verify())


@settings(max_examples=5, deadline=None)
@given(st.data(), st.lists(PLAIN, min_size=1, max_size=10), st.sampled_from(["trade_id", "log_index"]))
def test_a_print_with_an_id_is_stored_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, prints: list[Print], kind: str
) -> None:
    """Adds of any overlapping parts, in any order, give each print once, though all of them may be equal."""
    named = [
        one._replace(trade_id=f"t{i}") if kind == "trade_id" else one._replace(transaction_hash="0xh", log_index=i)
        for i, one in enumerate(prints)
    ]
    archive, seen = new_archive(tmp_path_factory), set[Print]()
    for _ in range(3):
        part = data.draw(st.lists(st.sampled_from(named), min_size=1))
        archive.add(trades=frame_of(part))
        seen |= set(part)
    assert len(archive.trades(on_missing="partial")) == len(seen)
    archive.add(trades=frame_of(named))
    names = [name for name in Print._fields if name in archive.trades().columns]
    assert stored(archive) == sorted([tuple(getattr(one, name) for name in names) for one in named], key=repr)
    assert archive.coverage()["rows"].sum() == len(named)


def test_what_another_source_tells_of_a_print_completes_it(tmp_path: Path) -> None:
    """A print of the venue, of the chain and of a recorder is one, with the ids and accounts that each knows."""
    archive = md.Archive(tmp_path, frame="polars")
    seen = Print(10, "y", "buy", 0.5, 4.0, transaction_hash="0xh")
    archive.add(trades=frame_of([seen, seen]))
    archive.add(trades=frame_of([seen._replace(ts=12, log_index=7, maker="0xa", price=0.500000001)]))
    archive.add(trades=frame_of([seen._replace(ts=8, log_index=8, maker="0xb")]))
    rows = archive.trades()
    assert rows.sort("log_index").select("price", "log_index", "maker").rows() == [(0.5, 7.0, "0xa"), (0.5, 8.0, "0xb")]
    assert archive.coverage()["rows"].sum() == 2
    assert not len(archive.verify())
    archive.add(trades=frame_of([seen._replace(log_index=9)]))
    assert len(archive.trades()) == 3


def test_rows_of_a_venue_are_prints(tmp_path: Path) -> None:
    """The rows of an answer are read as the client reads them, and are stored once."""
    archive = md.Archive(tmp_path, frame="polars")
    row = {
        "trade_id": "a", "ticker": "KXA-1", "count_fp": "2.50", "yes_price_dollars": "0.08", "no_price_dollars": "0.92",
        "taker_outcome_side": "no", "created_time": "2026-08-24T15:01:57.667166Z", "is_block_trade": True,
    }  # fmt: skip
    for _ in range(2):
        archive.add(trades=[row])
    found = archive.trades().select("token_id", "side", "price", "size", "trade_id", "is_block").rows()
    assert found == [("KXA-1:no", "buy", 0.92, 2.5, "a", True)]


def test_an_empty_text_is_no_id(tmp_path: Path) -> None:
    """Prints without an id stay apart, in a frame and in a file, though a program wrote an empty text for it."""
    prints = frame_of([Print(n, "y", "buy", 0.5, 1.0, trade_id="", transaction_hash="") for n in (1, 1, 2)])
    archive = md.Archive(tmp_path / "frame", frame="polars")
    archive.add(trades=prints)
    assert len(archive.trades()) == 3
    prints.rename({"ts": "timestamp", "token_id": "asset_id"}).write_parquet(tmp_path / "prints.parquet")
    other = md.Archive(tmp_path / "file", frame="polars")
    other.add_files(tmp_path / "prints.parquet", format="trades")
    assert len(other.trades()) == 3
    assert "trade_id" not in other.trades().columns


def test_a_corrected_print_replaces_the_one_of_its_id(tmp_path: Path) -> None:
    """The venue's id tells that it is the same print, as token and time do for a price."""
    archive = md.Archive(tmp_path, frame="polars")
    one = Print(1, "y", "buy", 0.5, 4.0, trade_id="a")
    archive.add(trades=frame_of([one, one._replace(ts=2, trade_id="b")]))
    archive.add(trades=frame_of([one._replace(size=5.0)]))
    assert archive.trades().sort("trade_id")["size"].to_list() == [5.0, 4.0]


def test_contradictions_and_other_kinds_are_refused(tmp_path: Path) -> None:
    """Two prints of one id that differ, sides of books, cents, sizes below 0 and lacking numbers are named."""
    archive = md.Archive(tmp_path, frame="polars")
    one = Print(1, "y", "buy", 0.5, 4.0, trade_id="a")
    with pytest.raises(NotTidyError, match=r"Two prints have the trade_id a .* legs of one trade"):
        archive.add(trades=frame_of([one, one._replace(size=5.0)]))
    for wrong in ({"side": "bid"}, {"price": 52.0}, {"size": -1.0}, {"price": None}):
        with pytest.raises(NotTidyError):
            archive.add(trades=frame_of([one._replace(**wrong)]))
    with pytest.raises(NotTidyError, match="size"):
        archive.add(trades=frame_of([one]).drop("size"))
    assert archive.coverage().is_empty()
    with pytest.raises(ArchiveError, match="not a token of any market"):
        archive.add(trades=frame_of([one]).drop("market_id"))


@settings(max_examples=5, deadline=None)
@given(strategies.trade_frames("polars"), st.sampled_from(["1m", "10s", "1h"]))
def test_reads_scans_and_sql_have_the_prints_and_their_bars(
    tmp_path_factory: pytest.TempPathFactory, prints: pl.DataFrame, width: str
) -> None:
    """All of them give what was added, and bars as `resample` makes of it."""
    archive = md.Archive(tmp_path_factory.mktemp("prints"), frame="polars", base="1s")
    archive.add(trades=prints)
    if prints.is_empty():
        assert archive.scan("trades").collect().is_empty()
        return
    got = archive.trades()
    assert len(got) == len(prints)
    assert (
        archive.scan("trades")
        .collect()
        .select(got.columns)
        .sort(got.columns)
        .equals(got.with_columns(pl.col(pl.Categorical).cast(pl.String)).sort(got.columns))
    )
    bars = md.resample(got, width)
    assert archive.trades(resolution=width).equals(bars)
    assert archive.scan("trades", resolution=width).collect()["volume"].sum() == pytest.approx(prints["size"].sum())
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    assert archive.sql("select sum(size) as s, count(*) as n from trades").row(0) == pytest.approx(
        (prints["size"].sum(), len(prints))
    )


def test_trades_have_no_width_of_their_own(tmp_path: Path) -> None:
    """Bars carry theirs; `width=` is refused for prints, and levels too."""
    archive = md.Archive(tmp_path, frame="polars")
    archive.add(markets=md.testing.markets(), trades=md.testing.trades())
    bars = archive.trades(resolution="1m")
    assert md.returns(bars, "close", width="1m")["returns"].null_count() == 2
    with pytest.raises(ConfigError, match="own times"):
        md.resample(archive.trades(), "1h", width="1m")
    with pytest.raises(ConfigError, match="only books have levels"):
        archive.scan("trades", levels=1)


def test_compact_puts_the_prints_of_a_market_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that all have all markets become files of some markets each, with the same prints and coverage."""
    monkeypatch.setattr(maintenance, "_FILE_BYTES", 400)  # no file is small then
    archive = md.Archive(tmp_path, frame="polars")
    for part in range(6):
        prints = frame_of([Print(100 * part + n, "y", "buy", 0.5, 1.0, trade_id=f"{part}-{n}") for n in range(60)])
        markets = pl.Series([f"m{n % 12:02}" for n in range(60)])
        archive.add(trades=prints.with_columns(market_id=markets))
    before, coverage = stored(archive), archive.coverage()
    table = archive._store.points["trades"]
    assert all((f.market_min, f.market_max) == ("m00", "m11") for f in table.version().files)
    archive.compact()
    files = sorted(table.version().files, key=lambda file: file.market_min)
    assert len(files) < 6
    assert all(one.market_max < other.market_min for one, other in pairwise(files))
    assert stored(archive) == before
    assert archive.coverage().equals(coverage)
    assert archive.verify().is_empty()
    archive.compact()
    assert sorted(table.version().files, key=lambda file: file.market_min) == files


@settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(st.lists(st.tuples(PLAIN, st.sampled_from(["m1", "m2", "m3"])), min_size=1, max_size=12), st.integers(1, 6))
def test_a_file_is_imported_in_parts_of_whole_markets(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Print, str]], most: int
) -> None:
    """Whatever the size of a part, equal prints of a file stay as many as they are, and a second import adds none."""
    frame = frame_of([one._replace(side=one.side or "buy") for one, _ in rows])
    frame = frame.with_columns(market_id=pl.Series([market for _, market in rows]))
    path = tmp_path_factory.mktemp("files") / "prints.parquet"
    frame.rename({"ts": "timestamp", "token_id": "asset_id"}).write_parquet(path)
    archive = new_archive(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "PART_ROWS", most)
        for _ in range(2):
            archive.add_files(path, format="trades", progress=False)
            got = archive.trades(on_missing="partial").select("ts", "market_id", "token_id", "side", "price", "size")
            assert sorted(got.rows()) == sorted(frame.select(got.columns).rows())
    assert archive.verify().is_empty()
