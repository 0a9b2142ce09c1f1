"""A commit replaces exactly the points inside its intervals and records what is known of them."""

from __future__ import annotations

import datetime as dt
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from archive.source import MARKETS, MINUTE, START, columns_of, points_of
from archive.test_faults import again, books, held, prices
from coded import coded_books, coded_series
from deltalake.exceptions import DeltaError
from deltalake.table import TableAlterer
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import CoverageRecord
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.storage.commits import link_commit
from marketdata.archive.storage.tables import Table
from marketdata.archive.store import _equal, _places
from marketdata.errors import ArchiveError
from marketdata.points.columns import Data, Token, joined
from marketdata.points.views import View, empty
from marketdata.resolution import BASES
from marketdata.times import Range
from marketdata.wire.arrow import to_table, tokens_of

M, N = MARKETS


def test_intervals_of_several_markets_are_replaced_and_the_rest_stays(archive: Archive) -> None:
    """Several intervals of one market and one of another go in at once; points between them stay as they were."""
    store = archive._store
    archive.add(books=books(M, 0, 30, size=1.0))
    new = joined([books(M, 0, 5, size=2.0), books(M, 20, 5, size=2.0), books(N, 0, 3, size=2.0)])
    final, provisional = CoverageState.FINAL, CoverageState.PROVISIONAL

    def over(first: int, last: int, state: CoverageState) -> CoverageRecord:
        return CoverageRecord(START + first * MINUTE, START + last * MINUTE, state, None, 2**53)

    records = {M: [over(0, 5, final), over(20, 25, provisional)], N: [over(0, 3, provisional)]}
    store.commit("books", new.sort(), records)
    held = archive.columns("books", M).cut(1)
    bids = held.bids.best_size
    sizes = {((int(t) - START) // MINUTE, float(s)) for t, s in zip(held.ts, bids, strict=True)}
    assert sizes == {(k, 2.0 if k < 5 or 20 <= k < 25 else 1.0) for k in range(30)}
    assert len(archive.columns("books", N)) == 6
    states = {(row["market_id"], row["state"]) for row in archive.coverage().to_dicts()}
    assert (N, "provisional") in states
    assert (N, "final") not in states


def test_an_interval_without_points_is_emptied(archive: Archive) -> None:
    """What a final interval holds and the columns do not is removed."""
    archive.add(books=books(M, 0, 10), complete=True)
    record = CoverageRecord(START + 2 * MINUTE, START + 4 * MINUTE, CoverageState.FINAL, None, 2**53)
    archive._store.commit("books", empty("books"), {M: [record]})
    assert [(int(t) - START) // MINUTE for t in archive.columns("books", M).ts] == 2 * [0, 1, 4, 5, 6, 7, 8, 9]


def test_a_write_reads_nothing_of_what_lies_between_its_ranges(archive: Archive) -> None:
    """Following asks again for an hour ago and a week ago: what is damaged between them is of no concern."""
    for day in range(3):
        archive.add(prices=prices(M, day * 1440, 30))
    files = sorted(archive._store.points["prices"].version().files, key=lambda file: file.ts_min)
    path = Path(archive.location, "prices", files[1].path)
    path.write_bytes(bytes(path.stat().st_size))
    ranges = [(START + day * 1440 * MINUTE, START + (day * 1440 + 5) * MINUTE) for day in (0, 2)]
    records = [CoverageRecord(*one, CoverageState.FINAL, None, 2**53) for one in ranges]
    new = joined([prices(M, 0, 5, 0.7), prices(M, 2880, 5, 0.7)]).sort()
    assert archive._store.commit("prices", new, {M: records}) == 0
    found = archive.columns("prices", M, Range(ranges[1][0], ranges[1][0] + 30 * MINUTE))
    assert sorted(found.values["price"].tolist()) == [0.5] * 25 + [0.7] * 5


@pytest.mark.parametrize("view", ["books", "prices"])
def test_points_that_are_there_already_stay_in_their_files(archive: Archive, view: View) -> None:
    """Equal points that come again, from the service or by hand, write no file; what is known of them is recorded."""
    store, make = archive._store, (books if view == "books" else prices)
    whole, later = make(M, 0, 30), make(M, 30, 10)
    tokens = len(whole) // 30
    archive.add(**{view: whole})
    files, was = archive.files(view), held(archive, view)
    archive.add(**{view: whole})
    archive.add(**{view: whole}, replace=True)
    assert archive.version(view) == 1
    hour = {M: [CoverageRecord(START, START + 60 * MINUTE, CoverageState.FINAL, None, 2**53)]}
    assert store.commit(view, whole, hour) == 0
    assert archive.files(view) == files
    assert held(archive, view) == was
    assert archive.version(view) == 2
    assert [(row["state"], row["rows"]) for row in archive.coverage().to_dicts()] == [("final", 30 * tokens)]
    # What is new is a file beside them; where one has another value or is gone, the others of its file stay.
    assert store.commit(view, joined([whole, later]).sort(), hour) == 10 * tokens
    assert set(files) < set(archive.files(view))
    less = joined([whole.between(START, START + 10 * MINUTE), later]).sort()
    assert store.commit(view, less, hour) == -20 * tokens
    assert held(archive, view) == points_of(view, less)
    assert len(archive.files(view)) == 2
    assert archive.verify().is_empty()


def drawn(draw: st.DrawFn, view: View) -> Data:
    """Some points of three tokens in tidy order, with labels and values of which many are equal, and missing ones."""
    labels = draw(st.tuples(*3 * [st.sampled_from(["Yes", "No", None])]))
    tokens = [Token(M, "1", labels[0]), Token(M, "2", labels[1]), Token(N, "1", labels[2]), Token(N, None, "Maybe")]
    rows = sorted(draw(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1)))
    numbers = st.sampled_from([0.0, -0.0, 0.25, 0.5])
    code = np.array([token for token, _ in rows], np.int32)
    ts = np.array([START + minute * MINUTE for _, minute in rows], np.int64)
    if view == "books":
        counts = draw(arrays(np.int64, 2 * len(rows), elements=st.integers(0, 2)))
        levels = draw(arrays(np.float64, (int(counts.sum()), 2), elements=numbers))
        return coded_books(tokens, code, ts, counts, levels).sort()
    names = ["price", *draw(st.sets(st.sampled_from(["own", "other"])))]
    values = st.one_of(numbers, st.just(np.nan))
    return coded_series(
        tokens, code, ts, {name: draw(arrays(np.float64, len(rows), elements=values)) for name in names}
    ).sort()


@given(data=st.data(), view=st.sampled_from(["books", "prices"]))
def test_which_stored_points_are_equal_to_new_ones(data: st.DataObject, view: View) -> None:
    """Those that a loop over rows finds: of one token, label and time, with every number equal or missing in both."""
    stored, new = to_table(drawn(data.draw, view)), drawn(data.draw, view)
    tokens, codes = tokens_of(view, stored)
    at = _places(new, BASES["1m"])(tokens, codes, stored["ts"].cast(pa.int64()).to_numpy())
    known = np.flatnonzero(at >= 0)
    rows, other = stored.take(known).to_pylist(), to_table(new).to_pylist()
    expected = [
        all((mine.get(name) == theirs.get(name)) for name in mine.keys() | theirs.keys())
        for mine, theirs in zip(rows, (other[n] for n in at[known]), strict=True)
    ]
    assert _equal(view, stored.take(known), new, at[known]).tolist() == expected


def test_a_point_with_another_value_label_or_column_replaces_the_stored_one(archive: Archive) -> None:
    """Of two hours that come again all but what differs stays as it is."""
    old = columns_of("prices", M, [(0, n) for n in range(120)], [0.5] * 120)
    archive.add(prices=old)
    value = old.values["price"].copy()
    value[7] = 0.75
    archive.add(prices=replace(old, values={"price": value}))
    assert archive.columns("prices", M).values["price"].tolist() == value.tolist()
    named = tuple(token._replace(token_label="Perhaps") for token in old.tokens)
    archive.add(prices=replace(old, values={"price": value}, tokens=named))
    rows = [archive._store.points["prices"].read(file) for file in archive._store.points["prices"].version().files]
    assert [set(some.column("token_label").to_pylist()) for some in rows] == [{"Perhaps"}]
    further = replace(old, values={"price": value, "of_my_own": np.where(value > 0.5, 1.0, np.nan)}, tokens=named)
    archive.add(prices=further)
    found = archive.columns("prices", M).values["of_my_own"]
    assert np.flatnonzero(found == 1.0).tolist() == [7]
    assert len(archive.columns("prices", M)) == 120
    assert archive.verify().is_empty()


def test_equal_points_of_another_writer_are_not_stored_twice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that another writer adds between a plan and its commit are there once, where they are equal too."""
    archive.add(prices=prices(N, 0, 10))
    table, real, calls = Archive(archive.location)._store.points["prices"], Table.commit, itertools.count()

    def commit(self: Table, *args: Any, **kwargs: Any) -> Any:
        if self.uri.endswith("prices") and self is not table and next(calls) == 0:
            table.plan(lambda _: (table.put(to_table(prices(M, 0, 60))), []))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Table, "commit", commit)
    archive.add(prices=prices(M, 0, 90))
    assert len(archive.columns("prices", M)) == 90
    assert archive.coverage().filter(pl.col("market_id") == M)["rows"].to_list() == [90]
    assert archive.verify().is_empty()


@pytest.mark.fault("AR32")
def test_of_many_commits_of_one_number_one_is_made(archive: Archive) -> None:
    """Threads that commit on one version: one wins, the others get an error and leave nothing; the library reads it."""
    from deltalake import DeltaTable

    archive.add(prices=prices(M, 0, 5))
    table = archive._store.points["prices"]
    version, log = table.version(), Path(table.uri, "_delta_log")

    def commit(n: int) -> bool:
        file = version.files[0]._replace(path=f"{n:032x}.parquet")
        try:
            link_commit(log, version.number + 1, [file], version.files, {"n": str(n)}, data_change=True)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = [n for n, is_made in enumerate(threads.map(commit, range(32))) if is_made]
    assert len(won) == 1
    assert not list(log.glob("*#*"))
    handle = DeltaTable(table.uri)
    assert handle.version() == version.number + 1
    assert [Path(path).name for path in handle.file_uris()] == [f"{won[0]:032x}.parquet"]
    assert handle.history(1)[0]["n"] == str(won[0])


def test_what_another_program_asks_of_writers_is_kept(archive: Archive) -> None:
    """A table that is set to be appended to only takes new points, and refuses to drop files."""
    from deltalake import DeltaTable

    archive.add(prices=prices(M, 0, 5))
    DeltaTable(f"{archive.location}/prices").alter.set_table_properties({"delta.appendOnly": "true"})
    archive.add(prices=prices(M, 5, 5))
    with pytest.raises(ArchiveError, match="append"):
        archive.add(prices=prices(M, 0, 5, 0.9))
    assert set(held(archive, "prices").values()) == {0.5}


@pytest.mark.fault("AR36")
def test_a_second_plan_keeps_what_the_first_one_left_of_a_file(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another writer adds between a plan and its commit is replaced beside those of the plan."""
    archive.add(prices=prices(M, 0, 60))
    other, real, calls = Archive(archive.location)._store.points["prices"], Table.commit, itertools.count()

    def commit(self: Table, *args: Any, **kwargs: Any) -> Any:
        if self.uri.endswith("prices") and self is not other and next(calls) == 0:
            rows = to_table(columns_of("prices", M, [(1, n) for n in range(60)], [0.75] * 60))
            other.plan(lambda _: (other.put(rows), []))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Table, "commit", commit)
    new = columns_of("prices", M, [(token, n) for token in (0, 1) for n in range(10)], [0.5] * 20)
    archive.add(prices=new)
    found = archive.columns("prices", M)
    assert len(found) == 120
    assert sorted(set(found.values["price"].tolist())) == sorted({0.5, 0.75, *prices(M, 0, 1).values["price"].tolist()})


def test_a_large_frame_is_added_in_portions(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in any order become points some at a time, and files of whole tokens: the points are those of one write."""
    whole = Archive(tmp_path / "whole", frame="polars")
    whole.add(prices=joined([prices(M, 0, 40), prices(N, 5, 30)]))
    rows = whole.prices([M, N]).sample(fraction=1, shuffle=True, seed=5)
    monkeypatch.setattr("marketdata.archive.ingest._PORTION", 7)
    monkeypatch.setattr("marketdata.archive.store._PORTION", 20)
    archive.add(prices=rows)
    assert held(archive, "prices") == held(whole, "prices")
    assert held(archive, "prices", N) == held(whole, "prices", N)
    assert len(archive.files("prices")) > 1
    assert archive.version("prices") == 1
    assert archive.coverage().drop("fetched_at").equals(whole.coverage().drop("fetched_at"))
    assert archive.verify().is_empty()


def further_metric(minute: int) -> pl.DataFrame:
    """A row of metrics with a column that no table has from the beginning."""
    when = dt.datetime(2026, 1, 1, 0, minute, tzinfo=dt.UTC)
    return pl.DataFrame({"ts": [when], "market_id": ["m"], "volume": [1.0], "open_interest": [2.0]})


def test_a_change_of_columns_that_the_storage_fails_is_tried_once(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the storage is raised at once: only what another commit came before is planned again."""
    archive.add(metrics=further_metric(0).drop("open_interest"))
    calls: list[int] = []

    def fails(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise DeltaError("Generic S3 error: 503 Service Unavailable")

    with monkeypatch.context() as patch:
        patch.setattr("deltalake.table.TableAlterer.add_columns", fails)
        with pytest.raises(ArchiveError, match="503"):
            archive.add(metrics=further_metric(1))
    assert len(calls) == 1
    archive.add(metrics=further_metric(1))
    assert archive.metrics("m")["open_interest"].to_list() == [None, 2.0]


def test_two_writers_that_add_a_column_at_once_both_stay(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes second finds the column there."""
    archive.add(metrics=further_metric(0).drop("open_interest"))
    real, other = TableAlterer.add_columns, [Archive(archive.location)]

    def late(self: TableAlterer, *args: Any, **kwargs: Any) -> None:
        if other:
            store = other.pop()._store.points["metrics"]
            store.add_columns(["open_interest"])
        real(self, *args, **kwargs)

    monkeypatch.setattr(TableAlterer, "add_columns", late)
    archive.add(metrics=further_metric(1))
    assert archive.metrics("m")["open_interest"].to_list() == [None, 2.0]
    assert archive.verify().is_empty()


def test_writers_that_know_ranges_in_other_parts_agree_on_the_numbers(archive: Archive) -> None:
    """Where one writer does not know how many points a range has, another that does learns that there are more."""

    def add(writer: Archive, token: int, first: int, last: int) -> None:
        keys = [(token, n) for n in range(first, last)]
        writer.add(prices=columns_of("prices", M, keys, [0.5] * len(keys)))

    add(archive, 0, 0, 30)
    add(archive, 0, 30, 50)
    again(archive).compact()  # who comes now knows both ranges as one
    add(archive, 1, 30, 50)  # of which they have no number for the rest
    add(again(archive), 1, 0, 15)
    add(archive, 1, 15, 30)
    assert archive.verify().is_empty()
    assert again(archive).verify().is_empty()
    assert len(archive.columns("prices", M)) == 100
