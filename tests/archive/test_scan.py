"""Scans and SQL: the rows of reads, in parts of bounded size, limited by markets and times."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from archive.source import MARKETS, MINUTE, START, columns_of
from archive.stored import books, data_files, prices
from hypothesis import given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.archive import Archive, query
from marketdata.archive.reading import Reader
from marketdata.errors import ArchiveError, ConfigError, NotArchivedError
from marketdata.points.columns import Token, Trades, joined
from marketdata.points.schema import BOOKS
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.times import Range

M, N = MARKETS
DAY = 1440
# Minutes from the start to the next full hour.
FULL = -START // MINUTE % 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seventy days of two markets with gaps inside of buckets, empty sides and nulls."""
    archive = Archive(tmp_path_factory.mktemp("scanned"), frame="polars")
    rng = np.random.default_rng(5)
    for market in MARKETS:
        for first in (0, 95, 20 * DAY + 7, 69 * DAY):
            archive.add(books=books(market, first, 80))
            keys = [(t, n) for t in range(2) for n in range(first, first + 80, 3)]
            values = rng.random(len(keys)).tolist()
            archive.add(prices=columns_of("prices", market, keys, [float("nan"), *values[1:]]))
            numbers = [(0, n) for n in range(first, first + 80)]
            archive.add(metrics=columns_of("metrics", market, numbers, rng.random((80, 2)).tolist()))
            archive.add(trades=prints_of(rng, market, first))
    return Path(archive.location)


