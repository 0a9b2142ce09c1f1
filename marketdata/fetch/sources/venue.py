"""The common part of public interfaces of venues: no key, no plan, a rate for each host, and listings."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from marketdata.clock import SYSTEM
from marketdata.errors import (
    BadRequestError,
    ConfigError,
    ContractError,
    MarketDataError,
    NotFoundError,
    ParameterError,
    ServiceOddityWarning,
    warn,
)
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.rate_limit import pacer_for
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.plans import PlanLimits
from marketdata.fetch.sources import batches
from marketdata.fetch.windows import IdKind, Window
from marketdata.points import candles
from marketdata.points.columns import Books, Data, Ints, Page, Series, Token, Trades, joined
from marketdata.points.probability import no_probability
from marketdata.points.records import names_of, state_of
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, SECOND, Range, first_time, parse_iso
from marketdata.vendors import Service
from marketdata.wire.decode import load

# The name of the host of a venue's stream, to which `marketdata.stream` connects.
STREAM = "stream"
D = TypeVar("D", Books, Series, Trades)
Rows = list[dict[str, Any]]
T = TypeVar("T")
# Filters of records that `passes` knows.
LOCAL_FILTERS = ("category", "tags", "start_date_min", "start_date_max", "end_date_min", "end_date_max",
                 "resolved_at_min", "resolved_at_max")  # fmt: skip
_CURSORS, _MORE = ("cursor", "next_cursor"), ("has_more", "hasMore")
# After so many pages of equal prints alone, a venue is taken to repeat itself for ever.
_ALIKE = 100
# Prints of adjacent pages may be out of order by so much [microseconds].
_DISORDER = MINUTE
_PRICES = ("price", "best_bid", "best_ask")
_ABOUT = ("ticker", "market_ticker")


class Host(NamedTuple):
    """An address of a venue, and a polite share of the requests a minute that it allows."""

    address: str
    rate: int


class Listing(NamedTuple):
    """A page of records; ``is_last`` where it says that none follows, ``about`` the market that it names as a whole."""

    data: Rows
    next_cursor: str | None
    is_last: bool = False
    about: str | None = None


class Venue:
    """A venue with some hosts; ``main`` has its histories. See `Source`. All sources share a host's pacer.

    ``options`` are what a subclass was made with. It has `_tokens`, `_columns` and `_buckets`, from which `pages` is
    made.
    """

    service: Service
    rates: Mapping[str, Host]
    _asks_for_times = True  # of trades; else they are read back from the newest

    def __init__(self, hosts: Mapping[str, str], main: str, *, allow_insecure: bool, **options: str) -> None:
        self._hosts, self._options = dict(hosts), options
        self.to = {
            name: Transport(
                address,
                service=self.service,
                allow_insecure=allow_insecure,
                pacer=pacer_for(f"{name} {address}"),
            )
            for name, address in hosts.items()
            if name != STREAM
        }
        self.stream_address = hosts.get(STREAM)
        for name, transport in self.to.items():
            if not transport.pacer.known:
                transport.pacer.allow(self.rates[name].rate)
        self._main = self.to[main]
        self.base_url, self.pacer = self._main.base_url, self._main.pacer
        self.limits = PlanLimits(requests_per_minute=self.rates[main].rate)
        self._records: dict[str, dict[str, Any]] = {}  # by each of their names
        self._event_markets: dict[str, list[str]] = {}  # names of the markets of events that were named as markets
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy needs no check: its addresses were allowed when the source was made.
        kind: Any = type(self)
        again = partial(kind, allow_insecure=True, **self._options)
        return again, (self._hosts,)

    def pages(
        self, window: Window, report: Report | None = None, stop: threading.Event | None = None
    ) -> Iterator[Page]:
        """The points of a window, as many buckets a page as one answer has."""
        try:
            yield from self._pages_of(window, report, stop)
        except (ContractError, BadRequestError, ParameterError) as error:
            error.market = window.id
            raise

    def _pages_of(self, window: Window, report: Report | None, stop: threading.Event | None) -> Iterator[Page]:
        if window.view not in self.service.views:
            raise self.service.lacks(window.view)
        has_tokens = VIEWS[window.view].has_tokens
        market, tokens = self._tokens(window)
        if window.kind == "token":
            tokens = [token for token in tokens if str(token.token_id).casefold() == window.id.strip().casefold()]
            if not tokens:
                text = f"Token not found: {window.id}"
                hint = f"client.tokens({market!r}) has the tokens of the market of that name."
                raise NotFoundError(text, status=404, detail=text, hint=hint)
        labels = {str(token.token_label): token.token_id for token in tokens if has_tokens}
        parts = self._parts(window)
        for number, part in enumerate(parts or [None], 1):
            columns: Any = self._nothing(window)
            if part is not None:
                columns = self._columns(window, tokens, part, report, stop)
            notes = self._notes(window, columns)
            if has_tokens:
                columns = of_tokens(columns, labels.values())
            prices = [columns.values[name] for name in _PRICES if name in columns.values]
            notes["price_outside_0_1"] = sum(int(no_probability(price).sum()) for price in prices)
            more = str(number) if number < len(parts) else None
            yield Page(
                columns.sort(), market, str(window.resolution), labels, None, None, more, +notes, self.server_time
            )

    def _note_outside(self, ts: Ints, part: Range, width: int, report: Report | None, what: str) -> None:
        """Count the points of an answer that were not asked for; ContractError if there are no others."""
        count = gate.outside(ts, part, width, what, self._now())
        if count and report is not None:
            with self._lock:
                report.note({"outside_range": count})

    def _notes(self, window: Window, columns: Series) -> Counter[str]:  # noqa: ARG002
        """What is to be said of the points of a window."""
        return Counter()

    def _parts(self, window: Window) -> list[Range]:
        """The ranges of the requests for a window; none if its market was not active."""
        width = window.resolution.micros
        whole, span = Range(window.first_bucket, -(-window.rng.end // width) * width), self._buckets(width) * width
        if window.buckets > self._buckets(width):
            whole = self._active_range(self._record_of(window), whole, width)
        return [Range(first, min(first + span, whole.end)) for first in range(whole.start, whole.end, span)]

    def _active_range(self, record: Mapping[str, Any], whole: Range, width: int) -> Range:
        """The buckets of a range from a day before a market opened to a day after it closed."""
        begin, end = whole
        opened = [at for name in ("start_date", "created_at") if (at := first_time(record, name)) is not None]
        closed = first_time(record, "closed_at") if record.get("status") in ("closed", "resolved") else None
        if opened:
            begin = max(begin, (min(opened) - DAY) // width * width)
        if closed is not None:
            end = min(end, -(-(closed + DAY) // width) * width)
        return Range(begin, max(begin, end))

    def _record_of(self, window: Window) -> dict[str, Any]:
        """The record of the market of a window."""
        return self._known(window.id)

    def _tokens(self, window: Window) -> tuple[str, list[Token]]:
        """The id and all tokens of the market of a window, whose name may be the id of a token."""
        raise NotImplementedError

    def _columns(
        self, window: Window, tokens: Sequence[Token], part: Range, report: Report | None, stop: threading.Event | None
    ) -> Series:
        """The points of tokens in a part of a window."""
        raise NotImplementedError

    def _nothing(self, window: Window) -> Series:
        """No points, with the columns that there would be."""
        return cast("Series", empty(window.view))

    def _buckets(self, width: int) -> int:
        """The most buckets of one answer."""
        raise NotImplementedError

    @property
    def latency(self) -> float | None:
        """The smoothed time from request to answer [s]."""
        return self._main.latency

    @property
    def server_time(self) -> float | None:
        """The clock of its hosts [Unix s]: none is ahead of the venue, so the latest is the best."""
        return max((at for to in self.to.values() if (at := to.server_time) is not None), default=None)

    def usage(self) -> dict[str, Any]:
        """There is no plan; the rate is our own."""
        return {"plan": "public", "limits": {"requests_per_minute": self.limits.requests_per_minute}}

    def health(self) -> dict[str, Any]:
        """Whether it answers."""
        self._try()
        return {"status": "ok", "timestamp": self._now() / SECOND}

    def _try(self) -> None:
        """Ask for something small."""
        raise NotImplementedError

    def learn_limits(self) -> None:
        """Known from the start."""

    def close(self) -> None:
        """Close idle connections."""
        for transport in self.to.values():
            transport.close()

    def _known(self, name: str) -> dict[str, Any]:
        """The record of a market by a name that was seen before, without a request."""
        with self._lock:
            known = self._records.get(name)
        return self.record(name) if known is None else known

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market."""
        raise NotImplementedError

    def _refuse_event(self, name: str) -> None:
        """NotFoundError for a name that was found to be that of an event before."""
        if name in self._event_markets:
            raise NotFoundError.from_event(name, self._event_markets[name])

    def _member(self, name: str, members: Sequence[Mapping[str, Any]], named: str) -> Mapping[str, Any]:
        """The answer about the one market of an event that was named in its place; else a NotFoundError lists all.

        ``named`` is the field with their names.
        """
        if len(members) == 1:
            return members[0]
        self._event_markets[name] = [str(one.get(named) or one.get("id")) for one in members]
        raise NotFoundError.from_event(name, self._event_markets[name])

    def records(
        self,
        kind: str,
        filters: Mapping[str, str | None],
        max_rows: int | None = None,
        page_size: int | None = None,
        report: Report | None = None,
    ) -> list[dict[str, Any]]:
        """Records of a listing, each id once."""
        given, most = {name: value for name, value in filters.items() if value is not None}, self.service.listing_page
        states = {*given.pop("state", "").split(",")} - {""}
        if given.pop("include_closed", "true") == "false":
            states = {"open"}
        if not states and given.get("sort") == "volume_24h":  # closed markets have no volume of today
            states = {"open"}
        if not states and {"resolved_at_min", "resolved_at_max"} & given.keys():
            states = {"resolved"}
        if given.get("order") in ("asc", "desc") and "sort" not in given:
            raise ConfigError("needs sort=, which says by what.", argument="order", value=given["order"])
        size = max(1, min(page_size or most, most if max_rows is None else max_rows, most))
        found = self._rows_of(kind, given, size, states)
        with batches.noted() as left_out:
            chosen = distinct(self._wanted(found, size, states) if kind == "markets" else found, max_rows)
            rows = [*map(self._keep, chosen)] if kind == "markets" else chosen
        if report is not None:
            report.leave_out_all(left_out)
        return rows

    def _wanted(self, found: Iterator[dict[str, Any]], size: int, states: set[str]) -> Iterator[dict[str, Any]]:
        """Markets of some states, with what they paid."""
        # No outcome opens a market again, so that none is asked for that of a market which is not wanted.
        over = bool(states - {"open"})
        fit = (row for row in found if not states or (over if state_of(row) != "open" else "open" in states))
        while some := [*itertools.islice(fit, size)]:
            yield from (row for row in self._settled(some) if not states or state_of(row) in states)

    def _rows_of(self, kind: str, given: dict[str, str], size: int, states: set[str]) -> Iterator[dict[str, Any]]:
        """Records of a listing by the filters that are given, by so many a page, at least those of some states.

        They are in the order of ``sort``. No states: those of all.
        """
        raise NotImplementedError

    def _settled(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Records of markets with what they paid, where a listing does not say it."""
        return rows

    def similar(self, name: str) -> Iterator[list[str]]:  # noqa: ARG002
        """None, unless the venue can be asked for them."""
        return iter(())

    def tags(self) -> list[str]:
        """No tags, unless the venue has them."""
        return []

    def trades(self, market: str, rng: Range, kind: IdKind = "market") -> Iterator[Trades]:
        """Prints of a market or a token, each fill once; before an error it yields the prints that arrived."""
        if not self.service.has_trades:
            raise self.service.lacks("trades")
        for _, columns in self.prints(market, rng):
            yield columns if kind == "market" else of_tokens(columns, (market,))

    def prints(self, market: str, rng: Range) -> Generator[tuple[Range, Trades], None, None]:
        """Prints of a market, page after page; see `Source`. What arrived before an error completes nothing."""
        if not self.service.has_trades:
            raise self.service.lacks("trades")
        end, waiting, order = rng.end, list[Trades](), _Order()
        try:
            for rows in self._prints(market, rng):
                order.see([self._trades_of([row]).ts.tolist() for row in (rows[0], rows[-1])] if rows else [])
                page = self._trades_of(rows)
                if self._asks_for_times and gate.outside(page.ts, rng, DAY, f"the trades of {market}"):
                    raise ContractError(f"Some trades of {market} are of times that were not asked for.")
                oldest = int(page.ts.min(initial=end))
                page = page.between(*rng)
                late = page.between(end, rng.end)
                if len(late):
                    yield Range(int(late.ts.min()), int(late.ts.max()) + 1), late
                waiting.append(page.between(rng.start, end))
                begin = max(oldest + _DISORDER, rng.start)
                if order.is_falling and begin < end:
                    every = joined(waiting)
                    waiting = [every.between(rng.start, begin)]
                    yield Range(begin, end), every.between(begin, end)
                    end = begin
        except MarketDataError:
            yield Range(end, end), joined([Trades.empty(), *waiting])
            raise
        yield Range(rng.start, end), joined([Trades.empty(), *waiting])

    def _prints(self, market: str, rng: Range) -> Iterator[Rows]:
        """Pages of prints of a market in the order of arrival, each fill once, with at least all of a range."""
        raise NotImplementedError

    def _trades_of(self, rows: Rows) -> Trades:
        """The prints that rows mean."""
        raise NotImplementedError

    def candles(self, market: str, rng: Range, resolution: BucketWidth, report: Report | None = None) -> Series:
        """Candles of a market, part by part."""
        window = Window("prices", "market", market, rng, resolution)
        found = [self._candles(window, part, report) for part in self._parts(window)]
        return joined(found).between(window.first_bucket, rng.end) if found else candles.none()

    def _candles(self, window: Window, part: Range, report: Report | None) -> Series:  # noqa: ARG002
        """The candles of all tokens of a market that begin in a part of a window."""
        raise self.service.lacks("candles")

    def now(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:
        """The books of tokens; a token that is no longer traded has none."""
        if view not in self.service.live:
            what = f"{self.service.name} has no {view} of this moment; it has {', '.join(self.service.live)}."
            raise ConfigError(what, argument="view")
        return (self._asked_for(books, tokens) for books in self._books(tokens))

    def _asked_for(self, books: Books, tokens: Sequence[str]) -> Books:
        """The books of tokens that were asked for, of the market that has them; a warning counts the others."""
        own = [
            self._records.get(str(one.token_id), {}).get("id", one.market_id) == one.market_id for one in books.tokens
        ]
        wanted = [
            one.token_id for one, is_own in zip(books.tokens, own, strict=True) if is_own and one.token_id in tokens
        ]
        if others := len(books.tokens) - len(wanted):
            what = (
                f"{others} books of {self.service.name} are of tokens or markets that were not asked for, and left out."
            )
            warn(what, ServiceOddityWarning)
        return of_tokens(books, wanted)

    def _books(self, tokens: Sequence[str]) -> Iterator[Books]:
        """The books of tokens at this moment, if the venue has them."""
        raise NotImplementedError

    def _keep(self, record: dict[str, Any], *names: str) -> dict[str, Any]:
        """Remember a record under its names."""
        with self._lock:
            self._records |= dict.fromkeys([*names_of(record), *names], record)
        return record

    def _now(self) -> int:
        """Microseconds by the venue's clock."""
        seconds = self.server_time
        return int((SYSTEM.time() if seconds is None else seconds) * SECOND)

    def _object(self, path: Sequence[str], name: str | None = None, *, host: str | None = None) -> dict[str, Any]:
        """The object that an answer is, or has by a name."""
        return (self.to[host] if host else self._main).get_json(path, None, lambda top: member(top, name))

    def _read(
        self,
        path: Sequence[str],
        name: str,
        params: Mapping[str, Any],
        *counts: Any,
        host: str | None = None,
        bare: bool = False,
    ) -> Listing:
        """The rows ``name`` of an answer, and its cursor; ``counts`` are the report and stop of a fetch."""
        report, stop = counts or (None, None)
        to = self.to[host] if host else self._main
        read = partial(listing, name=name, bare=bare)
        return to.read(path, params, lambda answer: read(load(answer.body)), counts=report, stop=stop)

    def _listed(
        self,
        path: Sequence[str],
        name: str,
        key: str,
        params: Mapping[str, Any],
        *counts: Any,
        host: str | None = None,
        cursor: str = "cursor",
    ) -> Iterator[Rows]:
        """The rows ``name`` of each page of a listing, by its cursor, never by their number; see `_read`."""

        def ask(at: str | None) -> Listing:
            return self._read(path, name, {**params, cursor: at}, *counts, host=host)

        return self._pages(ask, name, key)

    def _print_pages(
        self, path: Sequence[str], name: str, params: Mapping[str, Any], *, host: str | None = None
    ) -> Iterator[Rows]:
        """Pages of prints by their cursor. Prints may be alike, so whole pages tell that nothing new comes."""

        def ask(at: str | None) -> Listing:
            return self._read(path, name, {**params, "cursor": at}, host=host)

        what = f"the {name} of {self.service.name}"
        for page in paginate(ask, lambda page: [hash(str(page.data))] if page.data else [], what, repeats=_ALIKE):
            yield page.data

    def _numbered(
        self, path: Sequence[str], name: str, params: Mapping[str, Any], number: str, first: int, *, host: str
    ) -> Iterator[Rows]:
        """The rows ``name`` of each page of a listing by the ``number`` of a page or an offset, to an empty one."""

        def ask(at: str | None) -> Listing:
            place = first if at is None else int(at)
            page = self._read(path, name, {**params, number: place}, host=host, bare=True)
            following = place + (len(page.data) if number == "offset" else 1)
            return page._replace(next_cursor=str(following) if page.data and not page.is_last else None)

        return self._pages(ask, name, "id")

    def _pages(self, ask: Callable[[str | None], Listing], name: str, key: str) -> Iterator[Rows]:
        """Rows page by page, told apart by their ``key``, or as a whole."""
        what = f"the {name} of {self.service.name}"
        for page in paginate(ask, lambda page: (str(row.get(key, row)) for row in page.data), what):
            yield page.data


class _Order:
    """Whether pages of prints come newest first, by the times of their first and last rows."""

    def __init__(self) -> None:
        self._falls = self._rises = False
        self._last: int | None = None

    @property
    def is_falling(self) -> bool:
        """Whether all that was seen falls."""
        return self._falls and not self._rises

    def see(self, ends: Sequence[Sequence[int]]) -> None:
        """Take in the times of the first and the last row of a page, each one or none."""
        times = [ts for one in ends for ts in one]
        pairs = zip([self._last, *times], times, strict=False)
        for before, ts in pairs:
            if before is not None and abs(ts - before) > 0:
                self._falls |= ts < before
                self._rises |= ts > before + _DISORDER
        self._last = times[-1] if times else self._last


def member(top: Any, name: str | None = None) -> dict[str, Any]:
    """The answer itself, or its object with a name; NotFoundError if there is none."""
    found = top if name is None else top.get(name, "") if isinstance(top, dict) else ""
    if found in (None, [], {}):
        raise NotFoundError("The venue answered with nothing.", status=404)
    if isinstance(found, dict):
        return found
    raise ContractError(f"An answer has no object {name or ''!r}.")


def listing(top: Any, name: str, *, bare: bool = False) -> Listing:
    """The rows of an answer by their name, null for none, and its cursor, if another page follows.

    A page that says how pages go on may have no rows. A ``bare`` answer may be a list; where an object is documented, a
    list without it is no answer that says that there is nothing.
    """
    if isinstance(top, list) and not bare:
        raise ContractError(f"An answer is a list, where an object with {name!r} belongs.")
    rows = (top.get(name) or []) if isinstance(top, dict) and (name in top or "pagination" in top) else top
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ContractError(f"An answer has no list {name!r} of objects.")
    places = [top, top.get("pagination") or {}] if isinstance(top, dict) else []
    is_last = any(str(place.get(one)).lower() == "false" for place in places for one in _MORE)
    cursors = (str(place[one]) for place in places for one in _CURSORS if place.get(one) and not is_last)
    about = next((str(top[one]) for one in _ABOUT if isinstance(top, dict) and top.get(one) is not None), None)
    return Listing(rows, next(cursors, None), is_last, about)


def of_tokens(columns: D, ids: Collection[str | None]) -> D:
    """The entries of some tokens."""
    wanted = [i for i, token in enumerate(columns.tokens) if token.token_id in ids]
    return columns.take(np.flatnonzero(np.isin(columns.token, wanted)))


def unknown_market(name: str) -> NotFoundError:
    """The error for a name that the venue does not have."""
    hint = f"client.markets({name!r}) looks for these words." if " " in name.strip() else ""
    text = f"Market not found: {name}"
    return NotFoundError(text, status=404, detail=text, hint=hint)


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in batches."""
    return (items[first : first + size] for first in range(0, len(items), size))


def distinct(rows: Iterable[dict[str, Any]], max_rows: int | None) -> list[dict[str, Any]]:
    """Records, each id once, the newest of two; one with the id or a token of another is left out."""
    out, owners = batches.Distinct(), dict[str, str]()
    if max_rows == 0:
        return []
    for row in rows:
        tokens = [str(token["id"]) for token in row.get("tokens") or ()]
        if any(owners.setdefault(token, row["id"]) != row["id"] for token in tokens):
            batches.leave_out("a token of it is one of another market", str(row.get("slug") or row["id"]))
            continue
        out.add(row["id"], row)
        if len(out.rows) == max_rows:
            break
    return [*out.rows.values()]


def refuse_filters(given: Iterable[str], allowed: Iterable[str], kind: str, name: str) -> None:
    """ConfigError for a filter that a listing of a venue does not have."""
    allowed = [*allowed]
    for one in given:
        if one not in allowed:
            hint = f"They have {', '.join(allowed)}."
            raise ConfigError(f"is no filter of the {kind} of {name}.", argument=one, hint=hint)


def passes(record: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Whether a record passes the filters of dates, categories and tags that a venue does not have itself."""
    # A market that is over may have no scheduled end any more, or not say when its outcome was known.
    for name, other in (("start_date", "start_date"), ("end_date", "closed_at"), ("resolved_at", "closed_at")):
        at = first_time(record, name, other)
        limits = (given.get(f"{name}_min"), given.get(f"{name}_max"))
        least, most = (parse_iso(limit) if limit else None for limit in limits)
        if (least is not None and (at is None or at < least)) or (most is not None and (at is None or at > most)):
            return False
    return is_of(record, given)


def is_of(record: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Whether a record is of the category, and has one of the tags, that filters name."""
    wanted = {tag.casefold() for tag in given.get("tags", "").split(",")} - {""}
    has = {str(tag).casefold() for tag in record.get("tags") or ()}
    is_in = "category" not in given or str(record.get("category")).casefold() == given["category"].casefold()
    return is_in and (not wanted or not wanted.isdisjoint(has))
