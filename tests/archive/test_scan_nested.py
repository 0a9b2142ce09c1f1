"""Scans of nested books go straight into the verbs, on every engine, from a folder and from an S3 server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.scanned import fetched, plain
from archive.source import MARKETS
from archive.stored import books, data_files
from polars.testing import assert_frame_equal

import marketdata as md
from marketdata.archive import Archive
from marketdata.tidy.frames import to_frame

M, N = MARKETS
IDS = ["market_id", "token_id", "token_label"]
VERBS: dict[str, Callable[[Any], Any]] = {
    "bbo": md.bbo,
    "mid": md.mid,
    "resample": lambda f: md.explode(md.resample(f, "1h")),
    "spread of each hour": lambda f: md.spread(md.resample(f, "1h")),
    "depth": lambda f: md.depth(f, levels=1),
    "features": lambda f: md.features(f, ["microprice", "imbalance", ("fill_price", {"size": 1.0})]),
    "to_wide": lambda f: md.to_wide(f, 2),
    "explode": md.explode,
    "nest": lambda f: md.explode(md.nest(md.explode(f))),
}


@pytest.fixture(scope="module", params=["polars", "arrow", "duckdb", "dask", "spark"])
def name(request: pytest.FixtureRequest, engine: Any) -> str:
    """The name of an engine that is there, and runs: Dask with two processes."""
    if request.param == "duckdb":
        pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    elif request.param in ("dask", "spark"):
        engine(request.param)
    return request.param


def nested(*of: Any, **more: Any) -> pl.DataFrame:
    return md.nest(to_frame(books(*of, **more), "polars"))


@pytest.fixture(scope="module", params=["folder", "s3"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Two markets in several files, added as nested frames; the last book of one has no bids."""
    if request.param == "s3":
        options = request.getfixturevalue("object_store").options
        archive = Archive("s3://history/nested", frame="polars", storage_options=options)
    else:
        archive = Archive(tmp_path_factory.mktemp("nested") / "archive", frame="polars")
    for market in MARKETS:
        archive.add(books=nested(market, 0, 90))
        archive.add(books=nested(market, 30, 60, size=2.0))
    last = archive.scan("books", M, nested=True).collect().filter(pl.col("ts") == pl.col("ts").max())
    archive.add(books=last.with_columns(bid_price=pl.lit([], pl.List(pl.Float64)), bid_size=None))
    return archive


def test_nested_rows_of_any_engine_go_into_the_verbs(filled: Archive, name: Any) -> None:
    """What a verb makes of nested rows is what it makes of the rows of levels that polars scans.

    An engine reads a bucket as it reads a folder, so a few verbs do there, and on engines other than polars.
    """
    levels = filled.scan("books").collect()
    few = VERBS if name == "polars" and not filled.location.startswith("s3:") else ("bbo", "resample", "depth")
    for label, verb in ((label, VERBS[label]) for label in few):
        want = plain(verb(md.nest(levels)) if label == "nest" else _of_levels(label, levels))
        got = plain(fetched(_read(verb(filled.scan("books", engine=name, nested=True)))).select(want.columns))
        assert_frame_equal(got.cast({c: t for c, t in want.schema.items() if c != "ts"}), want, check_dtypes=False)


def _of_levels(label: str, levels: pl.DataFrame) -> pl.DataFrame:
    if label == "resample":
        return md.resample(levels, "1h")
    return levels if label == "explode" else VERBS[label](levels)


def _read(frame: Any) -> Any:
    return pl.DataFrame(pl.from_arrow(frame)).lazy() if hasattr(frame, "to_batches") else frame


def test_nested_frames_are_added_as_they_are(tmp_path: Path) -> None:
    """Nested rows and rows of levels give one archive, empty sides included; what contradicts itself is refused."""
    rows = md.testing.books("polars", buckets=3)
    rows = rows.filter(~((pl.col("side") == "bid") & (pl.col("ts") == pl.col("ts").max())))
    nested = md.nest(rows)
    one, two = (Archive(tmp_path / place, frame="polars") for place in ("levels", "nested"))
    one.add(books=rows)
    for frame in (nested.to_pandas().sample(frac=1, random_state=3), nested.lazy(), nested.to_arrow()):
        two.add(books=frame)
    assert plain(one.scan("books").collect()).equals(plain(two.scan("books").collect()))
    with pytest.raises(md.errors.NotTidyError, match="bid_price has"):
        two.add(books=nested.with_columns(pl.col("bid_size").list.head(1)))
    with pytest.raises(md.errors.ConfigError, match="pass them as books="):
        two.add(prices=nested)
    assert plain(one.scan("books").collect()).equals(plain(two.scan("books").collect()))


def test_files_of_an_archive_go_into_the_verbs(tmp_path: Path) -> None:
    """Rows that another reader takes from the files are nested books: verbs know them."""
    archive = Archive(tmp_path / "archive", frame="polars")
    rows = md.testing.books("polars", buckets=3)
    archive.add(books=rows)
    files = data_files(archive, "books")
    for frame in (pl.read_parquet(files), pl.scan_parquet(files).collect(), pl.read_parquet(files).to_pandas()):
        assert plain(pl.DataFrame(md.bbo(frame))).equals(plain(md.bbo(rows)))
