"""Own recordings at one second: what is stored, what is derived from it, and that the base stays what it was."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.source import MARKETS, START
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from reference import foreign, tables
from reference.foreign_cases import close, plain_rows

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.errors import ArchiveError, ConfigError
from marketdata.points.views import View
from marketdata.tidy.frames import to_frame
from marketdata.times import Range

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
M, SECOND = MARKETS[0], 1_000_000
WIDTHS = {"1s": 1, "1m": 60, "5m": 300, "1h": 3600}
DRAWN: dict[View, Any] = {
    "books": foreign.books(faults=False, width=1) | foreign.nested(faults=False, width=1),
    "prices": foreign.prices(faults=False, width=1),
    "metrics": foreign.metrics(faults=False, width=1),
}
WAYS: dict[str, Callable[[Archive, View, str], Any]] = {
    "read": lambda a, v, r: getattr(a, v)(sorted(set(a.coverage()["market_id"])), resolution=r),
    "polars": lambda a, v, r: a.scan(v, resolution=r),
    "arrow": lambda a, v, r: pl.DataFrame(pl.from_arrow(a.scan(v, resolution=r, engine="arrow").read_all())),
    "duckdb": lambda a, v, r: a.scan(v, resolution=r, engine="duckdb").pl(),
    "sql": lambda a, v, r: a.sql(f"select * from {v}"),
}


def made(base: Any = "1s") -> Archive:
    return Archive(Path(tempfile.mkdtemp()) / "archive", frame="polars", base=base)


def quotes(at: list[float], values: list[float] | None = None, market: str = "m") -> pl.DataFrame:
    """Prices of one token so many seconds after the start."""
    times = [START + round(second * SECOND) for second in at]
    ts = pl.Series("ts", times, pl.Int64).cast(pl.Datetime("us", "UTC"))
    named = {"market_id": [market] * len(at), "token_id": ["1"] * len(at), "token_label": ["Yes"] * len(at)}
    return pl.DataFrame([ts]).with_columns(
        *(pl.Series(name, column, pl.String) for name, column in named.items()),
        pl.Series("price", values or [n % 65 / 64 for n in range(len(at))]),
    )


def at(second: float) -> float:
    """Unix seconds of a time after the start."""
    return START / SECOND + second


def in_order(rows: Any) -> list[dict[str, Any]]:
    """Rows in tidy order, whatever order an engine gives them in."""
    places = {"bid": 0, "ask": 1}

    def key(row: dict[str, Any]) -> Any:
        side, level = places.get(row.get("side", ""), 0), row.get("level")
        return row["market_id"], row.get("token_id") or "", row["ts"], side, -1 if level is None else level

    return sorted(plain_rows(rows), key=key)


@settings(max_examples=6)
@given(data=st.data())
def test_every_resolution_is_what_a_query_makes_of_the_seconds(data: st.DataObject) -> None:
    """Frames of other makers come back at 1s as they were, and at 1m and coarser as the rules say, by every reader."""
    view: View = data.draw(st.sampled_from(list(DRAWN)))
    drawn = data.draw(DRAWN[view])
    archive = made()
    archive.add(**{view: drawn.frame})
    if not drawn.rows:
        return
    way = data.draw(st.sampled_from(list(WAYS)))
    resolution = "1m" if way == "sql" else data.draw(st.sampled_from(list(WIDTHS)))
    got = in_order(WAYS[way](archive, view, resolution))
    want = plain_rows((tables.last_books if view == "books" else tables.means)(drawn.tidy(), resolution))
    if view == "books":  # not every frame has rows for an empty side
        got, want = ([row for row in rows if row["price"] is not None] for rows in (got, want))
    names = [c for row in want[:1] for c in row if resolution != "1s" or not c.endswith("_count")]
    assert len(got) == len(want)
    assert all(close(mine[c], row[c]) for mine, row in zip(got, in_order(want), strict=True) for c in names)
    assert archive.verify().is_empty()


@settings(max_examples=3)
@given(data=st.data())
def test_at_1m_it_reads_as_an_archive_of_minutes(data: st.DataObject) -> None:
    """Also of ranges that begin and end inside of minutes: they select the points of 1m, as in any archive."""
    view: View = data.draw(st.sampled_from(list(DRAWN)))
    drawn = data.draw(DRAWN[view])
    fine, coarse = made(), made("1m")
    for archive in (fine, coarse):
        archive.add(**{view: drawn.frame})
    if not drawn.rows:
        return
    first, last = (pick(row["ts"] for row in drawn.rows) for pick in (min, max))
    start, end = sorted(data.draw(st.tuples(st.integers(first - 90, last + 90), st.integers(first - 90, last + 90))))
    for market in sorted({row["market_id"] for row in drawn.rows}):
        wanted = Range(start * SECOND, end * SECOND)
        both = [Reader(archive).columns(view, market, wanted) for archive in (fine, coarse)]
        rows = [plain_rows(to_frame(columns, "polars")) for columns in both]
        assert len(rows[0]) == len(rows[1])
        assert all(close(a[c], b[c]) for a, b in zip(*rows, strict=True) for c in a)


@pytest.mark.fault("FR7")
def test_means_of_seconds_carry_their_counts() -> None:
    """Seconds read at 1m and aggregated are the mean over the seconds, not over the minutes."""
    archive = made()
    archive.add(prices=quotes([0, 1, 2, 60], [0.1, 0.2, 0.3, 1.0]))
    for way in WAYS.values():
        minutes = pl.DataFrame(in_order(way(archive, "prices", "1m")))
        assert minutes["price_count"].to_list() == [3, 1]
        minutes = minutes.with_columns(pl.from_epoch("ts").dt.replace_time_zone("UTC"))
        assert md.resample(minutes, "1h")["price"].to_list() == [pytest.approx(0.4)]


def test_widths_below_a_minute_are_read() -> None:
    """A range of seconds is read at widths of seconds; what the base does not divide is refused."""
    archive = made()
    archive.add(prices=quotes([0, 1, 2, 31, 60]))
    for width in (1, 5, 30):
        got = archive.prices("m", at(0), at(32), f"{width}s")
        assert [row["ts"] for row in plain_rows(got)] == sorted({at(s // width * width) for s in (0, 1, 2, 31)})
    minutes = made("1m")
    minutes.add(prices=quotes([0, 60]))
    for wrong in ("1s", "90s"):
        with pytest.raises(ConfigError, match="stores points of 1m, which does not divide it"):
            minutes.prices("m", resolution=wrong)


def test_what_is_finer_than_a_second_is_reduced_to_it() -> None:
    """The mean of the prices of each second, once each, and the same again after another add of the same."""
    archive, rows = made(), quotes([0, 0.25, 0.75, 1.5, 61], [0.25, 0.5, 0.75, 0.125, 1.0])
    for _ in range(2):
        archive.add(prices=rows)
        assert archive.prices("m", resolution="1s")["price"].to_list() == [0.5, 0.125, 1.0]
        assert archive.prices("m")["price"].to_list() == [0.3125, 1.0]


def test_coverage_is_by_the_minute() -> None:
    """From the minute of the first second to the end of that of the last, with the count of the stored points."""
    archive = made()
    archive.add(prices=quotes([30, 31, 95]))
    (row,) = archive.coverage().iter_rows(named=True)
    assert (row["start"].timestamp(), row["end"].timestamp(), row["rows"]) == (at(0), at(120), 3)
    archive.add(prices=quotes([130]), complete=True)
    assert archive.coverage()["state"].to_list() == ["recorded", "final"]
    assert archive.prices("m", on_missing="raise").height == 3


def test_rows_on_the_grid_of_minutes_are_told_apart_from_recordings() -> None:
    """Among seconds they are refused, for they may be means; where nothing is they are kept as unverified."""
    archive = made()
    archive.add(prices=quotes([*range(3000)]))
    with pytest.raises(ArchiveError, match=r"grid of 1m, while finer points .* holds 1s points"):
        archive.add(prices=quotes([60.0 * n for n in range(20)]))
    with pytest.warns(md.errors.PartialCoverageWarning, match=r"grid of 1m.*kept as the 1s points"):
        archive.add(prices=quotes([60.0 * n for n in range(20)], market="n"))
    assert archive.coverage().filter(pl.col("market_id") == "n")["state"].to_list() == ["unverified"]


def test_what_comes_later_changes_no_bucket_that_has_closed() -> None:
    """At every resolution a bucket is the same whether or not the archive already has points from behind it."""
    times = [float(n * n % 4001) for n in range(300)]
    rows = quotes(times, [n % 64 / 64 for n in range(300)]).unique("ts", keep="first").sort("ts")
    every, cut = made(), START + 1861 * SECOND
    every.add(prices=rows)
    until = made()
    until.add(prices=rows.filter(pl.col("ts").dt.epoch("us") < cut))
    for resolution, width in list(WIDTHS.items())[1:]:
        closed = pl.col("ts").dt.epoch("us") + width * SECOND <= cut
        a, b = (x.prices("m", resolution=resolution).filter(closed) for x in (every, until))
        assert a.height or resolution == "1h"
        assert_frame_equal(a, b)


def test_the_service_answers_minutes() -> None:
    """A service over seconds gives them, and 1m and coarser as the archive derives them."""
    archive = made()
    rows = quotes([*range(0, 9000, 70)])
    archive.add(prices=rows, markets=[{"market_id": "m", "slug": "m", "token_ids": ["1"], "token_labels": ["Yes"]}])
    with md.serve(archive) as service:
        client = md.Client(service.base_url, service.api_key, frame="polars")
        for resolution in ("1m", "1h"):
            got, want = (x.prices("m", at(605), at(7333), resolution) for x in (client, archive))
            assert_frame_equal(got.select("ts", "price"), want.select("ts", "price"))
        got = client.prices("m", at(0), at(60), "1s")
        assert_frame_equal(got.select("ts", "price"), archive.prices("m", at(0), at(60), "1s").select("ts", "price"))
        client.close()


def test_of_two_that_make_it_at_once_one_is_refused(tmp_path: Path) -> None:
    """Writers that begin with different bases: all of one base are stored, all of the other get an error."""
    for n in range(2):
        place, done, start = tmp_path / str(n), dict[str, Any](), threading.Barrier(2)

        def write(base: Any, place: Path = place, done: dict[str, Any] = done, start: Any = start) -> None:
            archive = Archive(place, frame="polars", base=base)
            start.wait()
            try:
                archive.add(prices=quotes([0, 1, 2]))
                done[base] = archive.prices("m", resolution=base).height
            except ConfigError as problem:
                done[base] = str(problem)

        threads = [threading.Thread(target=write, args=(base,)) for base in ("1s", "1m")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {base: count for base, count in done.items() if isinstance(count, int)} in ({"1s": 3}, {"1m": 1})
        assert all("base=" in text for text in done.values() if isinstance(text, str))


def test_what_is_no_path_is_no_archive() -> None:
    """The error names the argument, what was given and what is taken."""
    wrong: Any
    for wrong in (5, None, ["a"], ""):
        with pytest.raises(ConfigError, match=r"path_or_url=.*allowed are a folder or an object-store address"):
            Archive(wrong)


def test_hourly_prices_of_a_new_archive_are_read_back_without_a_warning(tmp_path: Path) -> None:
    """The warning of hours in an archive of minutes names the base with which there is none."""
    hours = md.testing.prices("polars", buckets=40, resolution="1h")
    with pytest.warns(md.errors.PartialCoverageWarning, match=r"base='1h'"):
        md.Archive(tmp_path / "minutes").add(prices=hours)
    archive = md.Archive(tmp_path / "hours", frame="polars", base="1h")
    archive.add(prices=hours)
    assert len(archive.prices("rain", resolution="1h")) == len(hours)


def test_a_number_of_any_length_in_a_record_is_kept(tmp_path: Path) -> None:
    """No column of a table holds it, so it is stored, served and fetched as what it is."""
    market = {"market_id": "m", "slug": "s", "question": "Hauptstraße?", "odd": 10**400, "more": [{"n": -(10**30)}]}
    archive = Archive(tmp_path / "archive", frame="polars")
    archive.add(markets=[market], prices=md.testing.prices().assign(market_id="m"))
    assert {name: archive.records("markets")[0][name] for name in ("odd", "more")} == {
        "odd": 10**400, "more": [{"n": -(10**30)}]
    }  # fmt: skip
    other = Archive(tmp_path / "other", frame="polars")
    with md.serve(archive) as service:
        other.pull(md.Client(service.base_url, service.api_key), "s", start="2026-01-01", end="2026-01-02")
    assert float(str(other.records("markets")[0]["odd"])[:10]) == 10**9


def test_words_of_a_search_are_found_in_any_case(tmp_path: Path) -> None:
    """An archive and its service fold letters alike, also those that become two."""
    archive = Archive(tmp_path / "archive", frame="polars")
    archive.add(markets=[{"market_id": "m", "question": "Wird die Hauptstraße gesperrt?"}, {"market_id": "n"}])
    with md.serve(archive) as service:
        for source in (archive, md.Client(service.base_url, service.api_key, frame="polars")):
            for words in ("HAUPTSTRASSE", "hauptstraße wird", "Straße"):
                assert source.markets(search=words)["market_id"].to_list() == ["m"]  # type: ignore[attr-defined]
