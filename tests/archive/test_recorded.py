"""Rows of the recorded data, against loops in plain Python."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from marketdata.archive import Archive

WIDTHS = {("1m", "polars"): 60, ("10m", "pandas"): 600, ("1d", "polars"): 86_400}
METRICS = ("volume", "yes_price")
LEVELS = ("side", "level", "price", "size")
# Of a token or market and the second of a bucket.
Points = dict[tuple[str, int], Any]


def plain(frame: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of these columns as plain values: what is missing is None, times are microseconds."""
    texts = pl.col(pl.Categorical, pl.Enum, pl.String).cast(pl.String)
    data = pl.DataFrame(frame).select(names)
    return data.with_columns(texts, pl.col(pl.Datetime).dt.epoch("us"), pl.col(pl.Float64).fill_nan(None)).iter_rows()


@pytest.fixture(scope="module")
def sample(recorded_archive: Archive, recorded: Path) -> dict[str, dict[str, list[str]]]:
    """Of some markets of each view their tokens."""
    markets = pl.read_parquet(recorded / "markets.parquet").select("market_id", "token_ids")
    tokens = {market: ids.to_list() for market, ids in zip(markets["market_id"], markets["token_ids"], strict=True)}
    stored = recorded_archive.coverage().select("view", "market_id").unique().sort("market_id")
    return {
        view: {market: tokens[market] for market in stored.filter(view=view)["market_id"].gather_every(every)}
        for view, every in {"books": 5, "prices": 30, "metrics": 30}.items()
    }


def recordings(recorded: Path, view: str, ids: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Rows of a recorded table that have one of the ids in the first of these columns."""
    frame = pl.read_parquet(recorded / f"{view}.parquet", columns=list(names))
    return plain(frame.filter(pl.col(names[0]).cast(pl.String).is_in(list(ids))), *names)


def means(points: dict[tuple[str, int], list[float]], seconds: int) -> Points:
    """Of each bucket the mean of its values."""
    groups: dict[tuple[str, int], list[float]] = {}
    width = seconds * 1_000_000
    for (who, ts), values in points.items():
        groups.setdefault((who, ts - ts % width), []).extend(values)
    return {key: math.fsum(values) / len(values) for key, values in groups.items()}


def means_of_minutes(rows: Iterator[tuple[str, int, float]], seconds: int) -> Points:
    raw: dict[tuple[str, int], list[float]] = {}
    for who, ts, value in rows:
        raw.setdefault((who, ts), []).append(value)
    return means({key: [value] for key, value in means(raw, 60).items()}, seconds)


@pytest.mark.parametrize(("resolution", "kind"), WIDTHS)
def test_every_recorded_book_comes_back(
    recorded_archive: Archive, recorded: Path, sample: Any, resolution: str, kind: str
) -> None:
    """Websocket, sampled and polled markets: each level of each last book, one-sided ones and 77-digit ids intact."""
    width = WIDTHS[resolution, kind] * 1_000_000
    market_of = {token: market for market, tokens in sample["books"].items() for token in tokens}
    latest: dict[tuple[str, int], tuple[int, list[Any]]] = {}
    for token, ts, *level in recordings(recorded, "books", market_of, "token_id", "ts", *LEVELS):
        at, levels = latest.get((token, ts - ts % width), (-1, []))
        if ts >= at:
            latest[token, ts - ts % width] = ts, [*(levels if ts == at else []), tuple(level)]
    archive: Any = Archive(recorded_archive.location, frame=kind)  # type: ignore[call-overload]
    frame = archive.books(list(sample["books"]), resolution=resolution)
    books: Points = defaultdict(list)
    for token, ts, *level in plain(frame, "token_id", "ts", *LEVELS):
        books[token, ts].append(tuple(level))
    assert books
    assert {key: sorted(rows, key=str) for key, rows in books.items()} == {
        key: sorted(rows, key=str) for key, (_, rows) in latest.items()
    }
    assert set(plain(frame, "market_id", "token_id")) == {(market_of[token], token) for token, _ in latest}


@pytest.mark.parametrize(("resolution", "kind"), WIDTHS)
def test_every_recorded_price_and_metric_comes_back(
    recorded_archive: Archive, recorded: Path, sample: Any, resolution: str, kind: str
) -> None:
    """Each bucket with points has the mean of its 1m means, and no other is there; what was not recorded is null."""
    archive: Any = Archive(recorded_archive.location, frame=kind)  # type: ignore[call-overload]
    for view, identity, names in (("prices", "token_id", ("price",)), ("metrics", "market_id", METRICS)):
        frame = getattr(archive, view)(list(sample[view]), resolution=resolution)
        ids = [t for tokens in sample[view].values() for t in tokens] if view == "prices" else sample[view]
        for name in names:
            expected = means_of_minutes(recordings(recorded, view, ids, identity, "ts", name), WIDTHS[resolution, kind])
            averages = {(who, ts): value for who, ts, value in plain(frame, identity, "ts", name)}
            assert len(averages) == len(frame)
            assert averages.keys() == expected.keys()
            assert all(math.isclose(averages[key], value, rel_tol=1e-12) for key, value in expected.items())
    assert set(plain(frame, "spread")) == {(None,)}


def test_records_have_the_shape_of_the_wire(recorded_archive: Archive, recorded: Path) -> None:
    """All markets are records with text ids, ISO dates and their tokens; events are derived from them."""
    rows = pl.read_parquet(recorded / "markets.parquet")
    records = {r["id"]: r for r in recorded_archive.records("markets")}
    assert len(records) == rows.height
    for row in rows.iter_rows(named=True):
        record = records[row["market_id"]]
        assert record["slug"] == row["slug"]
        pairs = [(t["id"], t["label"]) for t in record["tokens"]]
        assert pairs == list(zip(row["token_ids"], row["token_labels"], strict=True))
        assert record["status"] == {None: "active", True: "closed", False: "active"}[row["closed"]]
        assert record["tick_size"] == row["tick_size"]
        if row["end_date"] is not None:
            assert dt.datetime.fromisoformat(record["end_date"]) == row["end_date"]
    slugs = set(rows["event_slug"].drop_nulls())
    assert {e["slug"] for e in recorded_archive.records("events")} == slugs
    assert recorded_archive.records("series") == []
