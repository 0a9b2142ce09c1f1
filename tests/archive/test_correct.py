"""What was once lost, doubled or called damaged: each case made to happen, without chance."""

from __future__ import annotations

import datetime as dt
import errno
import itertools
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import polars as pl
import pytest
from archive.source import MARKETS, MINUTE, START, TOKENS, Source, columns_of, points_of
from archive.stored import again, books, data_files, held, prices, states
from reference.columns import coded_books, coded_series, levels_of

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import STATES
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import Store, read_footer
from marketdata.errors import (
    ArchiveCorruptError,
    ArchiveError,
    ConfigError,
    NotArchivedError,
    NotTidyError,
    PartialCoverageWarning,
)
from marketdata.plot import coverage_chart
from marketdata.points.columns import Token

M, N = MARKETS


STORAGE = (errno.ESTALE, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.EACCES, errno.ETIMEDOUT)


@pytest.mark.fault("AR38")
def test_a_failure_of_the_storage_is_never_damage(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever read fails in any verb, the error is no ArchiveCorruptError, and nothing is given up."""
    archive.add(books=books(M, 0, 30), prices=prices(M, 0, 30))
    archive.add(books=books(M, 30, 30))
    before, covered = held(archive), archive.coverage()
    real = Store.open
    verbs: list[Callable[[Archive], Any]] = [
        lambda a: a.verify(repair=True), lambda a: a.verify(), lambda a: a.books(M), lambda a: a.compact(),
        lambda a: a.export("books", Path(archive.location).with_suffix(".parquet")),
        lambda a: a.add(books=books(M, 5, 3, size=2.0)),
    ]  # fmt: skip
    for wrong, (verb, nth) in zip(itertools.cycle(STORAGE), itertools.product(verbs, range(2)), strict=False):
        calls = itertools.count()

        def stutter(self: Store, name: str, nth: int = nth, calls: Any = calls, wrong: int = wrong) -> Any:
            if self.uri.endswith(("books", "prices")) and next(calls) == nth:
                raise OSError(wrong, os.strerror(wrong))
            return real(self, name)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "open", stutter)
            with pytest.raises(ArchiveError, match="storage failed") as info:
                verb(again(archive))
        assert not isinstance(info.value, ArchiveCorruptError)
        assert ("the right to read" in str(info.value)) == (wrong == errno.EACCES)
    assert held(again(archive)) == before
    assert set(again(archive).coverage()["state"]) == set(covered["state"])
    assert again(archive).verify(repair=True).is_empty()


@pytest.mark.fault("AR38")
def test_only_what_the_storage_says_is_not_there_is_missing() -> None:
    """Of errors of storage libraries only one whose type or number says so is a missing file, whatever the words."""
    problems = {
        OSError("Generic LocalFileSystem error: Too many open files (os error 24)"): False,
        OSError("Object at location x not found: No such file or directory (os error 2)"): True,
        OSError("Generic S3 error: Error performing GET: 503 Service Unavailable"): False,
        OSError("Generic S3 error: 403 Forbidden: ExpiredToken"): False,
        OSError("Generic S3 error: 404 Not Found: NoSuchKey"): False,
        FileNotFoundError("Object at location x not found"): True,
        OSError("error sending request: operation timed out"): False,
    }
    for problem, missing in problems.items():
        with pytest.raises(ArchiveError) as info, errors.reading("The data file x"):
            raise problem
        assert isinstance(info.value, ArchiveCorruptError) == missing


@pytest.mark.fault("AR42")
def test_vacuum_refuses_what_is_no_number_of_hours(archive: Archive) -> None:
    """Below 0, not finite and not a number are a ConfigError, whatever the archive holds."""
    hours: Any
    for hours in (-1, -0.001, math.nan, math.inf, "a week", None, True):
        with pytest.raises(ConfigError, match="retention_hours"):
            archive.vacuum(hours)


@pytest.mark.fault("AR40")
def test_corrections_of_a_few_points_leave_the_others(archive: Archive) -> None:
    """Three corrected snapshots replace three; what was final stays final."""
    archive.add(books=books(M, 0, 300), complete=True)
    archive.add(books=columns_of("books", M, [(0, 0), (0, 150), (0, 299)], [([(0.5, 9.0)], [])] * 3))
    want = points_of("books", books(M, 0, 300))
    want |= {("books", M, 0, n): ([(0.5, 9.0)], []) for n in (0, 150, 299)}
    assert held(again(archive)) == want
    assert states(archive, "books") == [(0, 300, "final")]
    assert archive.coverage()["rows"].to_list() == [600]
    assert archive.verify().is_empty()


@pytest.mark.fault("AR39")
def test_one_token_alone_and_sparse_points_are_recorded(archive: Archive) -> None:
    """Yes alone, or three snapshots in five hours, are held and not final; a read-through asks for the rest."""
    source = Source()
    source.points = {("books", M, t, n): ([(0.4, float(n + 1))], []) for t in (0, 1) for n in range(300)}
    mine = columns_of("books", M, [(0, 0), (0, 120), (0, 299)], [([(0.4, 1.0)], [])] * 3)
    archive.add(books=mine)
    assert states(archive, "books") == [(0, 300, "recorded")]
    assert len(held(archive)) == 3
    assert archive.books(M)["ts"].n_unique() == 3
    frame = archive.attach(source).books(M, START / 1e6, START / 1e6 + 300 * 60, on_missing="fetch")
    assert frame["ts"].n_unique() == 300
    assert held(archive) == source.points
    assert states(archive, "books") == [(0, 300, "final")]


@pytest.mark.fault("AR39")
def test_what_is_said_to_be_complete_has_all_tokens(archive: Archive) -> None:
    """Complete=True needs every token of the market; with them the range is final."""
    market = {"market_id": M, "slug": "s", "token_ids": [t.token_id for t in TOKENS[M]], "token_labels": ["Yes", "No"]}
    archive.add(markets=[market])
    with pytest.raises(ArchiveError, match="No"):
        archive.add(prices=prices(M, 0, 10), complete=True)
    assert archive.coverage().is_empty()
    archive.add(prices=columns_of("prices", M, [(t, n) for t in (0, 1) for n in range(10)], [0.5] * 20), complete=True)
    assert states(archive, "prices") == [(0, 10, "final")]


@pytest.mark.fault("AR40")
def test_replace_takes_the_range_of_each_token(archive: Archive) -> None:
    """Replace=True removes what a token has between its first and last new point, and nothing else."""
    archive.add(prices=columns_of("prices", M, [(t, n) for t in (0, 1) for n in range(10)], [0.5] * 20))
    archive.add(prices=columns_of("prices", M, [(0, 2), (0, 6)], [0.1, 0.2]), replace=True)
    found = held(archive, "prices")
    assert sorted(n for _, _, t, n in found if t == 0) == [0, 1, 2, 6, 7, 8, 9]
    assert sorted(n for _, _, t, n in found if t == 1) == list(range(10))
    assert archive.verify().is_empty()


def test_doubled_points_of_one_add_are_one_or_refused(archive: Archive) -> None:
    """Equal points of one token and time are one; different ones are a NotTidyError that names them."""
    one = books(M, 0, 5)
    twice = coded_books(
        one.tokens, np.tile(one.token, 2), np.tile(one.ts, 2), np.tile(one.counts, 2), np.tile(levels_of(one), (2, 1))
    )
    archive.add(books=twice, prices=prices(M, 0, 5))
    assert held(archive) == points_of("books", one)
    token = np.zeros(2, np.int32)
    clash = coded_series(TOKENS[M], token, np.array([START, START]), {"price": np.array([0.5, 0.6])})
    with pytest.raises(NotTidyError, match="different values"):
        archive.add(prices=clash)
    nan = coded_series(TOKENS[M], token, np.array([START, START]), {"price": np.array([np.nan, np.nan])})
    archive.add(prices=nan)
    assert archive.prices(M)["price"].to_list()[0] is None


def test_ids_that_are_floats_are_refused_beside_a_market_id(archive: Archive) -> None:
    """A float token id has lost digits, and is refused also where the market is named."""
    when = [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]
    for name in ("token_id", "market_id"):
        frame = {"ts": when, "market_id": ["m"], "token_id": ["1"], "price": [0.5], name: [1.1e69]}
        with pytest.raises(NotTidyError, match=r"(?i)float"):
            archive.add(prices=pl.DataFrame(frame))


def test_times_of_files_are_told_apart_by_their_size(archive: Archive, tmp_path: Path) -> None:
    """Unix seconds to nanoseconds in a file become the same time; nothing lands in January 1970."""
    archive.add(markets=[{"market_id": "m", "slug": "s", "token_ids": ["1"], "token_labels": ["Yes"]}])
    second = START // 10**6 // 60 * 60
    want = [dt.datetime.fromtimestamp(second + 60 * n, dt.UTC) for n in range(3)]
    book = {"asset_id": "1", "bids": [{"price": "0.5", "size": "1"}], "asks": []}
    for unit in (1, 10**3, 10**6, 10**9):
        times = [(second + 60 * n) * unit for n in range(3)]
        rows = [json.dumps({"ts": ts, "token_id": "1", "price": 0.5}) for ts in times]
        (tmp_path / f"p{unit}.jsonl").write_text("\n".join(rows))
        (tmp_path / f"b{unit}.json").write_text(json.dumps([{**book, "timestamp": str(ts)} for ts in times]))
        archive.add_files([tmp_path / f"p{unit}.jsonl", tmp_path / f"b{unit}.json"])
        assert archive.prices("m")["ts"].to_list() == want
        assert archive.books("m")["ts"].unique(maintain_order=True).to_list() == want


def test_times_that_are_no_unix_time_are_refused(archive: Archive, tmp_path: Path) -> None:
    """A number that is no time of any unit is a ConfigError."""
    (tmp_path / "p.jsonl").write_text('{"ts": 12345, "token_id": "1", "price": 0.5}')
    with pytest.raises(ConfigError, match="ts has not times since 2015: 12345"):
        archive.add_files(tmp_path / "p.jsonl")


@pytest.mark.fault("AR44")
def test_a_market_out_of_many_opens_one_file_and_parses_one_record(tmp_path: Path) -> None:
    """Of many markets and files a read opens the footer of one file, and parses the record of one market."""
    archive = Archive(tmp_path / "a", frame="polars")
    for n in range(8):
        token = Token(f"m-{n:02d}", str(n), "Yes")
        record = {"market_id": token.market_id, "slug": f"s-{n}", "token_ids": [str(n)], "token_labels": ["Yes"]}
        point = coded_series((token,), np.zeros(1, np.int32), np.array([START]), {"price": np.array([0.5])})
        archive.add(markets=[record], prices=point)
    fresh = again(archive)
    with (
        mock.patch("marketdata.archive.records.msgspec.json.decode", wraps=msgspec.json.decode) as parse,
        mock.patch("marketdata.archive.storage.files.read_footer", wraps=read_footer) as footers,
    ):
        assert fresh.prices("s-7").height == 1
    assert len({text for call in parse.call_args_list if isinstance(text := call.args[0], str)}) <= 1
    assert sum(call.args[0].uri.endswith("prices") for call in footers.call_args_list) == 1


def test_ids_beyond_the_basic_plane_are_found_again(archive: Archive) -> None:
    """Ids with characters of any plane keep their statistics: they and their neighbours are found, and replaced."""
    high = ("\U0001f1fa\U0001f1f8", "\U00020000", "z\U0010ffff", "\uffff", "a\U0001f1fa" * 100)
    names = sorted({"a", "\ud7ff", "\uffee", "zz", *high})
    tokens, k = tuple(Token(n, f"t{n}", "Yes") for n in names), len(names)
    codes, ts = np.arange(k, dtype=np.int32), np.full(k, START)
    points = coded_series(tokens, codes, ts, {"price": np.arange(k) / 10})
    archive.add(prices=points, markets=[{"market_id": n, "slug": f"slug {n}"} for n in names])
    archive.compact()
    fresh = again(archive)
    for i, one in enumerate(names):
        assert fresh.prices(f"slug {one}")["price"].to_list() == [i / 10]
        assert fresh.scan("prices", one).collect()["price"].to_list() == [i / 10]
    assert len(data_files(fresh, "prices")) == 1
    fresh.add(prices=coded_series(tokens, codes, ts, {"price": np.full(k, 0.9)}))
    assert again(archive).scan("prices").collect()["price"].to_list() == [0.9] * k
    assert fresh.verify().is_empty()


def test_a_token_of_two_markets_needs_its_market(archive: Archive) -> None:
    """Short ids are used again: without a market_id such rows are refused, with it each market has its own."""
    pair = [{"market_id": m, "token_ids": ["1"], "token_labels": ["Yes"]} for m in ("a", "b")]
    archive.add(markets=pair)
    frame = pl.DataFrame({"ts": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "token_id": ["1"], "price": [0.5]})
    with pytest.raises(ArchiveError, match="market_id"):
        archive.add(prices=frame)
    archive.add(prices=pl.concat([frame.with_columns(market_id=pl.lit(m)) for m in ("a", "b")]))
    assert archive.prices(["a", "b"])["market_id"].to_list() == ["a", "b"]


def test_reads_of_provisional_and_unverified_ranges_say_so(archive: Archive) -> None:
    """They warn, raise or are silent as for missing ranges; recorded ranges are read without a word."""
    source = Source()
    source.points = {("prices", M, 0, n): 0.5 for n in range(100)}
    source.now = START + 50 * MINUTE
    archive.pull(source, M, views=["prices"], start=START / 1e6, end=START / 1e6 + 3600)
    with pytest.warns(PartialCoverageWarning, match="provisional"):
        assert archive.prices(M).height == 51
    with pytest.raises(md.errors.NotArchivedError, match="provisional"):
        archive.prices(M, on_missing="raise")
    assert archive.prices(M, on_missing="partial").height == 51
    assert archive.prices(M, START / 1e6, START / 1e6 + 600).height == 10
    source.proves_its_end = False
    archive.pull(source, M, views=["metrics"], start=START / 1e6, end=START / 1e6 + 600)
    with pytest.warns(PartialCoverageWarning, match="unverified"):
        archive.metrics(M)
    archive.add(prices=prices(N, 0, 10))
    assert archive.prices(N).height == 10


def test_a_list_of_markets_is_read_where_one_has_nothing(archive: Archive) -> None:
    """It is left out with a warning, or without one; alone, or if all is required, it is an error."""
    archive.add(prices=prices(M, 0, 10), markets=[{"market_id": N, "slug": "other"}])
    alone = archive.prices(M)
    assert archive.prices([N, M], on_missing="partial").equals(alone)
    with pytest.warns(PartialCoverageWarning, match="1 of 2 markets"):
        assert archive.prices([N, M]).equals(alone)
    for asked, how in (([N, M], "raise"), ([N], "partial"), (N, "partial")):
        with pytest.raises(NotArchivedError, match="no prices of market"):
            archive.prices(asked, on_missing=how)  # type: ignore[arg-type]


def test_nothing_is_missing_where_a_market_was_not_active(archive: Archive) -> None:
    """Before its start and after its end a read is silent; a gap between them is named."""
    times = (START - 30 * MINUTE, START + 10 * MINUTE)
    first, last = (dt.datetime.fromtimestamp(t / 1e6, dt.UTC) for t in times)
    life = {"start_date": first, "end_date": last}
    archive.add(markets=[{"market_id": M, "status": "resolved", **life}], prices=prices(M, 0, 10))
    day = START / 1e6 - 1800, START / 1e6 + 86_400
    archive.add(prices=prices(M, -30, 30))
    assert archive.prices(M, day[0] - 3600, day[1]).height == 40
    archive.add(markets=[{"market_id": M, "status": "open", **life}])
    with pytest.warns(PartialCoverageWarning, match="missing"):
        archive.prices(M, *day)


def test_one_warning_tells_of_all_markets(archive: Archive) -> None:
    """A read of many markets of which parts are missing warns once, with their number and one of them."""
    for k in range(5):
        rows = prices(M, 0, 10)
        archive.add(prices=rows.grouped([t._replace(market_id=f"m{k}") for t in rows.tokens], rows.token))
    for chosen in (None, [f"m{k}" for k in range(5)]):
        with pytest.warns(PartialCoverageWarning, match="Of 5 of 5 markets not all") as said:
            archive.prices(chosen, START / 1e6, START / 1e6 + 3600)
        assert len(said) == 1


@pytest.mark.fault("FR7")
def test_means_of_an_archive_weigh_as_much_as_their_points(archive: Archive) -> None:
    """A frame as it was read is averaged by its counts, without a word; another one with a warning."""
    archive.add(prices=prices(M, 0, 400), metrics=md.testing.metrics().assign(market_id=M))
    archive.add(prices=prices(M, 5, 1, value=1.0))
    for frame in ("pandas", "polars"):
        read = Archive(archive.location, frame=frame)  # type: ignore[call-overload]
        fine, hour = (read.prices(M, resolution=width) for width in ("5m", "1h"))
        assert list(fine.columns) == list(hour.columns)
        got = fine.md.resample("1h")
        assert list(got["price"]) == pytest.approx(list(hour["price"]))
        assert sum(got["price_count"]) == 400
        with pytest.warns(md.errors.UnweightedMeanWarning):
            md.resample(fine[1:], "1h")


def test_the_states_of_coverage_are_those_of_the_docs() -> None:
    """Guide, glossary, page of numbers, chart and docstring name every state, and the guide has its rule."""
    root = Path(__file__).parents[2]
    guide, glossary, numbers, decisions = (
        (root / "docs" / name).read_text(encoding="utf-8")
        for name in ("guides/archive.md", "glossary.md", "numbers.md", "decisions.md")
    )
    for state, rule in STATES.items():
        assert f"| `{state}` | {rule.meaning} | {rule.asked} |" in guide
        assert f"`{state}`" in numbers
        assert f"\n{state}\n" in glossary
        if state != "missing":  # which is never stored
            assert f"`{state}`" in decisions
            assert state in (Archive.coverage.__doc__ or "")
        assert state in coverage_chart._STATES


def test_without_a_market_all_are_read(archive: Archive) -> None:
    """All markets with points of the view, in a range those that have some there; without any it is an error."""
    archive.add(prices=prices(M, 0, 10))
    archive.add(prices=prices(N, 20, 10), markets=[{"market_id": "empty", "slug": "empty"}])
    assert archive.prices().equals(archive.prices([M, N]))
    start = (START + 20 * MINUTE) / 1e6
    assert archive.prices(start=start, end=start + 600).equals(archive.prices(N))
    for view in (archive.books, archive.metrics):
        with pytest.raises(NotArchivedError, match="are stored"):
            view()