def prints_of(rng: np.random.Generator, market: str, first: int) -> Trades:
    """Prints of 80 minutes from one on, some of one time, each with an id."""
    ts = START + first * MINUTE + rng.integers(0, 4_800, 90) * (MINUTE // 60)
    tokens = [Token(market, f"{market}-{label}", label) for label in ("Yes", "No")]
    values = {"price": rng.random(90), "size": rng.random(90), "side": rng.choice(["buy", "sell"], 90).astype(object)}
    ids = np.array([f"{market}-{first}-{number}" for number in range(90)], object)
    return Trades.of(tokens, rng.integers(0, 2, 90), ts, {**values, "log_index": np.arange(90.0), "trade_id": ids})


@pytest.fixture
def filled(folder: Path, tmp_path: Path) -> Archive:
    """An archive of one's own of them."""
    return Archive(shutil.copytree(folder, tmp_path / "filled"), frame="polars")


def same(scan: pl.LazyFrame, frame: pl.DataFrame) -> None:
    """The same rows in some order of files."""
    from polars.testing import assert_frame_equal

    mine = scan.collect()
    theirs = frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
    assert mine.schema == theirs.schema
    keys = [c for c in ("market_id", "token_id", "ts", "side", "level") if c in mine.columns]
    assert_frame_equal(mine.sort(keys), theirs.sort(keys))


@pytest.mark.parametrize("view", VIEWS)
def test_a_scan_has_the_rows_of_a_read(folder: Path, view: View) -> None:
    """Whole, and cut to one market and a range that begins and ends inside of buckets."""
    filled = Archive(folder, frame="polars")
    span = (START + 31 * MINUTE) / 1e6, (START + (69 * DAY + 45) * MINUTE) / 1e6
    read = getattr(filled, view)
    for resolution in ("1m", "1h", "1d"):
        whole = read(list(MARKETS), None, None, resolution, on_missing="partial")
        same(filled.scan(view, resolution=resolution), whole)
        one = read(N, *span, resolution, on_missing="partial")
        same(filled.scan(view, N, *span, resolution), one)
        same(filled.scan(view, [N], *span, resolution).filter(market_id=N), one)


def test_what_is_not_there_scans_as_nothing_or_is_an_error(archive: Archive) -> None:
    """An empty archive has no rows but all columns; unknown markets, views and widths are named."""
    for resolution in ("1m", "1h"):
        assert archive.scan("books", resolution=resolution).collect().columns == list(BOOKS)
    wrong: Any
    for wrong in ({"view": "orders"}, {"view": "books", "resolution": "7m"}):
        with pytest.raises(ConfigError):
            archive.scan(**wrong)
    with pytest.raises(NotArchivedError):
        archive.scan("books", "nobody")


@pytest.mark.fault("AR30")
def test_only_base_points_are_stored(archive: Archive) -> None:
    """A range that was asked at two resolutions is held once, at 1m; a coarse scan or read stores nothing."""
    archive.add(books=books(M, 0, 120))
    before = archive.coverage(), data_files(archive, "books")
    for resolution in ("10m", "1h", "1d"):
        archive.books(M, resolution=resolution)
        archive.scan("books", resolution=resolution).collect()
    assert archive.coverage().equals(before[0])
    assert data_files(archive, "books") == before[1]
    assert np.all(np.diff(np.unique(Reader(archive).columns("books", M).ts)) == MINUTE)


@pytest.mark.fault("AR30")
def test_aggregated_rows_never_replace_base_points(filled: Archive) -> None:
    """Hourly books or means are refused where 1m points are held; elsewhere they are no proof of the minutes."""
    before = filled.coverage()
    with pytest.raises(ArchiveError, match="1h"):
        filled.add(books=filled.books(M, resolution="1h", on_missing="partial"))
    means = md.resample(filled.prices(M, on_missing="partial"), "10m")
    with pytest.raises(ArchiveError, match="10m"):
        filled.add(prices=means)
    assert filled.coverage().equals(before)
    elsewhere = means.with_columns(pl.col("ts") - pl.duration(days=300))
    with pytest.warns(md.errors.PartialCoverageWarning, match="grid of 10m"):
        filled.add(prices=elsewhere)
    assert filled.verify().is_empty()
    before = filled.coverage().filter(pl.col("start") < elsewhere["ts"].max())
    assert before["state"].unique().to_list() == ["unverified"]


def time(minute: int) -> dt.datetime:
    """So many minutes after a full hour."""
    return dt.datetime.fromtimestamp((START + (FULL + minute) * MINUTE) / 1e6, dt.UTC)


@settings(max_examples=4)
@given(
    st.lists(st.tuples(st.sampled_from([*MARKETS, "a", "z"]), st.integers(0, 300)), min_size=1, max_size=5),
    st.sampled_from(["10m", "1h", "1d"]),
    st.sampled_from([1, 300, 3_000]),
    st.sampled_from([1, 2_000, 10**9]),
    st.tuples(st.integers(0, 200), st.integers(1, 200)),
    st.sampled_from([None, [M], [N, "z"]]),
)
def test_parts_are_the_read_and_cut_no_bucket(
    added: list[tuple[str, int]], width: str, part: int, largest: int, span: tuple[int, int], some: list[str] | None
) -> None:
    """However files lie and however small the parts are: together they are one read, and no bucket is in two."""
    archive = Archive(Path(tempfile.mkdtemp()) / "a", frame="polars")
    for market, first in added:
        rows = prices(M, first, 90)
        tokens = tuple(t._replace(market_id=market) for t in rows.tokens)
        archive.add(prices=rows.grouped(tokens, rows.token))
    table, step = archive._store.points["prices"], BucketWidth.of(width)
    wanted = Range(START + span[0] * MINUTE, START + sum(span) * MINUTE)
    ids = None if some is None else sorted(some)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "_PART", part)
        patch.setattr(query, "_LARGEST_PART", largest)
        parts = list(query.Query("prices", table, table.version(), ids, wanted).stored(step))
    (whole,) = [*query.Query("prices", table, table.version(), ids, wanted).stored()] or [empty("prices")]
    together = joined(parts).sort() if parts else whole
    assert (together.tokens, together.ts.tolist()) == (whole.tokens, whole.ts.tolist())
    buckets = [{(c.tokens[k], t) for k, t in zip(c.token, step.floor(c.ts).tolist(), strict=True)} for c in parts]
    assert sum(map(len, buckets)) == len(set().union(*buckets))


@pytest.fixture
def hours(tmp_path: Path) -> Archive:
    """Three hours of prices in a file each of two markets."""
    archive = Archive(tmp_path / "hours", frame="polars")
    for market in MARKETS:
        for hour in range(3):
            archive.add(prices=prices(market, FULL + hour * 60, 60, hour / 4))
    return archive


