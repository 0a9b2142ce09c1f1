"""Fill an archive from a service: ask only for what is missing, keep what has come, whatever happens."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from marketdata.archive import records
from marketdata.archive.asking import SETTLE_WITHOUT_CLOCK, Clock, Gap, established, minutes, to_ask, whole_minutes
from marketdata.archive.coverage import Claim, CoverageState
from marketdata.archive.holdings import Holdings
from marketdata.archive.leases import lease
from marketdata.archive.progress import Bar
from marketdata.archive.reading import Frame, checked_markets, frame_of
from marketdata.archive.records import Record
from marketdata.errors import ConfigError, MarketDataError, NotFoundError
from marketdata.times import SECOND, Range, to_datetime, to_micros, to_text
from marketdata.wire.columns import AnyColumns, BookColumns, View, concat, empty

_BATCH_LEVELS = 500_000
_BATCH_SECONDS = 10.0
# A market of more tokens than a page has points is asked token by token (interface 8).
_WIDE = 200
_DAY = 86_400 * SECOND
_LISTED_AGAIN = 3_600 * SECOND
_DISCOVERY = "discovery"


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
        self, holdings: Holdings, client: Any, *, dry_run: bool, refresh: bool, wait: float, progress: bool | None
    ) -> None:
        self._holdings = holdings
        self._client = client
        self._dry_run = dry_run
        self._refresh = refresh
        self._wait = wait
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._clock: Clock | None = None
        self.asked: list[Asked] = []

    def run(self, markets: Sequence[str], views: Sequence[View], wanted: Range) -> None:
        """Fill the gaps of these markets [ids]."""
        todo = [(v, m, gaps) for m in markets for v in views if (gaps := self._gaps(v, m, wanted))]
        if self._dry_run:
            for view, market, some in todo:
                for gap in some:
                    self.asked.append(Asked(view, market, gap.range, CoverageState.MISSING, None))
            return
        with Bar(sum(minutes(some) for *_, some in todo), shown=self._progress) as bar:
            for view, market, some in todo:
                with lease(self._holdings.root, view, market, self._wait):
                    # Another process may have filled it while this one waited.
                    now_missing = self._gaps(view, market, wanted)
                    bar.update(max(0, minutes(some) - minutes(now_missing)))
                    for gap in self._bounded(market, now_missing):
                        bar.say(f"{view} {market[:24]}")
                        self._fetch(view, market, gap, bar)

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        pieces = self._holdings.ledger.pieces(view, market)
        # The server is asked for its time only when there may be something to ask.
        late = Clock(max(time.time_ns() // 1000, wanted.end))
        if self._clock is None and not to_ask(pieces, wanted, late, refresh=self._refresh):
            return []
        return to_ask(pieces, wanted, self.clock, refresh=self._refresh)

    def _bounded(self, market: str, some: Iterable[Gap]) -> Iterator[Gap]:
        """Gaps of wide markets day by day: they are kept only when all their tokens have come."""
        record = self._holdings.catalog["markets"].find(market) or {}
        if len(record.get("tokens", ())) <= _WIDE:
            yield from some
            return
        for gap in some:
            for start in range(gap.start, gap.end, _DAY):
                yield gap._replace(start=start, end=min(start + _DAY, gap.end))

    @property
    def clock(self) -> Clock:
        """The server's clock, asked once."""
        if self._clock is None:
            self._clock = server_clock(self._client)
        return self._clock

    def _fetch(self, view: View, market: str, gap: Gap, bar: Bar) -> None:
        batch = _Batch(view, gap)
        try:
            for request, done, columns, proven in self._client.iter_columns(view, market, gap.range, resolution="1m"):
                batch.take(request, done, columns, proven=proven)
                if batch.is_full:
                    self._keep(view, market, batch, bar)
            batch.close()
        finally:
            self._keep(view, market, batch, bar)

    def _keep(self, view: View, market: str, batch: _Batch, bar: Bar) -> None:
        for done, columns, proven in batch.flush():
            for claim in established(done, columns.ts, self.clock, proven=proven, tries=batch.gap.tries):
                part = columns.between(claim.start, claim.end)
                self._holdings.store(
                    view,
                    part,
                    {market: claim.range},
                    claim.state,
                    tries={market: claim.tries},
                    fetched_at=self.clock.now,
                )
                self.asked.append(Asked(view, market, claim.range, claim.state, len(part)))
            bar.update((done.end - done.start) // (60 * SECOND))


class _Batch:
    """What has come and is not stored yet: pieces of time that follow each other, and their points."""

    def __init__(self, view: View, gap: Gap) -> None:
        self.gap = gap
        self._view: View = view
        self._wide: bool | None = None
        self._parts: list[AnyColumns] = []
        self._done: list[tuple[Range, bool]] = []
        self._levels = 0
        self._since = time.monotonic()

    def take(self, request: Any, done: Range, columns: AnyColumns, *, proven: bool) -> None:
        """Points, and the stretch of a request that is now complete."""
        self._parts.append(columns)
        self._levels += len(columns.levels) if isinstance(columns, BookColumns) else len(columns)
        if request.kind != "token":
            self._complete(done, proven=proven)
        else:
            # A wide market is asked token by token, so no stretch is complete before the last token came.
            self._wide = proven and self._wide is not False

    def close(self) -> None:
        """Everything that was asked has come."""
        if self._wide is not None:
            self._complete(self.gap.range, proven=self._wide)
            self._wide = None

    def _complete(self, done: Range, *, proven: bool) -> None:
        start, end = max(done.start, self.gap.start), min(done.end, self.gap.end)
        if start >= end:
            return
        if self._done and self._done[-1][0].end == start and self._done[-1][1] == proven:
            self._done[-1] = (Range(self._done[-1][0].start, end), proven)
        else:
            self._done.append((Range(start, end), proven))

    @property
    def is_full(self) -> bool:
        """Whether it is worth a commit."""
        if self._wide is not None:
            return False
        return self._levels >= _BATCH_LEVELS or time.monotonic() - self._since >= _BATCH_SECONDS

    def flush(self) -> Iterator[tuple[Range, AnyColumns, bool]]:
        """What is done, with its points; points of what is not done stay."""
        done, self._done = self._done, []
        if not done:
            return
        every = concat(self._parts) if self._parts else empty(self._view)  # type: ignore[type-var]
        every = every.sort()
        rest = every
        for one, proven in done:
            yield one, every.between(*one), proven
            rest = rest.take(((rest.ts < one.start) | (rest.ts >= one.end)).nonzero()[0])
        self._parts = [rest] if len(rest) else []
        self._levels = len(rest)
        self._since = time.monotonic()


def server_clock(client: Any) -> Clock:
    """The server's time; without it the local one, and nothing of the last day is believed to be settled."""
    try:
        # The Date of an answer is the server's clock; what health says may have been written into it long ago.
        told = client.server_time() if hasattr(client, "server_time") else None
        return Clock(to_micros(client.health()["timestamp"] if told is None else told, "timestamp"))
    except (MarketDataError, KeyError, TypeError):
        return Clock(time.time_ns() // 1000, SETTLE_WITHOUT_CLOCK)


def chosen(
    holdings: Holdings,
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
        return list(dict.fromkeys(_market(holdings, client, name) for name in names))
    events = [event] if event is not None else _events(holdings, client, str(series), refresh=refresh)
    found = list(dict.fromkeys(m for e in events for m in _markets(holdings, client, e, refresh=refresh)))
    if not found:
        what = f"event={event!r}" if event is not None else f"series={series!r}"
        raise NotFoundError(
            f"The service lists no market of {what}.",
            argument="event",
            hint="client.events() and client.series() show the slugs.",
        )
    return found


def _market(holdings: Holdings, client: Any, name: str) -> str:
    known = holdings.catalog["markets"].find(name)
    if known is None:
        known = records.market(records.plain(client.market(name)))
        markets, events = holdings.catalog["markets"], holdings.catalog["events"]
        markets.upsert([known])
        events.upsert(records.derive_events([known], markets.records(), events.records()))
    return str(known["id"])


def _events(holdings: Holdings, client: Any, series: str, *, refresh: bool) -> list[str]:
    catalog = holdings.catalog["events"]
    if refresh or not _is_listed(holdings, f"series:{series}"):
        found = [records.event(row) for row in records.rows_of(client.events(series_slug=series))]
        catalog.upsert([{**e, "series_slug": e.get("series_slug") or series} for e in found])
        if found:
            _mark_listed(holdings, f"series:{series}")
    return [str(e["slug"]) for e in catalog.records() if e.get("series_slug") == series and e.get("slug")]


def _markets(holdings: Holdings, client: Any, event: str, *, refresh: bool) -> list[str]:
    catalog = holdings.catalog["markets"]
    if refresh or not _is_listed(holdings, f"event:{event}"):
        found = [records.market(row) for row in records.rows_of(client.markets(event_slug=event))]
        named = [{**m, "event_slug": m.get("event_slug") or event} for m in found]
        catalog.upsert(named)
        holdings.catalog["events"].upsert(_unknown_events(holdings, named))
        if found:
            _mark_listed(holdings, f"event:{event}")
    return [str(m["id"]) for m in catalog.records() if m.get("event_slug") == event]


def _unknown_events(holdings: Holdings, markets: Iterable[Mapping[str, Any]]) -> list[Record]:
    events = holdings.catalog["events"]
    derived = records.derive_events([dict(m) for m in markets])
    return [e for e in derived if events.find(e["id"]) is None and events.find(str(e["slug"])) is None]


def _is_listed(holdings: Holdings, what: str) -> bool:
    now = time.time_ns() // 1000
    return any(now - p.fetched_at < _LISTED_AGAIN for p in holdings.ledger.pieces(_DISCOVERY, what))


def _mark_listed(holdings: Holdings, what: str) -> None:
    now = time.time_ns() // 1000
    claim = Claim(0, 1, CoverageState.FINAL, None, None, now, 0)
    holdings.ledger.append({(_DISCOVERY, what): [claim]})


def wanted_range(start: Any, end: Any) -> Range:
    """The range to fill, in whole minutes; without an end, up to now by the local clock."""
    first = to_micros(start, "start")
    last = time.time_ns() // 1000 if end is None else to_micros(end, "end")
    if first >= last:
        shown = f"the present ({to_text(last)})" if end is None else f"the end, {to_text(last)}"
        problem = f"is not before {shown}; the start is inclusive and the end exclusive."
        raise ConfigError(problem, argument="start", value=start)
    return whole_minutes(Range(first, last))


def asked_frame(asked: Iterable[Asked], frame: Frame) -> Any:
    """What was asked, as a frame."""
    columns = {"view": "text", "market_id": "text", "start": "time", "end": "time", "state": "text", "rows": "count"}
    rows = [
        (a.view, a.market_id, to_datetime(a.range.start), to_datetime(a.range.end), a.state.value, a.rows)
        for a in asked
    ]
    return frame_of(rows, columns, frame)
