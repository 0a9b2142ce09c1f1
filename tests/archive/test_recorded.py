"""Every row of the recorded data, against loops in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marketdata.archive import Archive

WIDTHS = {"1m": 60, "10m": 600, "1h": 3600, "6h": 21600, "1d": 86400}
RECORDED_METRICS = ("volume", "liquidity", "yes_price", "no_price")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def floor(ts: dt.datetime, seconds: int) -> dt.datetime:
    return EPOCH + (ts - EPOCH) // dt.timedelta(seconds=seconds) * dt.timedelta(seconds=seconds)


def minutes_of_books(rows: pl.DataFrame) -> dict[tuple[str, dt.datetime], list[tuple[Any, ...]]]:
    snapshots: dict[tuple[str, dt.datetime], list[tuple[Any, ...]]] = defaultdict(list)
    for r in rows.iter_rows(named=True):
        snapshots[r["token_id"], r["ts"]].append((r["side"], r["level"], r["price"], r["size"]))
    return coarser_books(snapshots, 60)


def coarser_books(
    snapshots: dict[tuple[str, dt.datetime], list[tuple[Any, ...]]], seconds: int
) -> dict[tuple[str, dt.datetime], list[tuple[Any, ...]]]:
    latest: dict[tuple[str, dt.datetime], dt.datetime] = {}
    for token, ts in snapshots:
        key = token, floor(ts, seconds)
        latest[key] = max(latest.get(key, ts), ts)
    return {key: snapshots[key[0], ts] for key, ts in latest.items()}


def means(points: dict[tuple[str, dt.datetime], list[float]], seconds: int) -> dict[tuple[str, dt.datetime], float]:
    groups: dict[tuple[str, dt.datetime], list[float]] = defaultdict(list)
    buckets = {ts: floor(ts, seconds) for _, ts in points}
    for (who, ts), values in points.items():
        groups[who, buckets[ts]].extend(values)
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


def read(archive: Archive, view: str, recorded: Path, resolution: str) -> pl.DataFrame:
    held = archive.coverage(frame="polars").filter(pl.col("view") == view)["market_id"].unique().to_list()
    frame: pl.DataFrame = getattr(archive, view)(held, resolution=resolution)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


@pytest.fixture(scope="module")
def book_minutes(recorded: Path) -> dict[tuple[str, dt.datetime], list[tuple[Any, ...]]]:
    return minutes_of_books(pl.read_parquet(recorded / "books.parquet"))


@pytest.mark.parametrize("resolution", WIDTHS)
def test_every_recorded_book_comes_back(
    recorded_archive: Archive, recorded: Path, book_minutes: Any, resolution: str
) -> None:
    """At each resolution the archive answers with the last whole book of each bucket, level for level."""
    oracle = coarser_books(book_minutes, WIDTHS[resolution])
    got: dict[tuple[str, dt.datetime], list[tuple[Any, ...]]] = defaultdict(list)
    frame = read(recorded_archive, "books", recorded, resolution)
    for token, ts, side, level, price, size in frame.select(
        "token_id", "ts", pl.col("side").cast(pl.String), "level", "price", "size"
    ).iter_rows():
        got[token, ts].append((side, level, price, size))
    assert got.keys() == oracle.keys()
    for key, rows in oracle.items():
        assert sorted(got[key], key=str) == sorted(rows, key=str), key


@pytest.fixture(scope="module")
def price_minutes(recorded: Path) -> Any:
    return minutes_of(pl.read_parquet(recorded / "prices.parquet").select("token_id", "ts", "price"))


@pytest.fixture(scope="module")
def metric_minutes(recorded: Path) -> Any:
    rows = pl.read_parquet(recorded / "metrics.parquet")
    return {name: minutes_of(rows.select("market_id", "ts", name)) for name in RECORDED_METRICS}


def minutes_of(rows: pl.DataFrame) -> dict[tuple[str, dt.datetime], list[float]]:
    raw: dict[tuple[str, dt.datetime], list[float]] = {}
    for who, ts, value in rows.iter_rows():
        raw.setdefault((who, ts), []).append(value)
    return {key: [value] for key, value in means(raw, 60).items()}


@pytest.mark.parametrize("resolution", WIDTHS)
def test_every_recorded_price_comes_back(
    recorded_archive: Archive, recorded: Path, price_minutes: Any, resolution: str
) -> None:
    """At each resolution prices are the mean of the 1m means, with no bucket lost and none invented."""
    oracle = means(price_minutes, WIDTHS[resolution])
    frame = read(recorded_archive, "prices", recorded, resolution)
    got = {(t, ts): p for t, ts, p in frame.select("token_id", "ts", "price").iter_rows()}
    assert len(got) == len(frame)
    assert got.keys() == oracle.keys()
    assert all(math.isclose(got[k], v, rel_tol=1e-12) for k, v in oracle.items())
    assert frame["token_id"].n_unique() == 280


@pytest.mark.parametrize("resolution", WIDTHS)
def test_every_recorded_metric_comes_back(
    recorded_archive: Archive, recorded: Path, metric_minutes: Any, resolution: str
) -> None:
    """At each resolution all metrics are averaged, those the interface does not name included; spread is null."""
    frame = read(recorded_archive, "metrics", recorded, resolution)
    assert frame["market_id"].n_unique() == 77
    assert frame["spread"].null_count() == len(frame)
    for name in RECORDED_METRICS:
        oracle = means(metric_minutes[name], WIDTHS[resolution])
        got = {(m, ts): v for m, ts, v in frame.select("market_id", "ts", name).iter_rows()}
        assert got.keys() == oracle.keys()
        assert all(math.isclose(got[k], v, rel_tol=1e-12) for k, v in oracle.items())


def test_records_have_the_shape_of_the_wire(recorded_archive: Archive, recorded: Path) -> None:
    """All 1,669 markets are records with text ids, ISO dates and their tokens; events are derived from them."""
    rows = pl.read_parquet(recorded / "markets.parquet")
    records = {r["id"]: r for r in recorded_archive.records("markets")}
    assert len(records) == rows.height
    for row in rows.iter_rows(named=True):
        record = records[row["market_id"]]
        assert record["slug"] == row["slug"]
        pairs = [(t["id"], t["label"]) for t in record["tokens"]]
        assert pairs == list(zip(row["token_ids"], row["token_labels"], strict=True))
        assert record["status"] == {None: None, True: "closed", False: "active"}[row["closed"]]
        assert record["tick_size"] == row["tick_size"]
        if row["end_date"] is not None:
            assert dt.datetime.fromisoformat(record["end_date"]) == row["end_date"]
    slugs = set(rows["event_slug"].drop_nulls())
    assert {e["slug"] for e in recorded_archive.records("events")} == slugs
    assert recorded_archive.records("series") == []


def test_scan_equals_reading(recorded_archive: Archive, recorded: Path) -> None:
    """The lazy scan holds the same tidy rows as the reads, marker rows of empty sides included."""
    for view, keys in (("books", ["token_id", "ts", "side", "level"]), ("prices", ["token_id", "ts"])):
        scanned = recorded_archive.scan(view).collect().sort(keys)  # type: ignore[arg-type]
        read_ = read(recorded_archive, view, recorded, "1m").sort(keys)
        assert scanned.equals(read_.select(scanned.columns)), view


def test_adding_the_recordings_twice_changes_nothing(recorded: Path, archive: Archive) -> None:
    """A second add of the same rows leaves rows and content hashes as they are."""
    markets, books = (pl.read_parquet(recorded / f"{n}.parquet") for n in ("markets", "books"))
    archive.add(markets=markets, books=books)
    before = archive.coverage().drop("fetched_at")
    rows = archive.scan("books").collect().height
    archive.add(markets=markets, books=books)
    assert archive.coverage().drop("fetched_at").equals(before)
    assert archive.scan("books").collect().height == rows
