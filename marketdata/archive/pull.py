"""Fill an archive from a service: ask only for what is missing, keep what has come, whatever happens."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from marketdata.archive import records
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, Interval
from marketdata.archive.coverage.policy import (
    SETTLE_WITHOUT_CLOCK,
    Clock,
    Gap,
    established,
    minutes,
    to_ask,
    whole_minutes,
)
from marketdata.archive.query import FrameName, checked_markets, frame_of
from marketdata.archive.records import Record
from marketdata.archive.storage.locks import lock
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError, MarketDataError, NotFoundError
from marketdata.times import SECOND, Range, to_datetime, to_micros, to_text
from marketdata.wire.columns import AnyColumns, BookColumns, Ints, View, concat

_BATCH_LEVELS = 2_000_000
_BATCH_SECONDS = 3.0
_LISTED_AGAIN = 600 * SECOND
_DISCOVERY = "discovery"
# Of so many views of markets two processes do not fetch the same: a lock each. Of more they may; no point is doubled.
_LOCKED = 64
_WAIT = 600.0


class Asked(NamedTuple):
    """One range that was, or would be, asked for."""

    view: View
    market_id: str
    range: Range
    state: CoverageState
    rows: int | None


class Pull:
    """One run over some markets and views."""

    def __init__(
        self, store: ArchiveStore, client: Any, *, dry_run: bool, refresh: bool, progress: bool | None
    ) -> None:
        self._store = store
        self._client = client
        self._dry_run = dry_run
        self._refresh = refresh
        self._progress = progress
        self._clock: Clock | None = None
        self.asked: list[Asked] = []

    def run(self, markets: Sequence[str], views: Sequence[View], wanted: Range) -> None:
        """Fill the gaps of these markets, as `chosen` names them.

        Raises
        ------
        NotFoundError
            If the service does not know one of them; the others are filled before.
        """
        catalog = self._store.catalog["markets"]
        unknown = [m for m in markets if catalog.find(m) is None]
        todo = [(v, m, gap) for m in markets if m not in unknown for v in views for gap in self._gaps(v, m, wanted)]
        if self._dry_run:
            self.asked += [Asked(view, m, gap.range, CoverageState.MISSING, None) for view, m, gap in todo]
        elif todo:
            with contextlib.ExitStack() as stack:
                wanted_by = sorted({(view, m) for view, m, _ in todo})
                for view, m in wanted_by if len(wanted_by) <= _LOCKED else ():
                    name = f"fetching {view} of market {m[:200]!r}"
                    stack.enter_context(lock(self._store.root, f"{view}\x1f{m}", _WAIT, name))
                # Another process may have filled them while this one waited.
                todo = [(v, m, gap) for v, m in dict.fromkeys(t[:2] for t in todo) for gap in self._gaps(v, m, wanted)]
                if todo:
                    self._fill(todo)
        for name in unknown:
            self._client.market(name)  # it was not found before, and says so in the words of the service

    def _fill(self, todo: Sequence[tuple[View, str, Gap]]) -> None:
        from tqdm.auto import tqdm

        total = sum(minutes([gap]) for *_, gap in todo)
        disable = None if self._progress is None else not self._progress
        sink = _Sink(self._store, todo, self.clock)
        arriving = self._client.iter_columns([(view, market, gap.range) for view, market, gap in todo], "1m")
        with tqdm(
            total=total, desc="pull", unit="min", unit_scale=True, leave=False, delay=1.0, disable=disable
        ) as bar:
            try:
                for k, done, columns, proven in arriving:
                    sink.take(k, done, columns, proven=proven)
                    bar.update((done.end - done.start) // (60 * SECOND))
            finally:
                try:
                    sink.commit()
                finally:
                    self.asked += sink.asked

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        pieces = self._store.coverage.pieces(view, market)
        # The server is asked for its time only when there may be something to ask.
        late = Clock(max(time.time_ns() // 1000, wanted.end))
        if self._clock is None and not to_ask(pieces, wanted, late, refresh=self._refresh):
            return []
        return to_ask(pieces, wanted, self.clock, refresh=self._refresh)

    @property
    def clock(self) -> Clock:
        """The server's clock, asked once."""
        if self._clock is None:
            self._clock = server_clock(self._client)
        return self._clock