def test_markets_and_times_limit_what_computed_rows_are_read_from(hours: Archive) -> None:
    """What is outside of them is not read: there damage is not seen, which other scans do."""
    # The second hour of the first market.
    path = sorted(map(Path, data_files(hours, "prices")), key=lambda file: file.stat().st_mtime_ns)[1]
    body = bytearray(path.read_bytes())
    body[4:200] = bytes(196)
    path.write_bytes(body)
    for chosen in ((), (M, time(60), time(61))):
        with pytest.raises((md.errors.ArchiveCorruptError, pl.exceptions.PolarsError), match="damaged"):
            hours.scan("prices", *chosen, resolution="10m").collect()
    for market, *times in (N,), (None, None, time(60)), (M, time(120), time(179)):
        assert len(hours.scan("prices", market, *times, resolution="10m").collect())


PREDICATES = [
    pl.col("market_id") == N,
    pl.col("ts").is_between(time(120), time(179)),
    (pl.col("ts") < time(61)) & (pl.col("market_id") != M),
    ~(pl.col("ts") < time(61)),
    pl.col("ts").dt.hour() == time(60).hour,
    pl.lit(time(65)) > pl.col("ts"),
    pl.col("market_id").is_in([]),
    pl.col("market_id").str.starts_with("M"),
    pl.col("ts").cast(pl.Datetime("ms", "UTC")) >= time(77),
    (pl.col("ts") == time(0)) | (pl.col("token_label") == "Yes"),
]


def test_predicates_give_what_they_give_on_the_whole(tmp_path: Path) -> None:
    """Also with a limit of rows and a choice of columns."""
    archive = Archive(tmp_path / "a", frame="polars")
    for market in MARKETS:
        archive.add(prices=prices(market, 0, 130, 0.25))
    scan = archive.scan("prices", resolution="10m")
    every = scan.collect()
    for one in PREDICATES:
        assert scan.filter(one).collect().equals(every.filter(one)), one
        assert scan.filter(one).select("price").head(2).collect().equals(every.filter(one).select("price").head(2))
        assert scan.head(3).filter(one).collect().equals(every.head(3).filter(one))


OUTSIDE = [
    "copy (select * from prices) to '{path}/out.csv'",
    "select * from read_csv('{path}/secret.csv')",
    "select * from '{path}/secret.csv'",
    "attach '{path}/other.db' as other",
    "select * from glob('{path}/*')",
    "export database '{path}/all'",
    "set enable_external_access = true",
    "load httpfs",
    "select * from queries",  # a variable of Python
    "copy (select 1) to '.tmp/out.csv'",  # where DuckDB keeps what exceeds memory, in the working directory
    "select * from read_text('.tmp/*')",
    "attach '.tmp/other.db'",
    "set temp_directory = '.'",
]


def test_a_statement_sees_the_tables_of_the_archive_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes no file, reads no other, and cannot allow it; the archive stays as it was."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    archive = Archive(tmp_path / "a", frame="polars")
    archive.add(prices=prices(M, 0, 60))
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "secret.csv").write_text("a,b\n1,2\n")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for statement in OUTSIDE:
        with pytest.raises(md.errors.ConfigError, match="DuckDB refused"):
            archive.sql(statement.format(path=tmp_path))
        assert sorted(tmp_path.rglob("*")) == before
    assert archive.sql("select distinct price from prices").item() == 0.5


def test_tables_of_a_statement_are_those_of_the_docs(tmp_path: Path) -> None:
    """No helper is listed, at 1m and from seconds."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    for base in ("1m", "1s"):
        archive = Archive(tmp_path / base, frame="polars", base=base)  # type: ignore[call-overload]
        tables = ["books", "coverage", "events", "markets", "metrics", "prices", "quotes", "series", "snapshots"]
        tables.append("trades")
        archive.add(markets=md.testing.markets(), prices=md.testing.prices())
        assert sorted(archive.sql("show tables")["name"]) == tables
        assert set(archive.sql("select token_label from prices")["token_label"]) == {"Yes", "No"}
