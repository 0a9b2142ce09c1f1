"""The one rule set on Dask (two processes), DuckDB (a connection far from UTC) and Spark (two threads)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference import tables
from reference.engines import ENGINES, Engine, fetched, ordered
from reference.house import MARKET, fill
from reference.kinds import close, rows
from reference.memory import MemoryArchive
from reference.odd_points import rich

import marketdata as md
from marketdata.adapters import engines
from marketdata.points.columns import Books, Token
from marketdata.resolution import Resolution
from marketdata.testing.strategies import book_columns, metric_columns, price_columns
from marketdata.tidy.frames import to_frame

VIEWS = ("books", "prices", "metrics")
# An example takes a second on an engine, so a failing one must not be shrunk.
drawn = settings(max_examples=3, phases=[Phase.explicit, Phase.reuse, Phase.generate])
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.UnweightedMeanWarning")


@pytest.fixture(scope="module", params=ENGINES)
def running(request: Any, engine: Any) -> Engine:
    return engine(request.param)


def same(running: Engine, columns: Any, resolution: Resolution) -> None:
    """The engine's rows equal those of polars, and for books also those of a query."""
    polar = to_frame(columns, "polars")
    frame = running.frame(polar)
    got = md.resample(frame, str(resolution))
    assert type(got) is type(frame)
    assert close(ordered(got), ordered(md.resample(polar, str(resolution))))
    if isinstance(columns, Books):
        assert ordered(got) == ordered(tables.last_books(polar, str(resolution)))


def test_a_resolution_gives_the_rows_of_a_loop(running: Engine) -> None:
    """Odd points, and no rows at all, resample to the same rows, and stay the engine's kind of frame."""
    for view in VIEWS:
        for resolution in (Resolution.M1, Resolution.D1):
            same(running, rich(view), resolution)
        same(running, rich(view).take(np.empty(0, np.int64)), Resolution.H1)


@drawn
@given(columns=st.one_of(book_columns(most=6), price_columns(most=8), metric_columns(most=8)), data=st.data())
def test_drawn_frames_give_the_rows_of_a_loop(running: Engine, columns: Any, data: st.DataObject) -> None:
    """Any books, prices and metrics resample to the same rows at any resolution."""
    same(running, columns, data.draw(st.sampled_from(list(Resolution))))


def test_coarse_answers_of_a_service_are_the_fine_ones_resampled(running: Engine) -> None:
    """An answer of a service at 6h equals its answer at 1m, resampled on the engine."""
    archive = MemoryArchive()
    with md.serve(archive, requests_per_minute=1_000_000) as service:
        for view in VIEWS:
            fill(archive, view, of_one_market(rich(view, 20)))
            fetch = getattr(md.Client(service.base_url, service.api_key, frame="polars"), view)
            fine, coarse = (fetch(MARKET, "2026-01-01", "2026-01-04", resolution) for resolution in ("1m", "6h"))
            assert len(fine)
            derived = fetched(md.resample(running.frame(fine), "6h")).select(coarse.columns)
            assert close(ordered(derived.to_native()), ordered(coarse))


def of_one_market(columns: Any) -> Any:
    """The points of the first market; a missing label becomes the id."""
    tokens = tuple(Token(MARKET, t.token_id, t.token_label or t.token_id) for t in columns.tokens)
    if columns.tokens[0].token_id is None:
        return replace(columns.take(np.flatnonzero(columns.token == 0)), tokens=(Token(MARKET),))
    return replace(columns, tokens=tokens)


def test_means_compose(running: Engine) -> None:
    """1m to 10m to 1h to 1d equals 1m to 1d, because counts are carried."""
    frame = running.frame(to_frame(rich("prices"), "polars"))
    steps = md.resample(md.resample(md.resample(frame, "10m"), "1h"), "1d")
    assert close(ordered(steps), ordered(md.resample(frame, "1d")))


