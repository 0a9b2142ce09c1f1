"""Quotes: best bid and ask without depth, a view of their own, and the top of books where there are none."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing import assert_frame_equal

import marketdata as md
from marketdata.points.schema import COLUMNS
from marketdata.testing.strategies import quote_frames

KEYS = ["market_id", "token_id", "ts"]


def rows(frame: Any) -> pl.DataFrame:
    """A frame with ids as text, in tidy order."""
    return pl.DataFrame(frame).with_columns(pl.col("^.*_(id|label)$").cast(pl.String)).sort(KEYS)


def last_quotes(quotes: pl.DataFrame, every: str) -> pl.DataFrame:
    """The whole row with the greatest time of each token and bucket."""
    last = quotes.group_by(*KEYS[:2], pl.col("ts").dt.truncate(every).alias("bucket")).agg(
        pl.all().sort_by("ts").last()
    )
    return last.with_columns(ts="bucket").select(quotes.columns).sort(KEYS)


@settings(max_examples=2)
@given(quote_frames("polars", step=7_000_000))
def test_every_reader_has_the_last_quote_of_each_bucket(tmp_path_factory: Any, quotes: pl.DataFrame) -> None:
    """Frames, scans, SQL and an export and import have equal rows, at the base and coarser."""
    archive = md.Archive(tmp_path_factory.mktemp("quotes"), frame="polars")
    archive.add(quotes=quotes)
    if not len(quotes):
        return
    base, hours = (last_quotes(rows(quotes), every) for every in ("1m", "1h"))
    assert archive.quotes().columns == [*COLUMNS["quotes"]]
    assert_frame_equal(rows(archive.quotes()), base)
    assert_frame_equal(rows(archive.quotes(resolution="1h")), hours)
    assert_frame_equal(rows(archive.quotes().md.resample("1h")), hours)
    assert_frame_equal(rows(archive.scan("quotes").collect()), base)
    assert_frame_equal(rows(archive.scan("quotes", resolution="1h").collect()), hours)
    assert_frame_equal(rows(archive.sql("select * from quotes")), base)
    assert_frame_equal(rows(md.mid(archive.quotes())), base.select("ts", *COLUMNS["quotes"][1:4], "mid"))
    assert not len(archive.verify())
    archive.export("quotes", path := tmp_path_factory.mktemp("export") / "quotes.parquet")
    copy = md.Archive(tmp_path_factory.mktemp("copy"), frame="polars")
    copy.add_files(path)
    assert_frame_equal(copy.quotes(), archive.quotes())


def test_books_stand_for_quotes_of_markets_that_have_none(tmp_path: Any) -> None:
    """A market with quotes has its own, another one the top of its books; frames, scans and SQL agree."""
    archive = md.Archive(tmp_path, frame="polars")
    books, quotes = md.testing.books("polars", buckets=90), md.testing.quotes("polars", markets=2, buckets=5)
    quotes = quotes.filter(pl.col("market_id") != "rain").with_columns(best_bid_size=None)
    archive.add(books=books)
    assert_frame_equal(rows(archive.quotes()), rows(md.bbo(books)))
    assert_frame_equal(rows(archive.scan("quotes").collect()), rows(md.bbo(books)))
    archive.add(quotes=quotes)
    both = pl.concat([rows(md.bbo(books)), rows(quotes)]).sort(KEYS)
    for read in (archive.quotes(), archive.scan("quotes").collect(), archive.sql("select * from quotes")):
        assert_frame_equal(rows(read), both)
    hours = rows(archive.quotes(resolution="1h"))
    assert_frame_equal(hours, last_quotes(both, "1h"))
    assert_frame_equal(rows(archive.scan("quotes", resolution="1h").collect()), hours)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"best_ask": 0.4, "mid": 0.7}, "mid is 0.7 where best_bid and best_ask give 0.35"),
        ({"best_ask": None, "best_ask_size": 5.0}, "best_ask_size .* beside a null best_ask"),
        ({"best_ask": 41.0}, "best_ask .* divide cents by 100"),
        ({"best_ask": 0.4, "best_bid_size": -1.0}, "best_bid_size .* below 0"),
        ({}, "best_ask"),
    ],
)
def test_a_quote_that_contradicts_itself_is_refused(tmp_path: Any, columns: dict[str, Any], problem: str) -> None:
    """A middle that does not follow from the prices, a size without a price, cents, and a missing column are errors."""
    quote = {"ts": "2026-01-01", "token_id": "7", "best_bid": 0.3} | columns
    frame = pl.DataFrame([quote]).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    archive = md.Archive(tmp_path)
    with pytest.raises(md.errors.NotTidyError, match=problem):
        archive.add(markets=[{"market_id": "m", "token_ids": ["7"], "token_labels": ["Yes"]}], quotes=frame)


def test_services_of_the_interface_have_no_quotes(tmp_path: Any, local_client: md.Client) -> None:
    """A pull leaves them out unless they are asked for, and a read of raw pages says what there is."""
    archive, days = md.Archive(tmp_path, frame="polars"), {"start": "2025-12-31", "end": "2026-01-01"}
    market = local_client.markets(max_rows=1)["slug"][0]
    todo = archive.pull(local_client, market, dry_run=True, **days)
    assert set(todo["view"]) == {"books", "prices", "metrics"}
    with pytest.raises(md.errors.ConfigError, match=r"books.*prices.*metrics"):
        md.read_pages("quotes", [])
    with pytest.raises(md.errors.NotFoundError, match="no quotes; its views are books, prices, metrics"):
        local_client._source.transport.get_json(("markets", market, "quotes"), None, dict)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_a_missing_value_is_still_there_after_an_export_and_an_import(tmp_path: Any, suffix: str) -> None:
    """Points without a price, a metric, a side or a size come back as rows with nulls, and so do empty books."""
    archive, copy = (md.Archive(tmp_path / name, frame="polars") for name in ("first", "second"))
    values = {"prices": ["price"], "metrics": ["volume", "spread"], "quotes": ["best_bid", "best_bid_size"]}
    third = pl.col("ts").dt.minute() == 2
    samples = {view: getattr(md.testing, view)("polars", buckets=5) for view in ("books", *values)}
    samples["quotes"] = samples["quotes"].drop("mid", "spread")
    for view, names in values.items():
        nulls = [pl.when(third).then(None).otherwise(name).alias(name) for name in names]
        samples[view] = samples[view].with_columns(nulls)
    samples["books"] = samples["books"].filter(~third | (pl.col("side") == "ask"))
    archive.add(markets=md.testing.markets(), **samples)
    for view, sample in samples.items():
        archive.export(view, path := tmp_path / f"{view}.{suffix}")
        copy.add_files(path)
        mine, theirs = (getattr(one, view)() for one in (copy, archive))
        assert_frame_equal(mine, theirs, categorical_as_str=True)
        assert mine["ts"].n_unique() == sample["ts"].n_unique()
