"""Open recordings by their names: what is listed, fetched, resumed, refused and cited."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reference.ranges import RangeServer, serving

import marketdata as md
from marketdata import Archive
from marketdata.errors import ConfigError, NetworkError, RecordingWarning
from marketdata.fetch.ranges import Ranges, Remote

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning")
HOUR = dt.datetime(2026, 4, 14, 5, tzinfo=dt.UTC)
MARKETS = [f"0x{n:02x}" + "0" * 62 for n in range(40)]
RANGE = {"start": HOUR, "end": HOUR + dt.timedelta(hours=1)}


def hour_file(seed: int = 0, rows: int = 7000) -> bytes:
    """An hour of events as PMXT writes it, in row groups of one market."""
    drawn, parts = np.random.default_rng(seed), []
    is_book = np.arange(rows) == 0
    lists = {side: pa.array([level, *[None] * (rows - 1)]) for side, level in
             (("bids", '[["0.05","10"]]'), ("asks", '[["0.95","10"]]'))}  # fmt: skip
    for number, market in enumerate(MARKETS):
        at = np.sort(drawn.integers(0, 3_600_000, rows))
        at[0] = 0
        times = pa.array(at + int(HOUR.timestamp() * 1000)).cast(pa.timestamp("ms", "UTC"))
        price, size = drawn.integers(1000, 4000, rows) / 10_000, drawn.integers(0, 900, rows).astype(float)
        parts.append(pa.table({
            "timestamp_received": times, "timestamp": times,
            "market": pa.array([market.encode()] * rows, pa.binary(66)),
            "event_type": np.where(is_book, "book", "price_change"), "asset_id": [f"{number + 1:02d}" * 30] * rows,
            **lists,
            "price": pa.array(price, mask=is_book).cast(pa.decimal128(9, 4)),
            "size": pa.array(size, mask=is_book).cast(pa.decimal128(18, 6)),
            "side": pa.array(np.where(is_book, None, "BUY"), pa.string()),
        }))  # fmt: skip
    out = io.BytesIO()
    with pq.ParquetWriter(out, parts[0].schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(part)
    return out.getvalue()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with serving({"polymarket_orderbook_2026-04-14T05.parquet": hour_file()}) as server:
        yield server


def address(server: RangeServer) -> str:
    return f"{server.url}/polymarket_orderbook_{{hour}}.parquet"


def books(archive: Archive[pl.DataFrame], market: str) -> pl.DataFrame:
    return archive.books(market, resolution="1m", on_missing="partial")


def test_sets_say_their_licence_their_citation_and_the_day_of_the_look_up() -> None:
    """Each set has a page, and one whose licence does not allow all use says for what it does."""
    sets = md.recordings(frame="polars")
    assert sets["name"].is_unique().all()
    assert sets.select("page", "looked_up", "content").null_count().sum_horizontal().item() == 0
    assert sets.filter(pl.col("licence").str.starts_with("CC BY") & pl.col("citation").is_null()).is_empty()
    restricted = sets.filter(pl.col("licence").str.contains("NC|Rocklabs"))
    assert len(restricted)
    assert restricted["use"].null_count() == 0
    assert type(md.recordings()).__module__.startswith("pandas")
    with pytest.raises(ConfigError, match="frame"):
        md.recordings(frame="arrow")


def test_an_hour_of_a_market_costs_few_bytes(server: RangeServer, tmp_path: Path) -> None:
    """Less than a twentieth of the file, and the books are those of the whole file."""
    archive = Archive(tmp_path / "part", frame="polars")
    report = archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    whole = server.files["polymarket_orderbook_2026-04-14T05.parquet"]
    assert server.sent < len(whole) / 20
    path = tmp_path / "polymarket_orderbook_2026-04-14T05.parquet"
    path.write_bytes(whole)
    other = Archive(tmp_path / "whole", frame="polars")
    other.add_files(path, only=MARKETS[7], progress=False)
    assert report["points"].sum() == 60
    assert books(archive, MARKETS[7]).equals(books(other, MARKETS[7]))


def test_a_file_that_changes_while_it_is_read_is_refused(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of two versions are never one file: nothing is stored, and the next import reads the new one."""
    archive, about, looks = Archive(tmp_path / "archive", frame="polars"), Ranges.about, iter(range(99))

    def changing(ranges: Ranges, url: str) -> Remote | None:
        found, look = about(ranges, url), next(looks)
        return found and found._replace(etag=f"{found.etag}-{min(look, 1)}")

    monkeypatch.setattr(Ranges, "about", changing)
    with pytest.raises(ConfigError, match="changed while it was read"):
        archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    assert not (tmp_path / "archive" / "books").exists()
    archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    assert len(books(archive, MARKETS[7]))


