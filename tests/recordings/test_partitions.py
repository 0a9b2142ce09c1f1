"""A table that is read in parts gives the points, the coverage and the report of one that is read at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.shapes import START

from marketdata import Archive
from marketdata.errors import ConfigError
from marketdata.recordings import partitions

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
rows = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 40), st.integers(0, 59), st.integers(1, 98)),
    min_size=1, max_size=80, unique_by=lambda row: row[:4],
)  # fmt: skip


def table(drawn: list[tuple[int, ...]], kind: str, *, copies: int, names_markets: bool) -> pl.DataFrame:
    """A table in the order drawn, with several rows in a minute, and some rows twice."""
    frame = pl.DataFrame(
        [(START + 60_000 * minute + 1000 * second, f"0x{m:064x}", f"{m}{t}" * 20, price / 100)
         for m, t, minute, second, price in drawn],
        schema=["timestamp", "market", "token_id", "price"], orient="row",
    )  # fmt: skip
    if kind == "quotes":
        price = pl.col("price")
        frame = frame.with_columns(best_bid=price, best_ask=price + 0.01).drop("price")
    frame = pl.concat([frame, frame.head(copies)])
    return frame if names_markets else frame.drop("market")


def imported(folder: Path, path: Path, view: str) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    archive = Archive(folder, frame="polars")
    report = archive.add_files(path, progress=False).drop("file")
    points = archive.scan(view).collect().cast({pl.Categorical: pl.String})
    return points, archive.coverage().drop("fetched_at").cast({pl.Categorical: pl.String}), report


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows, st.sampled_from(["prices", "quotes"]), st.sampled_from(["csv", "parquet"]), st.integers(0, 5), st.booleans()
)
def test_parts_of_a_table_are_the_whole(
    tmp_path_factory: Any, drawn: list[tuple[int, ...]], view: str, form: str, copies: int, names_markets: bool
) -> None:
    """In any order, with means over a bucket, copies of rows, and tokens without a market."""
    folder = tmp_path_factory.mktemp("parts")
    path = folder / f"{view}.{form}"
    frame = table(drawn, view, copies=copies, names_markets=names_markets)
    frame.write_csv(path) if form == "csv" else frame.write_parquet(path)
    whole = imported(folder / "whole", path, view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "PART_ROWS", 6)
        patch.setattr("marketdata.recordings.containers.PART_ROWS", 5)
        parts = imported(folder / "parts", path, view)
    for one, other in zip(whole, parts, strict=True):
        assert one.equals(other)


def test_a_table_that_is_refused_stores_none_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in its last part is known before its first one is stored."""
    monkeypatch.setattr(partitions, "PART_ROWS", 20)
    frame = table(
        [(m, 0, minute, 0, 50) for m in range(4) for minute in range(20)], "prices", copies=0, names_markets=True
    )
    again = [frame.filter(pl.col("market") > frame["market"].min()).with_columns(price=pl.lit(p)) for p in (0.7, 0.8)]
    pl.concat([frame, *again]).write_csv(tmp_path / "prices.csv")
    archive = Archive(tmp_path / "archive", frame="polars")
    with pytest.raises(ConfigError, match="several rows for a token and a time"):
        archive.add_files(tmp_path / "prices.csv")
    assert not (tmp_path / "archive").exists()


def test_a_market_with_a_long_pause_is_cut_where_its_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part is of a range of time without a row."""
    minutes = [*range(6), *range(60 * 24 * 10, 60 * 24 * 10 + 6)]
    frame = table([(0, 0, minute, 0, 50) for minute in minutes], "prices", copies=0, names_markets=True)
    frame.write_csv(tmp_path / "prices.csv")
    monkeypatch.setattr(partitions, "PART_ROWS", 4)
    points, _, _ = imported(tmp_path / "archive", tmp_path / "prices.csv", "prices")
    assert points["ts"].dt.epoch("ms").to_list() == frame["timestamp"].to_list()