class _Sink:
    """Windows that came, of any market and view, committed together every few seconds or some levels.

    Coverage is recorded for windows whose points are committed, and only those are given up when the process ends.
    """

    def __init__(self, store: ArchiveStore, todo: Sequence[tuple[View, str, Gap]], clock: Clock) -> None:
        self.asked: list[Asked] = []
        self._store = store
        self._todo = todo
        self._clock = clock
        self._came: dict[View, list[tuple[int, bool, Range, AnyColumns]]] = {}
        self._levels = 0
        self._since = time.monotonic()

    def take(self, k: int, done: Range, columns: AnyColumns, *, proven: bool) -> None:
        """Points of the ``k``-th gap, and the part of it that they are all of."""
        self._came.setdefault(self._todo[k][0], []).append((k, proven, done, columns))
        self._levels += len(columns.levels) if isinstance(columns, BookColumns) else len(columns)
        if self._levels >= _BATCH_LEVELS or time.monotonic() - self._since >= _BATCH_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Store what came."""
        came, self._came, self._levels = self._came, {}, 0
        for view, windows in came.items():
            intervals, asked = [], []
            # Windows that touch are one interval: their border is nothing that the service has said.
            windows.sort(key=lambda w: w[:3])
            for k, proven, done, times in _together(windows):
                _, market, gap = self._todo[k]
                for claim in established(done, times, self._clock, proven=proven, tries=gap.tries):
                    intervals.append(Interval(market, claim.start, claim.end, claim.state, claim.tries))
                    rows = int(((times >= claim.start) & (times < claim.end)).sum())
                    asked.append(Asked(view, market, claim.range, claim.state, rows))
            columns: AnyColumns = concat([w[3] for w in windows]).sort()  # type: ignore[type-var]
            self._store.commit(view, columns, intervals, fetched_at=self._clock.now)
            self.asked += asked
        self._since = time.monotonic()


def _together(windows: Iterable[tuple[int, bool, Range, AnyColumns]]) -> Iterator[tuple[int, bool, Range, Ints]]:
    """Sorted windows, those that touch as one, with the times of their points."""
    for (k, proven), group in itertools.groupby(windows, key=lambda w: w[:2]):
        done, times = Range(0, 0), list[Ints]()
        for _, _, rng, columns in group:
            if times and rng.start != done.end:
                yield k, proven, done, np.concatenate(times)
                times = []
            done = Range(done.start if times else rng.start, rng.end)
            times.append(columns.ts)
        yield k, proven, done, np.concatenate(times)


def server_clock(client: Any) -> Clock:
    """The server's time; without it the local one, and nothing of the last day is believed to be settled."""
    try:
        # The Date of an answer is the server's clock; what health says may have been written into it long ago.
        told = client.server_time() if hasattr(client, "server_time") else None
        return Clock(to_micros(client.health()["timestamp"] if told is None else told, "timestamp"))
    except (MarketDataError, KeyError, TypeError):
        return Clock(time.time_ns() // 1000, SETTLE_WITHOUT_CLOCK)


def chosen(
    store: ArchiveStore,
    client: Any,
    markets: str | Iterable[str] | None,
    event: str | None,
    series: str | None,
    *,
    refresh: bool,
) -> list[str]:
    """Ids of the markets that are meant; records that the archive lacks are asked for and kept.

    Raises
    ------
    ConfigError
        If not exactly one of the three is given.
    NotFoundError
        If the service lists no market of the event or series.
    """
    given = [what for what in (markets, event, series) if what is not None]
    if len(given) != 1:
        raise ConfigError("pull needs exactly one of markets=, event= and series=.")
    if markets is not None:
        names = checked_markets(markets)
        if not names:
            raise ConfigError("markets=[] names nothing; pass an id or slug as text, or a list of them.")
        return _named(store, client, list(dict.fromkeys(names)))
    events = [event] if event is not None else _events(store, client, str(series), refresh=refresh)
    found = list(dict.fromkeys(m for e in events for m in _markets(store, client, e, refresh=refresh)))
    if not found:
        what = f"event={event!r}" if event is not None else f"series={series!r}"
        raise NotFoundError(
            f"The service lists no market of {what}.",
            argument="event",
            hint="client.events() and client.series() show the slugs.",
        )
    return found


def _named(store: ArchiveStore, client: Any, names: Sequence[str]) -> list[str]:
    """Ids of markets; a name that the service does not know stays as it is, and no record is kept of it."""
    markets, events = store.catalog["markets"], store.catalog["events"]
    absent = [name for name in names if markets.find(name) is None]
    if absent:
        found = [records.market(records.plain(row)) for row in client.market_records(absent)]
        markets.upsert(found)
        events.upsert(records.derive_events(found, markets.records(), events.records()))
    known = [(name, markets.find(name)) for name in names]
    return list(dict.fromkeys(str(record["id"]) if record is not None else name for name, record in known))


def _events(store: ArchiveStore, client: Any, series: str, *, refresh: bool) -> list[str]:
    catalog = store.catalog["events"]
    if refresh or not _is_listed(store, f"series:{series}"):
        found = [records.event(row) for row in records.rows_of(client.events(series_slug=series))]
        catalog.upsert([{**e, "series_slug": e.get("series_slug") or series} for e in found])
        if found:
            _mark_listed(store, f"series:{series}")
    return [str(e["slug"]) for e in catalog.records() if e.get("series_slug") == series and e.get("slug")]


def _markets(store: ArchiveStore, client: Any, event: str, *, refresh: bool) -> list[str]:
    catalog = store.catalog["markets"]
    if refresh or not _is_listed(store, f"event:{event}"):
        found = [records.market(row) for row in records.rows_of(client.markets(event_slug=event))]
        named = [{**m, "event_slug": m.get("event_slug") or event} for m in found]
        catalog.upsert(named)
        store.catalog["events"].upsert(_unknown_events(store, named))
        if found:
            _mark_listed(store, f"event:{event}")
    return [str(m["id"]) for m in catalog.records() if m.get("event_slug") == event]


def _unknown_events(store: ArchiveStore, markets: Iterable[Mapping[str, Any]]) -> list[Record]:
    events = store.catalog["events"]
    derived = records.derive_events([dict(m) for m in markets])
    return [e for e in derived if events.find(e["id"]) is None and events.find(str(e["slug"])) is None]


def _is_listed(store: ArchiveStore, what: str) -> bool:
    now = time.time_ns() // 1000
    return any(0 <= now - p.fetched_at < _LISTED_AGAIN for p in store.coverage.pieces(_DISCOVERY, what))


def _mark_listed(store: ArchiveStore, what: str) -> None:
    now = time.time_ns() // 1000
    claim = CoverageRecord(0, 1, CoverageState.FINAL, None, None, now, 0)
    store.coverage.append({(_DISCOVERY, what): [claim]})


def wanted_range(start: Any, end: Any) -> Range:
    """The range to fill, in whole minutes; without an end, up to now by the local clock."""
    first = to_micros(start, "start")
    last = time.time_ns() // 1000 if end is None else to_micros(end, "end")
    if first >= last:
        shown = f"the present ({to_text(last)})" if end is None else f"the end, {to_text(last)}"
        problem = f"is not before {shown}; the start is inclusive and the end exclusive."
        raise ConfigError(problem, argument="start", value=start)
    return whole_minutes(Range(first, last))


def asked_frame(asked: Iterable[Asked], frame: FrameName) -> Any:
    """What was asked, as a frame."""
    columns = {"view": "text", "market_id": "text", "start": "time", "end": "time", "state": "text", "rows": "count"}
    rows = [
        (a.view, a.market_id, to_datetime(a.range.start), to_datetime(a.range.end), a.state.value, a.rows)
        for a in asked
    ]
    return frame_of(rows, columns, frame)