def test_a_fetch_that_is_cut_goes_on_where_it_was(server: RangeServer, tmp_path: Path) -> None:
    """What was fetched is not asked for again, and a file that changed meanwhile is fetched anew."""
    archive, some = Archive(tmp_path / "archive", frame="polars"), MARKETS[3:9]
    server.cut_after = 6
    with pytest.raises(NetworkError, match="goes on"):
        archive.add_recording("pmxt-v2", only=some, address=address(server), **RANGE)
    first, server.cut_after, server.requests = [*server.requests], None, []
    archive.add_recording("pmxt-v2", only=some, address=address(server), **RANGE)
    again = {one for one in server.requests if one.startswith("range ")} & {*first}
    assert len(again) <= 2  # the end of the file, which says where its row groups are
    assert [len(books(archive, market)) > 0 for market in some] == [True] * len(some)


def test_a_changed_file_is_noticed(server: RangeServer, tmp_path: Path) -> None:
    """By its ETag: after an import, and between two parts of a fetch."""
    archive = Archive(tmp_path / "archive", frame="polars")
    archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    before = books(archive, MARKETS[7])
    server.files = {name: hour_file(seed=1) for name in server.files}
    server.version = "two"
    with pytest.warns(RecordingWarning, match="has changed since it was imported"):
        archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    assert not books(archive, MARKETS[7]).equals(before)
    server.cut_after, server.requests = 3, []
    with pytest.raises(NetworkError):
        archive.add_recording("pmxt-v2", only=MARKETS[1:9], address=address(server), **RANGE)
    server.version, server.cut_after = "three", None
    with pytest.warns(RecordingWarning, match="has changed since"):
        archive.add_recording("pmxt-v2", only=MARKETS[1:9], address=address(server), **RANGE)


def test_licences_are_refused_before_anything_is_fetched(server: RangeServer, tmp_path: Path) -> None:
    """A use that is not free is confirmed with the licence; then a set without an address names its page."""
    archive = Archive(tmp_path / "archive", frame="polars")
    name, more = "polymarket-kalshi-scoresync", {"address": address(server), **RANGE}
    with pytest.raises(ConfigError, match=r"non-commercial use only.*licence='CC BY-NC 4\.0'"):
        archive.add_recording(name, **more)
    with pytest.raises(ConfigError, match=r"no licence that is known.*licence='unknown'"):
        archive.add_recording("pmxt-v1", **more)
    with pytest.raises(ConfigError, match=r"no address of files.*huggingface\.co.*add_files"):
        archive.add_recording(name, licence="CC BY-NC 4.0", **more)
    with pytest.raises(ConfigError, match="is no open recording; they are pmxt-v2"):
        archive.add_recording("pmxt", **more)
    with pytest.raises(ConfigError, match="a file an hour, from 2026-04-13"):
        archive.add_recording("pmxt-v2", address=address(server))
    assert server.requests == []


def test_an_export_says_what_must_be_cited(server: RangeServer, tmp_path: Path) -> None:
    """A file beside it, which an archive of one's own data has not."""
    archive = Archive(tmp_path / "archive", frame="polars")
    archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **RANGE)
    archive.export("books", tmp_path / "books.parquet")
    text = (tmp_path / "books.parquet.citation.txt").read_text()
    assert "PMXT" in text
    assert "CC BY 4.0" in text
    own = md.simulate(tmp_path / "own", days=1)
    own.export("prices", tmp_path / "prices.parquet")
    assert not (tmp_path / "prices.parquet.citation.txt").exists()


def test_hours_and_markets_that_are_not_there_are_named(server: RangeServer, tmp_path: Path) -> None:
    """A missing hour is a warning; a market that no file has is an error."""
    archive = Archive(tmp_path / "archive", frame="polars")
    longer = {"start": HOUR, "end": HOUR + dt.timedelta(hours=2)}
    with pytest.warns(RecordingWarning, match="no file of 2026-04-14T06"):
        archive.add_recording("pmxt-v2", only=MARKETS[7], address=address(server), **longer)
    with pytest.raises(ConfigError, match="none of the 1 files"):
        archive.add_recording("pmxt-v2", only="0xff", address=address(server), **RANGE)
