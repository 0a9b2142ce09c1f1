"""Values and types that no frame has are refused by the name of the column, with what to do."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest

import marketdata as md


@pytest.mark.parametrize("column", ["market_id", "token_id", "token_label"])
@pytest.mark.parametrize("as_category", [False, True])
def test_ids_with_a_lone_surrogate_are_refused(column: str, as_category: bool) -> None:
    """Two of them are merged by libraries that replace what is no Unicode; the error names the text."""
    prices = md.testing.prices()
    ids = pd.Series([f"a{chr(0xD800 + i % 2)}" for i in range(len(prices))], dtype=object)
    prices[column] = pd.Categorical(ids) if as_category else ids
    for function in (lambda: md.resample(prices, "1h"), lambda: md.concat([prices, md.testing.prices()])):
        with pytest.raises(md.errors.NotTidyError, match="surrogate"):
            function()


def test_outcomes_refuse_a_lone_surrogate() -> None:
    """A record is an error too, before a frame is made of it."""
    records = md.testing.markets().assign(market_id=pd.Series(["a\ud800"], dtype=object))
    with pytest.raises(md.errors.NotTidyError, match="surrogate"):
        md.outcomes(records)


@pytest.mark.parametrize("library", ["arrow", "polars"])
def test_frames_whose_types_differ_are_refused_by_the_name_of_the_column(library: str) -> None:
    """The error has both types and says what to cast."""
    prices = md.testing.prices("polars")
    some, others = prices.with_columns(gap=pl.duration(days=1)), prices.with_columns(gap=pl.lit("x"))
    given = [frame.to_arrow() if library == "arrow" else frame for frame in (some, others)]
    with pytest.raises(md.errors.NotTidyError, match=r"(?s)'gap' is .* in frames\[0\], .* in frames\[1\]; cast it"):
        md.concat(given)


@pytest.mark.parametrize(
    ("column", "match"), [("INTERVAL '1 day'", "CAST"), ("union_value(num := 2)", "CAST")], ids=["interval", "union"]
)
def test_types_of_duckdb_that_no_frame_has_are_refused_by_name(column: str, match: str) -> None:
    """The error names the column and the cast that helps."""
    duckdb = pytest.importorskip("duckdb")
    prices = md.testing.prices("polars").with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))
    relation = duckdb.connect().from_arrow(prices.to_arrow()).query("prices", f"SELECT *, {column} AS gap FROM prices")
    with pytest.raises(md.errors.NotTidyError, match=rf"(?s)gap.*{match}"):
        md.available_at(relation, "1m").fetchall()


def test_the_time_of_a_match_is_never_called_ts() -> None:
    """A later function would take it for the time of the row."""
    prices = md.testing.prices("polars").rename({"ts": "when"})
    joined = md.asof_join(prices, md.testing.metrics("polars"), on="when", width="1m")
    assert "ts" not in joined.columns
    assert "ts_right" in joined.columns


def test_windows_of_a_snapshot_in_two_partitions_are_those_of_the_whole_frame() -> None:
    """Dask brings the rows of a token together first."""
    dask = pytest.importorskip("dask.dataframe")
    books = md.testing.books(buckets=3)
    moments = pd.DataFrame({"ts": books["ts"].iloc[:1], "market_id": ["rain"]})
    want = md.around(books, moments, before="1m", after="2m")
    got = md.around(dask.from_pandas(books, npartitions=3, sort=False), moments, before="1m", after="2m").compute()
    keys = ["token_id", "ts", "side", "level"]
    assert len(want)
    assert got.sort_values(keys)["price"].tolist() == want.sort_values(keys)["price"].tolist()
