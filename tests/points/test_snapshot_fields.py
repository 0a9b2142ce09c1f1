"""Values of a whole snapshot, such as its hash, stay with the snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import marketdata as md
from marketdata.points.columns import Books, joined
from marketdata.tidy.frames import to_columns, to_frame


def books_with_values(buckets: int = 4) -> pl.DataFrame:
    """Books whose snapshots each have a hash, some of them missing, and a last trade."""
    books = md.testing.books("polars", buckets=buckets)
    number = pl.struct("ts", "token_id").rank("dense")
    return books.with_columns(
        pl.when(number % 3 > 0).then(pl.format("h{}", number)).alias("hash"), (number / 100).alias("last_trade_price")
    )


@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_values_of_a_snapshot_pass_through_columns(kind: Any) -> None:
    """A frame becomes columns and a frame again with the same values."""
    books = books_with_values()
    columns = to_columns("books", books if kind == "polars" else books.to_pandas())
    back = to_frame(columns.sort(), kind)
    back = back if kind == "polars" else pl.from_pandas(back)
    for name in ("hash", "last_trade_price"):
        assert back[name].cast(books.schema[name]).to_list() == books[name].to_list()


def test_parts_with_and_without_a_value_are_joined() -> None:
    """A part without a hash has missing hashes in the whole."""
    books = books_with_values()
    plain, whole = to_columns("books", books.drop("hash")), to_columns("books", books)
    assert isinstance(plain, Books)
    assert isinstance(whole, Books)
    others = plain.grouped([token._replace(token_id=f"{token.token_id}b") for token in plain.tokens], plain.token)
    rows = to_frame(joined([whole, others]), "polars")
    is_other = pl.col("token_id").cast(pl.String).str.ends_with("b")
    assert rows.filter(is_other)["hash"].to_list() == [None] * len(books)
    assert rows.filter(~is_other)["hash"].to_list() == books["hash"].to_list()


def test_values_of_a_snapshot_pass_through_a_page() -> None:
    """The JSON of a service has them beside the levels; a field of another type is left out."""
    point = {"t": "2026-01-01T00:00:00Z", "bids": [[0.4, 1]], "asks": []}
    points = [{**point, "hash": "a", "tick_size": "?"}, {**point, "t": "2026-01-01T00:01:00Z", "last_trade_price": 0.5}]
    page = {"market_id": "m", "resolution": "1m", "tokens": {"Yes": "1"}, "metadata": {"count": 2, "limit": 9}}
    books = md.read_pages("books", [json.dumps({**page, "data": {"Yes": points}}).encode()], frame="polars")
    assert books.filter(side="bid").select("hash", "last_trade_price").rows() == [("a", None), (None, 0.5)]
    assert "tick_size" not in books.columns


def test_values_of_a_snapshot_pass_through_a_service(tmp_path: Path) -> None:
    """An archive, its service and a client give the same frame."""
    archive = md.Archive(tmp_path, frame="polars")
    archive.add(markets=md.testing.markets("polars"), books=books_with_values())
    stored = archive.books("rain")
    with md.serve(archive) as service:
        client = md.Client(service.base_url, service.api_key, frame="polars")
        fetched = client.books("rain", stored["ts"].min(), "2026-01-02", "1m")
    assert fetched.drop("hash").equals(stored.drop("hash"))
    assert fetched["hash"].to_list() == stored["hash"].to_list()


def test_resample_keeps_the_values_of_the_last_snapshot() -> None:
    """Each bucket has the hash and the last trade of the snapshot that is kept, nested and on an engine too."""
    books = books_with_values(buckets=7)
    last = books.filter(pl.col("ts") == pl.col("ts").max().over("token_id", pl.col("ts").dt.truncate("10m")))
    expected = last["hash"].to_list(), last["last_trade_price"].to_list()
    lazy = md.resample(books.lazy(), "10m").collect()
    for resampled in (md.resample(books, "10m"), lazy, md.explode(md.resample(md.nest(books), "10m"))):
        assert (resampled["hash"].to_list(), resampled["last_trade_price"].to_list()) == expected
