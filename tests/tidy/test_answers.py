"""Records without columns that leak the outcome, and the markets of a time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.markets import in_kind

import marketdata as md
from marketdata.archive.listings import existed
from marketdata.archive.record_columns import Listing

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
KNOWN_AT_OPENING = [
    "market_id", "slug", "question", "description", "start_date", "end_date", "event_id", "event_slug", "event_title",
    "series_slug", "token_ids", "token_labels", "tags", "category", "created_at", "simulated", "neg_risk",
]  # fmt: skip
LEAKING = [
    "status", "closed_at", "resolved_at", "resolved_token_id", "payoffs", "updated_at", "resolution", "final_price",
    "resolutionProbability", "closeTime", "umaResolutionStatuses", "events", "volume", "lastTradePrice", "other",
]  # fmt: skip


@given(
    kind=st.sampled_from(["polars", "pandas", "arrow", "lazy"]),
    names=st.sets(st.sampled_from([*KNOWN_AT_OPENING, *LEAKING])), kept=st.sets(st.sampled_from(LEAKING)),
)  # fmt: skip
def test_records_keep_what_was_known_at_opening_and_what_keep_names(kind: str, names: set[str], kept: set[str]) -> None:
    """All rows, the order of columns and the kind of frame stay; every unknown column goes."""
    columns, kept = sorted({*names, "market_id"}), kept & names
    records: Any = in_kind(pl.DataFrame({name: ["a", "b", None] for name in columns}), kind)
    removed = [name for name in columns if name in LEAKING and name not in kept]
    assert md.without_answers(records, keep=sorted(kept), dry=True) == removed
    left = md.without_answers(records, keep=sorted(kept))
    assert type(left) is type(records)
    data = nw.from_native(left)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    assert (data.columns, len(data)) == ([name for name in columns if name not in removed], 3)


def test_what_is_no_record_or_column_is_refused() -> None:
    """A misspelt name is no silent no, and the volume of history was known at the end of its bucket."""
    with pytest.raises(md.errors.ConfigError, match="'volumes'"):
        md.without_answers(md.testing.markets(), keep="volumes")
    with pytest.raises(md.errors.NotTidyError, match="available_at"):
        md.without_answers(md.testing.metrics())


@pytest.mark.parametrize("engine", ["dask", "duckdb"])
def test_records_of_an_engine_stay_in_it(engine: str) -> None:
    """Nothing is computed."""
    library = pytest.importorskip({"dask": "dask.dataframe"}.get(engine, engine))
    records = md.testing.markets("pandas", markets=3).drop(columns=["token_ids", "token_labels"])
    frame = library.from_pandas(records, npartitions=2) if engine == "dask" else library.from_df(records)
    left: Any = md.without_answers(frame)
    assert type(left) is type(frame)
    assert list(left.columns) == ["market_id", "slug", "question", "start_date", "end_date", "event_slug"]
    assert len(left) == 3


@pytest.mark.parametrize("kind", ["polars", "pandas", "lazy"])
def test_a_join_refuses_records_with_columns_that_leak(kind: str) -> None:
    """The error names them; without them the join is made, and no function adds them to a frame."""
    prices = md.testing.prices("polars", markets=2)
    records = md.testing.markets("polars", markets=2).with_columns(available_at=pl.lit(START - dt.timedelta(days=1)))
    one, known = in_kind(prices, kind), in_kind(records.drop("token_ids", "token_labels"), kind)
    with pytest.raises(md.errors.ConfigError, match=r"'status', 'closed_at', 'resolved_token_id'.*without_answers"):
        md.asof_join(one, known, by="market_id")
    joined = nw.from_native(md.asof_join(one, md.without_answers(known), by="market_id"))
    names = joined.collect_schema().names()
    assert "question" in names
    assert not {"status", "closed_at", "resolved_token_id"} & {*names}
    books = md.testing.books("polars").with_columns(resolved_token_id=pl.lit("11"), volume=1.0)
    assert not {"resolved_token_id", "volume"} & {*md.features(books, ["mid", "spread"]).columns}


hours = st.one_of(st.none(), st.integers(0, 6))


@given(
    markets=st.lists(st.tuples(hours, hours, hours, hours, hours, st.booleans()), max_size=6),
    at=st.integers(0, 6),
)
def test_the_universe_of_a_time_by_a_plain_walk(markets: list[Any], at: int) -> None:
    """A market has begun by its start, its record's creation or its first row, and is open until it closed."""

    def time(hour: int | None) -> str | None:
        return None if hour is None else (START + dt.timedelta(hours=hour)).isoformat()

    records = [
        {"id": str(i), "start_date": time(start), "created_at": time(made), "closed_at": time(closed),
         "end_date": time(end), "status": "resolved" if over else "active"}
        for i, (start, made, _, closed, end, over) in enumerate(markets)
    ]  # fmt: skip
    hour = 3_600_000_000
    zero = int(START.timestamp()) * 10**6
    first = {str(i): zero + rows * hour for i, (_, _, rows, *_) in enumerate(markets) if rows is not None}
    begun, open_ = set(), set()
    for i, (start, made, rows, closed, end, over) in enumerate(markets):
        began = next((t for t in (start, made, rows) if t is not None), None)
        if began is not None and began <= at:
            begun.add(str(i))
            ended = closed if closed is not None else end if over else None
            if ended is None or ended > at:
                open_.add(str(i))
    for is_open, want in ((False, begun), (True, open_)):
        found = existed(Listing.of("markets", records), zero + at * hour, lambda: first, is_open=is_open)
        assert {*found.ids} == want


def test_an_archive_knows_the_markets_of_a_time() -> None:
    """It lists markets that had begun and had not closed, without leaking columns, and none before the first."""
    archive = md.simulate(events=3, days=1)
    records = {m["id"]: m for m in archive.records("markets")}
    for at in ("2025-12-31T01:00:00Z", "2025-12-31T12:00:00Z", "2025-12-31T23:30:00Z"):
        begun = {i for i, m in records.items() if m["start_date"] <= at}
        still = {i for i in begun if m_is_open(records[i], at)}
        assert {*archive.markets(at=at)["market_id"]} == begun
        assert {*archive.universe(at)["market_id"]} == still
        assert md.without_answers(archive.universe(at), dry=True) == []
        assert md.without_answers(archive.markets(at=at), dry=True) == []
    assert begun > still > set()
    assert len(archive.universe("2020-01-01")) == 0
    slug = next(iter(records.values()))["event_slug"]
    assert {*archive.universe(at, event_slug=slug)["event_slug"]} == {slug}
    assert len(archive.markets(at=at, search="florin")) <= len(archive.markets(search="florin"))


def m_is_open(record: dict[str, Any], at: str) -> bool:
    """Whether trading goes on."""
    return record["closed_at"] is None or record["closed_at"] > at


def test_a_market_without_dates_begins_with_its_rows(tmp_path: Any) -> None:
    """A market without dates and without rows is not known to have existed."""
    archive = md.Archive(tmp_path, frame="polars")
    markets = md.testing.markets("polars", markets=2).drop("start_date", "end_date", "closed_at", "status")
    archive.add(markets=markets, prices=md.testing.prices("polars", buckets=2))
    assert archive.markets(at=START)["market_id"].to_list() == ["rain"]
    assert len(archive.markets(at=START - dt.timedelta(seconds=1))) == 0
