"""Every row of the recorded data, against loops in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from archive.recorded_ranges import ASKED, WIDTHS

from marketdata.archive import Archive

RECORDED_METRICS = ("volume", "liquidity", "yes_price", "no_price")
# Of a token or market and the microsecond of a time or bucket: the levels of a book, or the values of a minute.
Points = dict[tuple[str, int], list[Any]]


def plain(frame: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of these columns as plain values: what is missing is None, times are microseconds."""
    data = nw.from_native(frame, eager_only=True).select(names).to_polars()
    texts = pl.col(pl.Categorical, pl.Enum, pl.String).cast(pl.String)
    return data.with_columns(texts, pl.col(pl.Datetime).dt.epoch("us"), pl.col(pl.Float64).fill_nan(None)).iter_rows()


def recordings(recorded: Path, view: str, *names: str) -> Iterator[tuple[Any, ...]]:
    return plain(pl.read_parquet(recorded / f"{view}.parquet", columns=list(names)), *names)


def last_books(snapshots: Points, seconds: int) -> Points:
    """Of each bucket the last whole book."""
    latest: dict[tuple[str, int], int] = {}
    width = seconds * 1_000_000
    for token, ts in snapshots:
        key = token, ts - ts % width
        latest[key] = max(latest.get(key, ts), ts)
    return {key: snapshots[key[0], ts] for key, ts in latest.items()}


def means(points: Points, seconds: int) -> dict[tuple[str, int], float]:
    """Of each bucket the mean of its values."""
    groups: Points = {}
    width = seconds * 1_000_000
    for (who, ts), values in points.items():
        groups.setdefault((who, ts - ts % width), []).extend(values)
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


def minutes(rows: Iterable[tuple[str, int, float]]) -> Points:
    raw: Points = {}
    for who, ts, value in rows:
        raw.setdefault((who, ts), []).append(value)
    return {key: [value] for key, value in means(raw, 60).items()}


def read(archive: Archive, view: str, resolution: str, frame: str = "polars") -> Any:
    held = archive.coverage().filter(pl.col("view") == view)["market_id"].unique().to_list()
    return getattr(Archive(archive.location, frame=frame), view)(held, resolution=resolution)  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def market_of(recorded: Path) -> dict[str, str]:
    """The market of each recorded token."""
    rows = pl.read_parquet(recorded / "markets.parquet").select("market_id", "token_ids")
    rows = rows.explode("token_ids", empty_as_null=True).drop_nulls()
    return dict(zip(rows["token_ids"], rows["market_id"], strict=True))


@pytest.fixture(scope="module")
def book_minutes(recorded: Path) -> Points:
    snapshots: Points = {}
    for token, ts, *level in recordings(recorded, "books", "token_id", "ts", "side", "level", "price", "size"):
        snapshots.setdefault((token, ts), []).append(tuple(level))
    return last_books(snapshots, 60)


@pytest.fixture(scope="module")
def price_minutes(recorded: Path) -> Points:
    return minutes(recordings(recorded, "prices", "token_id", "ts", "price"))


@pytest.fixture(scope="module")
def metric_minutes(recorded: Path) -> dict[str, Points]:
    return {name: minutes(recordings(recorded, "metrics", "market_id", "ts", name)) for name in RECORDED_METRICS}


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_book_comes_back(
    recorded_archive: Archive, book_minutes: Points, market_of: dict[str, str], resolution: str, kind: str
) -> None:
    """Websocket, sampled and polled markets: each level of each last book, one-sided ones and 77-digit ids intact."""
    want = last_books(book_minutes, WIDTHS[resolution])
    frame = read(recorded_archive, "books", resolution, kind)
    got: Points = defaultdict(list)
    for token, ts, *level in plain(frame, "token_id", "ts", "side", "level", "price", "size"):
        got[token, ts].append(tuple(level))
    assert got.keys() == want.keys()
    for key, rows in want.items():
        assert sorted(got[key], key=str) == sorted(rows, key=str), key
    pairs = set(plain(frame, "market_id", "token_id"))
    assert pairs == {(market_of[token], token) for token, _ in want}
    assert len({market for market, _ in pairs}) == 67


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_price_comes_back(
    recorded_archive: Archive, price_minutes: Points, resolution: str, kind: str
) -> None:
    """280 tokens: each bucket with points has the mean of its 1m means, and no other bucket is there."""
    want = means(price_minutes, WIDTHS[resolution])
    frame = read(recorded_archive, "prices", resolution, kind)
    got = {(token, ts): price for token, ts, price in plain(frame, "token_id", "ts", "price")}
    assert len(got) == len(frame)
    assert got.keys() == want.keys()
    assert all(math.isclose(got[key], value, rel_tol=1e-12) for key, value in want.items())
    assert len({token for token, _ in got}) == 280


@pytest.mark.parametrize(("resolution", "kind"), ASKED)
def test_every_recorded_metric_comes_back(
    recorded_archive: Archive, metric_minutes: dict[str, Points], resolution: str, kind: str
) -> None:
    """77 markets: every metric is averaged, further ones become columns, and spread, not recorded, is null."""
    frame = read(recorded_archive, "metrics", resolution, kind)
    assert len(set(plain(frame, "market_id"))) == 77
    assert set(plain(frame, "spread")) == {(None,)}
    for name in RECORDED_METRICS:
        want = means(metric_minutes[name], WIDTHS[resolution])
        got = {(market, ts): value for market, ts, value in plain(frame, "market_id", "ts", name)}
        assert got.keys() == want.keys()
        assert all(math.isclose(got[key], value, rel_tol=1e-12) for key, value in want.items())


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
