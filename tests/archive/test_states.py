"""States of coverage: the table of the guide, event by event, and sets of minutes through any order of events."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from archive.source import MARKETS, MINUTE, START, TOKENS, Source, columns_of, without_notes
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from marketdata.archive import Archive
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.storage.tables import Table

M = MARKETS[0]
# On the grid of ten minutes.
FIRST = -START // MINUTE % 60
DAY = 1440
GUIDE = Path(__file__, "../../../docs/guides/archive.md").resolve().read_text(encoding="utf-8")


class Writer:
    """An archive of prices and its source, whose clock is set to so many minutes after the first one."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder
        self.archive = Archive(folder, frame="polars")
        self.source = Source()
        self.source.page = 10_000

    def has(self, minutes: range, tokens: int = 1) -> None:
        """What the source has from now on."""
        self.source.points = {("prices", M, t, FIRST + n): 0.25 for n in minutes for t in range(tokens)}

    def pull(self, now: int, minutes: range = range(1), **more: Any) -> None:
        self.source.now = START + (FIRST + now) * MINUTE
        start, end = ((START + (FIRST + n) * MINUTE) / 1e6 for n in (minutes.start, minutes.stop))
        self.archive.pull(self.source, M, views=["prices"], start=start, end=end, progress=False, **more)

    def add(self, minutes: range = range(1), tokens: int = len(TOKENS[M]), **more: Any) -> None:
        keys = [(t, FIRST + n) for t in range(tokens) for n in minutes]
        self.archive.add(prices=columns_of("prices", M, keys, [0.5] * len(keys)), **more)

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Points are written and not committed, as if the process had ended."""

        def commit(table: Table, *args: Any, **more: Any) -> Any:
            if table.uri.endswith("prices"):
                raise InterruptedError
            return real(table, *args, **more)

        real = Table.commit
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(InterruptedError):
            patch.setattr(Table, "commit", commit)
            yield
        self.archive = Archive(self.folder, frame="polars")

    def damage(self, table: str) -> None:
        if table == "coverage":
            self.archive._store.coverage.fold(["prices"])
            without_notes(self.archive.location)
        for path in Path(self.folder, table).glob("*.parquet"):
            path.write_bytes(bytes(len(path.read_bytes())))
        self.archive = Archive(self.folder, frame="polars")
        self.archive.verify(repair=True)

    def states(self) -> dict[int, str]:
        """The state of each minute that has one."""
        out = {}
        for r in self.archive._store.coverage.records("prices", M):
            first, last = ((at - START) // MINUTE - FIRST for at in r.range)
            out |= dict.fromkeys(range(first, last), str(r.state))
        return {n: state for n, state in out.items() if state != "missing"}


def unproven(w: Writer, minutes: range = range(1)) -> None:
    w.has(minutes)
    w.source.proves_its_end = False
    w.pull(DAY, minutes)
    w.source.proves_its_end = True


def pulled(w: Writer, now: int, has: range = range(1), **more: Any) -> None:
    w.has(has)
    w.pull(now, **more)


def interrupted(w: Writer) -> None:
    with w.interrupted():
        w.add()


STATES: dict[str, Callable[[Writer], None]] = {
    "missing": lambda w: None,
    "provisional": lambda w: pulled(w, 1),
    "recorded": lambda w: w.add(tokens=1),
    "unproven": unproven,
    "final": lambda w: pulled(w, 60),
}
EVENTS: dict[str, Callable[[Writer], None]] = {
    "add": lambda w: w.add(),
    "add of a coarse grid": lambda w: w.add(range(0, 120, 10)),
    "add(complete=True)": lambda w: w.add(complete=True),
    "pull, the service has the points": lambda w: pulled(w, 60),
    "pull, it has them but they are younger than ten minutes": lambda w: pulled(w, 2),
    "pull, it has none, near now": lambda w: pulled(w, 60, range(0)),
    "pull, it has none, a week later": lambda w: pulled(w, 8 * DAY, range(0)),
    "pull, the end of its pages is not shown": unproven,
    "pull(refresh=True), it has none, near now": lambda w: pulled(w, 60, range(0), refresh=True),
    "a write of further points that is interrupted": interrupted,
    "verify(repair=True), its files are damaged": lambda w: w.damage("prices"),
    "verify(repair=True), the coverage is damaged": lambda w: w.damage("coverage"),
}
CELLS = [
    re.split(r" *\| *", line.replace("`", "").strip("| ")) for line in GUIDE.partition("| event |")[2].splitlines()
]
TABLE = {row[0]: row[1:] for row in CELLS[2 : 2 + len(EVENTS)]}


def test_the_guide_has_each_state_and_event() -> None:
    """A row per state with its sentence, and one per event."""
    assert CELLS[0] == list(STATES)
    assert list(TABLE) == list(EVENTS)
    assert len(CELLS[2 + len(EVENTS)]) == 1
    assert set(STATES) == set(CoverageState)
    for state in STATES:
        assert f"\n| `{state}` | " in GUIDE


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.filterwarnings("ignore::marketdata.PartialCoverageWarning")
def test_an_event_makes_the_state_that_the_guide_says(event: str, state: str, tmp_path: Path) -> None:
    """Of a minute in each state, with a point unless it is missing."""
    writer = Writer(tmp_path / "a")
    STATES[state](writer)
    assert writer.states().get(0, "missing") == state
    EVENTS[event](writer)
    wanted = TABLE[event][list(STATES).index(state)]
    assert writer.states().get(0, "missing") == wanted
    assert writer.archive.verify().is_empty()


SPANS = st.tuples(st.integers(0, 100), st.integers(1, 40)).map(lambda span: range(span[0], sum(span)))


class StateMachine(RuleBasedStateMachine):
    """A source with a point in each minute; coverage beside a set of minutes for each state."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.writer = Writer(Path(self.root, "a"))
        self.writer.has(range(200), len(TOKENS[M]))
        self.now = 20
        self.model: dict[str, set[int]] = {state: set() for state in STATES if state != "missing"}

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def put(self, state: str, minutes: set[int]) -> None:
        for some in self.model.values():
            some.difference_update(minutes)
        self.model[state] |= minutes

    @rule(minutes=st.integers(1, 60))
    def wait(self, minutes: int) -> None:
        """The server's clock goes on."""
        self.now += minutes

    @rule(span=SPANS, proven=st.booleans(), refresh=st.booleans())
    def pull(self, span: range, proven: bool, refresh: bool) -> None:
        """What is not final is fetched, up to the open minute, and is final ten minutes after its time."""
        self.writer.source.proves_its_end = proven
        self.writer.pull(self.now, span, refresh=refresh)
        asked = {n for n in span if n <= self.now and (refresh or n not in self.model["final"])}
        self.put("final" if proven else "unproven", {n for n in asked if n < self.now - 10})
        self.put("provisional" if proven else "unproven", {n for n in asked if n >= self.now - 10})

    @rule(span=SPANS)
    def add(self, span: range) -> None:
        """What was final or recorded stays so."""
        self.writer.add(span)
        self.put("recorded", set(span) - self.model["final"])

    @rule(span=SPANS)
    def complete(self, span: range) -> None:
        """All that is between the first and the last minute is final."""
        self.writer.add(span, complete=True)
        self.put("final", set(span))

    @rule(span=SPANS)
    def interrupted(self, span: range) -> None:
        """Everything is as it was."""
        with self.writer.interrupted():
            self.writer.add(span)

    @rule()
    def compact(self) -> None:
        self.writer.archive.compact()

    @rule()
    def open_again(self) -> None:
        self.writer.archive = Archive(self.writer.folder, frame="polars")

    @invariant()
    def is_the_model(self) -> None:
        """Each minute is in the state that the sets say, and no other has one."""
        found = self.writer.states()
        assert {state: {n for n, s in found.items() if s == state} for state in self.model} == self.model
        assert self.writer.archive.verify().is_empty()


TestStates = StateMachine.TestCase
TestStates.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)


def test_points_added_beside_others_leave_their_count(tmp_path: Path) -> None:
    """Of a provisional range into which points are added, what is left on both sides says how many points it has."""
    source = Source()
    source.now = START + 30 * MINUTE
    source.points |= {("prices", M, token, minute): 0.5 for token in range(2) for minute in range(1, 10)}
    source.now += 600 * MINUTE
    source.cut_after, source.page = None, 30
    archive = Archive(tmp_path, frame="polars")
    archive.pull(source, M, views=["prices"], start=START / 1e6, end=START / 1e6 + 3600, progress=False)
    archive.add(prices=columns_of("prices", M, [(0, 5), (1, 5)], [0.4, 0.4]))
    records = archive._store.coverage.records("prices", M)
    minutes = [((r.start - START) // MINUTE, (r.end - START) // MINUTE, str(r.state), r.rows) for r in records]
    assert minutes == [(0, 5, "provisional", 8), (5, 6, "recorded", 2), (6, 60, "provisional", 8)]
