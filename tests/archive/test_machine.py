"""An archive through everything that happens to it, against a dict of points."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, TOKENS, CutError, Source, columns_of, points_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from reference.object_store import Bucket

from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import CoverageState, covered
from marketdata.archive.reading import Reader
from marketdata.points.views import INTERFACE_VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.service.pages import Pages, Subject
from marketdata.times import Range

# Long enough for holes, of an hour and more.
END = 300
minutes = st.integers(0, END)
markets = st.sampled_from(MARKETS)
views = st.sampled_from(list(INTERFACE_VIEWS))
sides = st.lists(st.tuples(st.floats(0, 1, width=32), st.floats(0, 1e6, width=32)), max_size=3)


def value(view: View, draw: Any) -> Any:
    if view == "books":
        return draw(sides), draw(sides)
    number = st.floats(0, 1, width=32)
    return draw(number) if view == "prices" else (draw(number), draw(number))


class ArchiveMachine(RuleBasedStateMachine):
    """Pull, cut, refresh, add, revise, jump, compact, vacuum, open again, read as a model says."""

    def __init__(self, address: str | None = None, options: dict[str, str] | None = None) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.address, self.options = address or f"{self.folder}/a", options
        self.source = Source()
        self.source.now = START + 30 * MINUTE
        self.model: dict[Any, Any] = {}
        self.own: set[Any] = set()  # points that were added where nothing was final
        self.archive = self.opened()
        self.archive.add(markets=[{"market_id": market} for market in MARKETS])

    def opened(self) -> Archive:
        return Archive(self.address, frame="polars", storage_options=self.options)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(view=views, market=markets, at=minutes, length=st.integers(1, 10), data=st.data())
    def revise(self, view: View, market: str, at: int, length: int, data: st.DataObject) -> None:
        """The source gets or changes points."""
        for n in range(at, min(at + length, END)):
            for token in range(1 if view == "metrics" else len(TOKENS[market])):
                self.source.points[view, market, token, n] = value(view, data.draw)

    @rule(minutes=st.integers(-20, 3000))
    def jump(self, minutes: int) -> None:
        """The server's clock goes on, or back."""
        self.source.now = max(START, self.source.now + minutes * MINUTE)

    @rule(
        view=views, market=markets, at=minutes, length=st.integers(1, END), refresh=st.booleans(),
        cut=st.none() | st.integers(0, 4), page=st.integers(1, 30),
    )  # fmt: skip
    def pull(self, view: View, market: str, at: int, length: int, refresh: bool, cut: int | None, page: int) -> None:
        """Fill a range, perhaps cut midway: then it is what the source had, and what was added beside it."""
        self.source.cut_after, self.source.page = cut, page
        self.source.requests.clear()
        start = START / 1e6
        with contextlib.suppress(CutError):
            self.archive.pull(
                self.source, market, views=[view], start=start + at * 60, end=start + (at + length) * 60,
                refresh=refresh, progress=False,
            )  # fmt: skip
        spans = [(r.start, r.end) for v, m, r in self.source.asked if (v, m) == (view, market)]
        for a, b in spans:
            inside = range((a - START) // MINUTE, (b - START) // MINUTE)
            for key in [k for k in self.model if k[:2] == (view, market) and k[3] in inside and k not in self.own]:
                del self.model[key]
            self.model |= {k: v for k, v in self.source.points.items() if k[:2] == (view, market) and k[3] in inside}
        assert max((b for _, b in spans), default=0) <= self.source.now + MINUTE

    @rule(view=views, market=markets)
    def pull_all(self, view: View, market: str) -> None:
        """Hours later all is filled, holes and what lies between them."""
        self.jump(10 * 60)
        self.pull(view, market, 0, END, refresh=False, cut=None, page=30)

    @rule(view=views, market=markets, at=minutes, length=st.integers(1, 12), data=st.data())
    def add(self, view: View, market: str, at: int, length: int, data: st.DataObject) -> None:
        """Points from elsewhere replace those of equal token and time."""
        places = range(1 if view == "metrics" else 2)
        points = {(t, n): value(view, data.draw) for t in places for n in range(at, at + length)}
        final = [p for p in self.archive._store.coverage[view].records(market) if p.state == CoverageState.FINAL]
        for key in points:
            if not any(p.start <= START + key[1] * MINUTE < p.end for p in final):
                self.own.add((view, market, *key))
        self.archive.add(**{view: columns_of(view, market, list(points), list(points.values()))})
        self.model |= {(view, market, *k): v for k, v in points.items()}

    @rule()
    def compact(self) -> None:
        """Fewer files, the same points."""
        self.archive.compact()

    @rule()
    def vacuum(self) -> None:
        """No leftovers, the same points."""
        self.archive.vacuum(retention_hours=0)

    @rule()
    def open_again(self) -> None:
        """Another process sees the same."""
        self.archive = self.opened()

    @invariant()
    def equals_the_model(self) -> None:
        """Points are those of the model, coverage knows its rows, and nothing is final beyond the clock."""
        for market in MARKETS:
            for view in INTERFACE_VIEWS:
                want = {k: v for k, v in self.model.items() if k[:2] == (view, market)}
                got = points_of(view, Reader(self.archive).columns(view, market))
                assert {k: _plain(v) for k, v in got.items()} == {k: _plain(v) for k, v in want.items()}
                records = self.archive._store.coverage[view].records(market)
                spans = [((r.start - START) // MINUTE, (r.end - START) // MINUTE) for r in covered(records)]
                assert all(any(a <= k[3] < b for a, b in spans) for k in want)
                # of a range that was cut nobody has counted what is left of it
                counted = [(p.rows, (p.start - START) // MINUTE, (p.end - START) // MINUTE) for p in records]
                assert all(rows == sum(a <= k[3] < b for k in want) for rows, a, b in counted)
                assert all(p.state != CoverageState.MISSING for p in records)
                assert set(served(self.archive, view, market)) == want.keys()

    @invariant()
    def is_proven(self) -> None:
        """Everything reads back as it was written."""
        assert self.archive.verify().is_empty()


def served(archive: Archive, view: View, market: str) -> list[Any]:
    """The points of all pages of a service, each once."""
    pages, out, position = Pages(Reader(archive)), list[Any](), None
    while True:
        subject, wanted = Subject(view, market, None, BucketWidth.of("1m"), 2), Range(START, START + 2 * END * MINUTE)
        page = pages.page(subject, wanted, 7, position)
        for part in page.parts:
            out += points_of(view, part)
        position = page.position
        if position is None:
            assert len(out) == len(set(out))
            return out


def _plain(value: Any) -> Any:
    """Tuples all the way down; a book's sides may be lists."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def run(examples: int, steps: int, where: Callable[[], tuple[str, dict[str, str]]] | None = None) -> None:
    """Let hypothesis run the machine, each time at a new address."""
    bounds = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    run_state_machine_as_test(lambda: ArchiveMachine(*(where() if where else ())), settings=bounds)


@pytest.mark.parametrize(("examples", "steps"), [(3, 10), pytest.param(100, 40, marks=pytest.mark.soak)])
def test_a_folder_holds_what_a_dict_holds(examples: int, steps: int) -> None:
    """After any writes and maintenance a read of a folder gives the points of a dict, and coverage counts them."""
    run(examples, steps)


@pytest.mark.parametrize(("examples", "steps"), [(2, 6), pytest.param(8, 20, marks=pytest.mark.soak)])
def test_an_object_store_holds_what_a_dict_holds(object_store: Bucket, examples: int, steps: int) -> None:
    """After any writes and maintenance a read of an object store gives the points of a dict."""
    run(examples, steps, lambda: (f"s3://history/{uuid.uuid4().hex}", object_store.options))