@pytest.mark.parametrize("running", ["duckdb"], indirect=True)
def test_parts_are_of_whole_tokens(running: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order, read in parts smaller than a token, give what all rows at once give."""
    monkeypatch.setattr(engines, "_ROWS", 20)
    monkeypatch.setattr(engines, "_BATCH", 7)
    for view in ("books", "prices"):
        polar = to_frame(rich(view), "polars")
        verb = md.overround if view == "books" else md.probabilities
        for frame in map(running.frame, (polar, polar.sort("ts"), polar.sample(fraction=1, shuffle=True, seed=1))):
            assert close(rows(fetched(md.resample(frame, "1h"))), rows(md.resample(polar, "1h")))
            assert close(rows(fetched(verb(frame))), rows(verb(polar)))


def test_nan_is_a_null(running: Engine) -> None:
    """A NaN in a column of numbers counts as no point."""
    polar = to_frame(rich("prices"), "polars")
    holed = running.frame(polar.with_columns(pl.col("price").fill_null(math.nan)))
    assert close(ordered(md.resample(holed, "6h")), ordered(md.resample(polar, "6h")))


@pytest.mark.fault("FR8")
def test_equal_rows_count_once(running: Engine) -> None:
    """Rows that are given twice count once in depth and means."""
    books, prices = (to_frame(rich(view), "polars") for view in ("books", "prices"))
    twice = running.frame(pl.concat([books, books]))
    assert close(ordered(md.depth(twice)), ordered(md.depth(books)))
    assert close(ordered(md.resample(twice, "1h")), ordered(md.resample(books, "1h")))
    twice = running.frame(pl.concat([prices, prices]))
    assert close(ordered(md.resample(twice, "1h")), ordered(md.resample(prices, "1h")))


@pytest.mark.fault("FR8")
def test_two_books_of_one_time_are_refused(running: Engine) -> None:
    """Two different books of a token at one time are an error with the text that it has in memory."""
    books = to_frame(rich("books"), "polars")
    other = books.with_columns(pl.col("size") + 1)
    for verb in (md.depth, md.nest):
        with pytest.raises(Exception, match=r"NotTidyError: Two rows have the same market_id.*different price, size"):
            _raised_with_its_class(lambda verb=verb: fetched(verb(running.frame(pl.concat([books, other])))))


def _raised_with_its_class(compute: Any) -> None:
    """DuckDB computes here, with an error of its own class; workers of Dask and Spark send text."""
    try:
        compute()
    except md.errors.NotTidyError as error:
        raise AssertionError(f"NotTidyError: {error}") from error


def test_times_without_a_zone_are_utc(running: Engine) -> None:
    """Times without a zone fall into the same buckets as the same times in UTC."""
    polar = to_frame(rich("books"), "polars")
    naive = running.frame(polar.with_columns(pl.col("ts").dt.replace_time_zone(None)))
    assert ordered(md.resample(naive, "6h")) == ordered(md.resample(polar, "6h"))


def test_a_frame_that_is_not_tidy_is_refused_before_anything_runs(running: Engine) -> None:
    """Texts named ts and a missing column are named, as in memory."""
    polar = to_frame(rich("prices"), "polars")
    texts = polar.with_columns(pl.col("ts").cast(pl.String))
    for wrong, message in ((texts, "ts contains"), (polar.drop("token_id"), "token_id")):
        with pytest.raises(md.errors.NotTidyError, match=message):
            md.resample(running.frame(wrong), "1h")


def test_nothing_is_computed_before_it_is_asked_for(running: Engine) -> None:
    """A frame that fails when it is computed goes through every verb, and fails at the end; DuckDB at the first."""
    polar = to_frame(rich("books"), "polars")
    if running.name == "duckdb":
        with pytest.raises(Exception, match="was computed"):
            md.resample(_fails(running, polar), "10m")
        return
    out = md.mid(md.resample(md.resample(_fails(running, polar), "10m"), "1d"))
    with pytest.raises(Exception, match="was computed"):
        fetched(out)


def _fails(running: Engine, polar: pl.DataFrame) -> Any:
    frame = running.frame(polar)
    if running.name == "duckdb":
        return frame.project("* REPLACE (CAST(error('was computed') AS DOUBLE) AS price)")
    if running.name == "spark":
        from pyspark.sql import functions

        return frame.withColumn("price", functions.raise_error(functions.lit("was computed")).cast("double"))

    def fails(part: Any) -> Any:
        # A local function travels to the workers whole; they cannot import this module.
        raise RuntimeError("was computed")

    return frame.map_partitions(fails, meta=frame._meta)


@pytest.mark.parametrize("running", ["spark"], indirect=True)
def test_spark_in_another_zone_is_refused(running: Engine) -> None:
    """Spark would cut days in its session's zone, so anything but UTC there is refused and says what to set."""
    frame = running.frame(to_frame(rich("prices"), "polars"))
    running.native.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        with pytest.raises(md.errors.ConfigError, match=r"Asia/Kolkata.*spark\.sql\.session\.timeZone"):
            md.resample(frame, "1d")
    finally:
        running.native.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize("running", ["duckdb"], indirect=True)
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/St_Johns"])
def test_duckdb_gives_utc_buckets_in_any_zone(running: Engine, zone: str) -> None:
    """DuckDB keeps the zone in the connection, and buckets are UTC in each."""
    before = running.native.sql("SELECT current_setting('TimeZone')").fetchall()[0][0]
    running.native.execute(f"SET TimeZone = '{zone}'")
    try:
        for resolution in (Resolution.H1, Resolution.D1):
            same(running, rich("prices"), resolution)
    finally:
        running.native.execute(f"SET TimeZone = '{before}'")
