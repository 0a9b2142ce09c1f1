"""Means of parts, of values with counts, and of grids that are coarse."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from reference.rows import book, prices

import marketdata as md
from marketdata.adapters.dispatch import in_memory, run
from marketdata.tidy.resample import _Asked

ASKED = _Asked("1h", None, None, None)


def reduced(frame: pl.DataFrame) -> pl.DataFrame:
    """A part of the rows of a query that is larger than memory."""
    return run(frame, ASKED.reduced, ["prices"])


@pytest.mark.parametrize(("starts", "overlap"), [((20, 40), False), ((19, 40), True), ((20, 39), True)])
def test_parts_that_share_a_row_are_not_averaged(starts: tuple[int, int], overlap: bool) -> None:
    """Means of parts become the mean of all of them, but where a part begins at the last time of another."""
    whole = prices([7.0 * n for n in range(60)])
    ends = (20, 40, 60)
    parts = pl.concat([reduced(whole[a:b]) for a, b in zip((0, *starts), ends, strict=True)])
    if overlap:
        assert ASKED.of_reduced(in_memory(parts, ["prices"])) is None
    else:
        assert_frame_equal(run(parts, ASKED.of_reduced, ["prices"]), md.resample(whole, "1h"), check_exact=False)


@pytest.mark.parametrize("kind", ["polars", "duckdb"])
def test_values_with_an_unknown_count_weigh_one(kind: str) -> None:
    """A missing count weighs one point, whatever computes the mean, and other counts are kept."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb computes means by expressions")
    frame = prices([0, 1, 2], [0.25, 0.5, 1.0]).with_columns(price_count=pl.Series([3, None, 2], dtype=pl.Int64))
    if kind == "polars":
        out = md.resample(frame, "1h")
    else:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", frame.to_arrow())
        out = md.resample(connection.table("rows"), "1h").pl()
    assert out["price_count"].to_list() == [6]
    assert out["price"].to_list() == [(3 * 0.25 + 0.5 + 2 * 1.0) / 6]


def test_a_grid_is_coarse_if_all_rows_are_on_it() -> None:
    """Means are warned of only where every time is on a grid of 10m, also behind the first hundred rows."""
    coarse = prices([10.0 * n for n in range(150)])
    with pytest.warns(md.errors.UnweightedMeanWarning):
        md.resample(coarse, "1d")
    md.resample(pl.concat([coarse, prices([1501.0])]), "1d")


def test_prices_and_bbo_in_one_frame_are_refused() -> None:
    """Prices are averaged and bbo keeps the last row, so each is resampled alone."""
    both = md.bbo(pl.concat([book(n) for n in range(3)]))
    with pytest.raises(md.errors.NotTidyError, match="select the columns of one of them"):
        md.resample(both.with_columns(price=0.5), "1h")


@pytest.mark.parametrize("count", [-1.0, 1.5])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_count_that_counts_no_points_is_refused(kind: str, count: float) -> None:
    """A column named like a count, of another meaning, would weight the mean, or null it, in silence."""
    prices = md.testing.prices("polars").with_columns(price_count=pl.lit(count))
    frame = prices.to_pandas() if kind == "pandas" else prices
    with pytest.raises(md.errors.NotTidyError, match=f"price_count has {count:g}; it is the number of base points"):
        md.resample(frame, "1h")


def test_rows_at_the_epoch_alone_are_on_no_grid() -> None:
    """One time tells no width, and the epoch is a start of all of them."""
    epoch = prices([0.0]).with_columns(ts=pl.lit(0).cast(pl.Datetime("us", "UTC")))
    assert md.resample(epoch, "1h")["price_count"].to_list() == [1]


def test_many_rows_of_several_tokens_have_the_buckets_of_each() -> None:
    """Tokens that end anywhere in 300,000 rows keep their own buckets."""
    counts = [131_072, 1, 131_071, 37_856]
    minutes = np.concatenate([np.arange(count) for count in counts])
    ids = np.repeat(["1", "2", "3", "4"], counts)
    rows = pl.DataFrame({"token_id": ids, "price": minutes % 2}).select(
        ts=pl.datetime(2025, 1, 1, time_zone="UTC") + pl.duration(minutes=pl.Series(minutes)),
        market_id=pl.lit("m"), token_id="token_id", token_label="token_id", price=pl.col("price").cast(pl.Float64),
    )  # fmt: skip
    days = md.resample(rows, "1d")
    assert days.group_by("token_id").len().sort("token_id")["len"].to_list() == [-(-count // 1440) for count in counts]


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_samples_of_ones_own_are_averaged_or_the_last_is_kept_as_one_says(kind: str) -> None:
    """The last row of each bucket, or the plain mean of rows, without a word about means of means."""
    ts = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=10 * place) for place in range(12)]
    values = [0.3, 0.5, None, 0.4, 0.2, 0.6, 0.1, 0.9, 0.35, 0.55, 0.8, 0.7]
    own = pl.DataFrame({"ts": ts, "market_id": "m", "token_id": "t", "token_label": "Yes", "price": values})
    frame = {"pandas": own.to_pandas, "polars": own.clone, "lazy": own.lazy, "arrow": own.to_arrow}[kind]()
    got = {}
    for how in ("last", "mean"):
        made = md.resample(frame, "1h", how=how)
        made = made.collect() if kind == "lazy" else pl.from_pandas(made) if kind == "pandas" else pl.DataFrame(made)
        got[how] = made["price"].to_list()
    hours = [values[:6], values[6:]]
    assert got["last"] == [hour[-1] for hour in hours]
    for mean, hour in zip(got["mean"], hours, strict=True):
        known = [value for value in hour if value is not None]
        assert mean == pytest.approx(sum(known) / len(known))


def test_a_way_to_resample_that_a_kind_lacks_is_refused() -> None:
    """Books have no mean, trades become bars, and the last snapshot is what books give anyway."""
    books = md.testing.books("polars", buckets=3)
    assert md.resample(books, "1h", how="last").equals(md.resample(books, "1h"))
    with pytest.raises(md.errors.ConfigError, match="how='mean' is refused for books; allowed is 'last'"):
        md.resample(books, "1h", how="mean")
    trades = md.testing.prices("polars").with_columns(side=pl.lit("buy"), size=1.0)
    with pytest.raises(md.errors.ConfigError, match="how='last' is refused for trades"):
        md.resample(trades, "1h", how="last")
    with pytest.raises(md.errors.ConfigError, match="how='first'"):
        md.resample(books, "1h", how="first")


@pytest.mark.parametrize("name", ["Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_file_is_no_metric(name: str) -> None:
    """A column that pandas wrote as its index is not averaged."""
    metrics = md.testing.metrics("polars", buckets=3)
    with_index = metrics.with_row_index(name)
    assert md.resample(with_index, "1h").equals(md.resample(metrics, "1h"))
