"""How to ask Kalshi: records, candles as prices, quotes and metrics, trades, and the books of this moment.

Markets that settled two months ago or earlier are archived: their candles and trades have other paths, and a listing
finds them by their event or series alone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, get_args

from marketdata.errors import (
    ConfigError,
    ContractError,
    MarketDataError,
    NotFoundError,
    RateLimitError,
    RequestError,
    ServerError,
)
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.sources import batches, venue
from marketdata.fetch.sources.venue import Host, Rows, Venue
from marketdata.fetch.windows import Group, Window
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Series, Token, Trades
from marketdata.points.records import in_order, searched_words
from marketdata.times import DAY, HOUR, MINUTE, SECOND, Range, first_time, parse_iso
from marketdata.vendors import KalshiPrice, Service
from marketdata.wire import kalshi as wire

RATES = {"kalshi": Host("https://external-api.kalshi.com/trade-api/v2", 480)}
HOSTS = {
    **{name: host.address for name, host in RATES.items()},
    venue.STREAM: "wss://external-api-ws.kalshi.com/trade-api/ws/v2",
}
OPTIONS = ("price",)
SERVICE = Service(
    name="kalshi", base_url=HOSTS["kalshi"], key_variable=None, prefix="", views=("prices", "quotes", "metrics"),
    resolutions=("1m", "1h", "1d"), listing_page=200, short="kalshi", live=("books",), names_filter="tickers",
    filters=("search", "series_slug", "include_closed", "state", "sort", "order", *venue.LOCAL_FILTERS),
    has_trades=True, is_sparse=True,
)  # fmt: skip
_GROUPS = ("event_slug", "event_id", "series_slug", "series_id", *venue.LOCAL_FILTERS)
_CANDLES, _BATCH, _BATCH_CANDLES = 5_000, 100, 10_000  # of one answer: of a market, and of so many markets
_TRADES, _MARKETS = 1_000, 1_000
_PARLAYS = "KXMVE"  # what their tickers begin with
_LIVE, _ARCHIVE = (), ("historical",)
_CUTOFF_HOLDS = 3600 * SECOND
_TITLES_HOLD = 600 * SECOND  # of series and open events, which a search by words reads
_STATUS = {"open": "open", "closed": "closed", "resolved": "settled"}  # of a listing
_MOVES = 7 * DAY  # more than the cutoff moves in that time


def _period(width: int) -> int:
    """The candles that are asked for. Days are made of hours: those of the venue begin at midnight in New York."""
    return min(width, HOUR)


class _Asked(NamedTuple):
    """Candles of a width that begin in a part of a range, for a fetch."""

    part: Range
    width: int
    report: Report | None
    stop: threading.Event | None = None

    @property
    def period(self) -> int:
        """The width of the candles of the venue, of which those of the width are made."""
        return _period(self.width)

    @property
    def params(self) -> dict[str, Any]:
        """Parameters of the request; the venue names a candle by its end."""
        first, last = (self.part.start + self.period) // SECOND, self.part.end // SECOND
        return {"start_ts": first, "end_ts": last, "period_interval": self.period // MINUTE}


class Kalshi(Venue):
    """Candles and trades. ``price`` says which price of a candle counts; see `Source`."""

    service, rates = SERVICE, RATES

    def __init__(self, hosts: Mapping[str, str], *, allow_insecure: bool = False, price: KalshiPrice = "mid") -> None:
        self._price = choice("price", price, get_args(KalshiPrice), "'mid', 'last' and 'mean'")
        super().__init__(hosts, "kalshi", allow_insecure=allow_insecure, price=price)
        self._since = self._now()
        self._cutoffs: tuple[int, tuple[int, int]] | None = None  # when they were read, and what they are
        self._facts: dict[tuple[str, str], dict[str, Any]] = {}  # of events and series by their ticker
        self._rows: dict[str, dict[str, Any]] = {}  # of markets by their ticker, as they came
        self._titles: tuple[int, dict[str, dict[str, Any]]] | None = None  # all series, and when they were read
        self._open: tuple[int, Rows] | None = None  # open events with their markets, and when they were read
        self._spelled: dict[str, str] = {}  # tickers as they were given
        self._archived: set[str] = set()  # markets that were found there, where they stay
        self._has_batch_of_books = True

    def _tokens(self, window: Window) -> tuple[str, list[Token]]:
        return (ticker := self._ticker(window.id)), wire.tokens_of(ticker)

    def _nothing(self, window: Window) -> Series:
        return wire.candles([]).of(window.view, wire.ticker_of(window.id), window.resolution.micros)

    def _buckets(self, width: int) -> int:
        return _CANDLES * _period(width) // width

    def _record_of(self, window: Window) -> dict[str, Any]:
        group = window.group or Group([window])
        names = group.beside(window, _BATCH)
        group.once(names, names, window, lambda: self._look_up([*map(wire.ticker_of, names)]))
        ticker = self._ticker(window.id)
        return _market(self._rows.get(ticker) or self._row(ticker))

    def requests(self, window: Window, tokens: int) -> int:  # noqa: ARG002 an answer is about both
        """One for 5,000 candles; what markets and views share is not counted."""
        return max(1, math.ceil(window.buckets / self._buckets(window.resolution.micros)))

    def _columns(
        self, window: Window, tokens: Sequence[Token], part: Range, report: Report | None, stop: threading.Event | None
    ) -> Series:
        """The candles that begin in a part; several markets share a request, and the views of a market an answer."""
        ticker, width, group = tokens[0].market_id, window.resolution.micros, window.group or Group([window])
        asked, every = _Asked(part, width, report, stop), window.buckets * width // _period(width)
        most = min(_BATCH, _BATCH_CANDLES // every) if every <= _CANDLES else 1
        names = group.beside(window, most) if most > 1 else (window.id,)
        tickers, found, without = [*dict.fromkeys(map(wire.ticker_of, names))], None, None
        if len(tickers) > 1:
            of_many = group.once(
                (tickers[0], len(tickers), part, width), names, window, lambda: self._candles_of_many(tickers, asked)
            )
            found = of_many.get(ticker)
            without = None if found is None else _LIVE
        if found is None or (not len(found.end) and self._tier(ticker) != (_LIVE, True)):
            found = group.once(
                (ticker, part, width), (window.id,), window, lambda: self._candles_of_one(ticker, asked, without)
            )
        return found.of(window.view, ticker, width, self._price)

    def _candles_of_many(self, tickers: Sequence[str], asked: _Asked) -> dict[str, wire.Candles]:
        """The candles of markets by one request, but for those that are archived."""
        self._look_up(tickers)
        live = [one for one in tickers if self._tier(one)[0] == _LIVE]

        def ask(some: Sequence[str]) -> Rows:
            params = {**asked.params, "market_tickers": ",".join(some)}
            return self._read(("markets", "candlesticks"), "markets", params, asked.report, asked.stop).data

        rows = (row for some in batches.halved(live, _BATCH, ask) for row in some)
        found = ((wire.ticker_in(row), row.get("candlesticks") or []) for row in rows)
        return {ticker: self._read_candles(candles, ticker, asked) for ticker, candles in found}

    def _candles_of_one(self, ticker: str, asked: _Asked, without: object) -> wire.Candles:
        """The candles of a market, from the tier where it is, if that is not one that was asked before."""
        return self._read_candles(self._candle_rows(ticker, asked, without), ticker, asked)

    def _candle_rows(self, ticker: str, asked: _Asked, without: object = None) -> Rows:
        def ask(tier: tuple[str, ...]) -> Rows:
            path = (*(tier or ("series", self._series_of(ticker))), "markets", ticker, "candlesticks")
            answer = self._read(path, "candlesticks", asked.params, asked.report, asked.stop)
            gate.refuse_others([answer.about], [ticker], "the market")
            return answer.data

        return self._from_tiers(ticker, ask, without)

    def _read_candles(self, rows: Rows, ticker: str, asked: _Asked) -> wire.Candles:
        """Candles that begin in the part that was asked for, at its width."""
        found, begin = wire.candles(rows), asked.part.start + asked.period
        what = f"candles of {ticker}"
        self._note_outside(found.end, Range(begin, asked.part.end), asked.period, asked.report, what)
        found = found.between(begin, asked.part.end)
        return found if asked.period == asked.width else found.coarser(asked.width)

    def _candles(self, window: Window, part: Range, report: Report | None) -> Series:
        ticker, width = self._ticker(window.id), window.resolution.micros
        return wire.bars(self._candle_rows(ticker, _Asked(part, width, report)), ticker, part, width)

    # Tiers

    def _tier(self, ticker: str) -> tuple[tuple[str, ...], bool]:
        """The listing in which a market should be, and whether it cannot be elsewhere."""
        if ticker in self._archived:
            return _ARCHIVE, True
        row = self._rows.get(ticker, {})
        settled = first_time(row, "settlement_ts")
        if settled is not None and settled < self._cutoff()[0]:
            return _ARCHIVE, False
        # A market that was open when it was read is archived only after the cutoff has passed that time.
        return _LIVE, bool(row) and not wire.is_final(row) and self._cutoff()[0] <= self._since

    def _from_tiers(self, ticker: str, ask: Callable[[tuple[str, ...]], Rows], without: object = None) -> Rows:
        """Rows from the tier where a market should be; the other tier is tried once, because the cutoff moves."""
        if ticker not in self._rows:
            self._row(ticker)
        first, is_sure = self._tier(ticker)
        missing = list[NotFoundError]()
        for tier in (first, _LIVE if first else _ARCHIVE):
            if tier == without:  # it was asked before
                continue
            try:
                rows = ask(tier)
            except NotFoundError as error:
                missing.append(error)
                continue
            if rows and tier:
                self._archived.add(ticker)
            if rows or is_sure:
                return rows
        if len(missing) == 2:
            raise missing[0]
        return []

    def _cutoff(self) -> tuple[int, int]:
        """The times before which markets and trades are archived."""
        if self._cutoffs is None or self._now() - self._cutoffs[0] > _CUTOFF_HOLDS:
            self._cutoffs = self._now(), self._main.get_json((*_ARCHIVE, "cutoff"), None, wire.cutoff)
        return self._cutoffs[1]

    # Records

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market by its ticker, or by one of its tokens, with facts of its event and series.

        The ticker of an event is that of its market, if it has one; else an error lists its markets.
        """
        return self._keep(self._with_facts(self._row(wire.ticker_of(market), market)), market)

    def _ticker(self, name: str) -> str:
        """The ticker of the market that is named; one that may be of an event is looked up."""
        ticker = wire.ticker_of(name)
        self._spelled[ticker] = name
        if ticker.count("-") > 1 or ticker in self._rows:
            return ticker
        return str(self._row(ticker, name)["ticker"])

    def _row(self, ticker: str, name: str | None = None) -> dict[str, Any]:
        """The answer about a market, or about the only one of an event; NotFoundError lists those of other events."""
        self._refuse_event(ticker)
        # A ticker with one dash is mostly that of an event, and one with more is mostly that of a market.
        event, members = self._event_of(ticker) if ticker.count("-") == 1 else ({}, [])
        row = next((member for member in members if member.get("ticker") == ticker), None)
        for tier in (_LIVE, _ARCHIVE) if row is None and not members else ():
            with suppress(NotFoundError):
                row = self._object((*tier, "markets", ticker), "market")
                gate.refuse_others([wire.ticker_in(row)], [ticker], "the market")
                self._archived |= {ticker} if tier else set()
                break
        if row is None and "-" not in ticker:
            self._refuse_series(ticker)
        if row is None and not event:
            event, members = self._event_of(ticker)
        if row is None and event:
            if not members:
                query = {"event_ticker": ticker, "mve_filter": "exclude", "limit": _MARKETS}
                pages = self._listed((*_ARCHIVE, "markets"), "markets", "ticker", query)
                members = [one for rows in pages for one in rows]
            if ticker.count("-") > 1:
                self._event_markets[ticker] = [wire.ticker_in(one) for one in members]
                self._refuse_event(ticker)
            row = dict(self._member(ticker, members, "ticker"))
        if row is None:
            raise venue.unknown_market(name or self._spelled.get(ticker, ticker))
        self._rows[str(row.get("ticker"))] = row
        return row

    def _event_of(self, ticker: str) -> tuple[dict[str, Any], Rows]:
        """An event and its live markets; nothing if there is none."""
        try:
            top: Any = self._main.get_json(("events", ticker), {"with_nested_markets": "true"})
            event = venue.member(top, "event")
        except (NotFoundError, ContractError):
            return {}, []
        members = [row for row in event.get("markets") or top.get("markets") or () if isinstance(row, dict)]
        self._facts["event", ticker] = {key: value for key, value in event.items() if key != "markets"}
        return event, members

    def _refuse_series(self, ticker: str) -> None:
        """NotFoundError if a ticker is that of a series."""
        if self._fact("series", ticker):
            text = f"{ticker!r} is a series, not a market."
            hint = f"client.markets(series_slug={ticker!r}) lists its markets."
            raise NotFoundError(text, status=404, hint=hint)

    def similar(self, name: str) -> Iterator[list[str]]:
        """The tickers of the event of which an unknown ticker seems to be a market."""
        event = wire.ticker_of(name).rpartition("-")[0]
        if event:
            with suppress(MarketDataError):
                yield [wire.ticker_in(row) for row in self._event_of(event)[1]]

    def _look_up(self, tickers: Sequence[str]) -> None:
        """Learn the rows of markets that are not known yet, many by one request."""
        for tier in (_LIVE, _ARCHIVE):

            def ask(some: Sequence[str], tier: tuple[str, ...] = tier) -> Rows:
                query = {"tickers": ",".join(some), "limit": _MARKETS}
                pages = self._listed((*tier, "markets"), "markets", "ticker", query)
                return [row for rows in pages for row in rows if row.get("ticker") in some]

            for rows in batches.halved([ticker for ticker in tickers if ticker not in self._rows], _BATCH, ask):
                found = {row["ticker"]: row for row in rows}
                self._rows |= found
                self._archived |= found.keys() if tier else set()

    def _with_facts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        event = self._fact("event", row.get("event_ticker"))
        return _market(row, event, self._fact("series", event.get("series_ticker")))

    def _fact(self, kind: str, ticker: object) -> dict[str, Any]:
        """The answer about an event or a series; the one about a series has the fees."""
        if ticker is not None and not isinstance(ticker, str):
            raise ContractError(f"The ticker of the {kind} of a market is {str(ticker)[:80]!r}; it is a text.")
        if ticker and (kind, ticker) not in self._facts:
            path = ("events" if kind == "event" else kind, str(ticker))
            found: dict[str, Any] = {}
            with suppress(NotFoundError):  # as the events of parlays
                found = self._object(path, kind)
            self._facts[kind, str(ticker)] = found
        return self._facts.get((kind, str(ticker)), {})

    def _series_of(self, ticker: str) -> str:
        row = self._rows[ticker]
        named = row.get("series_ticker") or self._fact("event", row.get("event_ticker")).get("series_ticker")
        # The event may not be found, as that of a parlay; then the ticker begins with the series.
        return str(named or ticker.partition("-")[0])

    def _rows_of(self, kind: str, given: dict[str, str], size: int, states: set[str]) -> Iterator[dict[str, Any]]:
        """Records with the facts of their series; a search by words finds open events and their markets."""
        sort, order, search = given.pop("sort", None), given.pop("order", None), given.pop("search", None)
        allowed = {"series": ("category", "tags"), "events": _GROUPS, "markets": (*_GROUPS, "tickers")}[kind]
        venue.refuse_filters(given, allowed, kind, "kalshi")
        if sort is not None and kind != "markets":
            raise ConfigError(f"is no argument of {kind} of kalshi; sort the frame.", argument="sort")
        if kind == "series":
            rows: Iterator[dict[str, Any]] = self._all_series(given)
            rows = (row for row in rows if search is None or _has_words(search, row))
        elif search is not None:
            rows = self._found(kind, search, given, size, states)
        else:
            rows = self._members(kind, given, size, states)
        passing = (row for row in rows if kind == "series" or venue.passes(row, given))
        yield from in_order(passing, sort, order) if sort else passing

    def _all_series(self, given: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        for rows in self._listed(("series",), "series", "ticker", given):
            self._facts |= {("series", str(row.get("ticker"))): row for row in rows}
            yield from batches.readable(_series, rows)

    def _every_series(self) -> dict[str, dict[str, Any]]:
        """All series by their ticker, by one request."""
        if self._titles is None or self._now() - self._titles[0] > _TITLES_HOLD:
            self._titles = self._now(), {str(row["id"]): row for row in self._all_series({})}
        return self._titles[1]

    def _found(
        self, kind: str, search: str, given: Mapping[str, str], size: int, states: set[str]
    ) -> Iterator[dict[str, Any]]:
        """Open events, or their markets, with all words in their titles and that of their series.

        Of other states, the members of the series whose titles have them all.
        """
        every = self._every_series()
        if states - {"open"}:
            for ticker in [ticker for ticker, one in every.items() if _has_words(search, one)]:
                yield from self._members(kind, {**given, "series_slug": ticker}, size, states)
            return
        if self._open is None or self._now() - self._open[0] > _TITLES_HOLD:
            events = [*self._events(None, None, {}, self.service.listing_page, is_open=True)]
            self._open = self._now(), events
        for event in self._open[1]:
            series, members = every.get(str(event.get("series_ticker")), {}), event.get("markets") or ()
            if kind == "events":
                if _has_words(search, event, series, *members):
                    yield from batches.readable(partial(_event, series=series), [event])
                continue
            chosen = [row for row in members if not _is_parlay(row) and _has_words(search, event, series, row)]
            found = batches.readable(partial(_market, event=event, series=series), chosen)
            yield from (one for one in found if not one["closed_at"])

    def _members(self, kind: str, given: Mapping[str, str], size: int, states: set[str]) -> Iterator[dict[str, Any]]:
        """Events, or their markets: live ones first, then those that are archived."""
        if (tickers := given.get("tickers")) is not None:
            for some in venue.parts([wire.ticker_of(name) for name in tickers.split(",")], _BATCH):
                self._rows = {ticker: row for ticker, row in self._rows.items() if ticker not in some}
                self._look_up(some)
                yield from batches.readable(self._with_facts, (self._rows[t] for t in some if t in self._rows))
            return
        groups = (given.get(f"{of}_slug") or given.get(f"{of}_id") for of in ("event", "series"))
        name, series = (None if group is None else wire.ticker_of(group) for group in groups)
        is_open, is_all = states == {"open"}, name is None and series is None
        if is_all:
            self._every_series()
        if is_all and kind == "markets" and states and not is_open:
            yield from self._over(given, states)
        else:
            for event in self._events(name, series, given, size, is_open=is_open, has_markets=kind == "markets"):
                of = self._fact("series", event.get("series_ticker"))
                if kind == "events":
                    yield from batches.readable(partial(_event, series=of), [event])
                else:
                    read = partial(_market, event=event, series=of)
                    found = batches.readable(read, (row for row in event.get("markets") or () if not _is_parlay(row)))
                    yield from (one for one in found if not (is_open and one["closed_at"]))
        if kind == "markets" and not is_open and (not states or "resolved" in states):
            since = given.get("resolved_at_min")
            if since is not None and parse_iso(since) >= self._cutoff()[0]:
                return
            wanted = (
                [ticker for ticker, one in self._every_series().items() if venue.is_of(one, given)] if is_all else []
            )
            for group in wanted or [str(name or series)] if not is_all or wanted else []:
                query = {"event_ticker" if name else "series_ticker": group, "mve_filter": "exclude", "limit": _MARKETS}
                for rows in self._listed((*_ARCHIVE, "markets"), "markets", "ticker", query):
                    yield from batches.readable(self._with_series if is_all else self._with_facts, rows)

    def _over(self, given: Mapping[str, str], states: set[str]) -> Iterator[dict[str, Any]]:
        """Live markets that are over, by their status; settled ones between two times if these are given."""
        for state in (one for one in _STATUS if one in states):
            query: dict[str, Any] = {"status": _STATUS[state], "mve_filter": "exclude", "limit": _MARKETS}
            if state == "resolved":
                limits = {
                    "min_settled_ts": given.get("resolved_at_min"),
                    "max_settled_ts": given.get("resolved_at_max"),
                }
                query |= {name: -(-parse_iso(at) // SECOND) if "max" in name else parse_iso(at) // SECOND
                          for name, at in limits.items() if at is not None}  # fmt: skip
            for rows in self._listed(("markets",), "markets", "ticker", query):
                yield from batches.readable(self._with_series, rows)

    def _with_series(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A record with the facts of its series and, if it was seen, its event, without a request for it."""
        event = self._facts.get(("event", str(row.get("event_ticker"))), {})
        ticker = str(event.get("series_ticker") or str(row.get("event_ticker")).partition("-")[0])
        series = self._facts.get(("series", ticker), {})
        known = {"series_ticker": ticker, "category": series.get("category")} if series else {}
        return _market(row, {**known, **event} or None, series)

    def _events(
        self,
        name: str | None,
        series: str | None,
        given: Mapping[str, str],
        size: int,
        *,
        is_open: bool,
        has_markets: bool = True,
    ) -> Iterator[dict[str, Any]]:
        """Events without parlays, with their live markets if these are wanted."""
        params: dict[str, Any] = {"with_nested_markets": str(has_markets).lower()}
        if name is not None:
            top: Any = self._main.get_json(("events", name), params)
            found = venue.member(top, "event")
            if not (nested := found.get("markets") or top.get("markets")) and has_markets:
                rows = self._listed(("markets",), "markets", "ticker", {"event_ticker": name, "mve_filter": "exclude"})
                nested = [row for some in rows for row in some]
            pages = iter([[found | {"markets": nested}]])
        else:
            params |= {"series_ticker": series, "status": "open" if is_open else None, "limit": size}
            if (closes := given.get("end_date_min")) is not None:
                params["min_close_ts"] = parse_iso(closes) // SECOND
            pages = self._listed(("events",), "events", "event_ticker", params)
        for event in batches.readable(_known_event, (event for events in pages for event in events)):
            ticker = str(event.get("event_ticker"))
            self._facts["event", ticker] = {key: value for key, value in event.items() if key != "markets"}
            if not ticker.startswith(_PARLAYS):
                yield event

    def tags(self) -> list[str]:
        """Every tag of a series."""
        return sorted({tag for row in self._all_series({}) for tag in row.get("tags") or ()})

    # Trades, and the present

    def _prints(self, market: str, rng: Range) -> Iterator[Rows]:
        """Prints of a market; older ones are archived."""
        ticker, seen, missing = self._ticker(market), set[str](), list[NotFoundError]()
        asked = [("markets", "trades")]
        if rng.start < self._cutoff()[1] + _MOVES:
            asked.append((*_ARCHIVE, "trades"))
        params = {"ticker": ticker, "min_ts": rng.start // SECOND, "max_ts": -(-rng.end // SECOND), "limit": _TRADES}
        for path in asked:
            try:
                for page in self._print_pages(path, "trades", params):
                    gate.refuse_others(map(wire.ticker_in, page), [ticker], "the market")
                    by_id = {str(row.get("trade_id")): row for row in page}
                    yield [row for one, row in by_id.items() if one not in seen]
                    seen |= by_id.keys()
            except NotFoundError as error:  # the wrong tier, or an unknown market
                missing.append(error)
        if not seen and self._known(market)["status"] != "resolved" and len(missing) == len(asked):
            raise missing[0]

    def _trades_of(self, rows: Rows) -> Trades:
        return wire.trades(rows)

    def _books(self, tokens: Sequence[str]) -> Iterator[Books]:
        """A hundred markets a request, if the venue does it."""
        for some in venue.parts([*dict.fromkeys(map(wire.ticker_of, tokens))], _BATCH):
            for ticker, answer in self._order_books(some):
                yield venue.of_tokens(wire.books(answer, ticker, self._now()), tokens)

    def _order_books(self, tickers: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._has_batch_of_books:
            try:
                rows = self._read(("markets", "orderbooks"), "orderbooks", {"tickers": tickers}).data
            except (RequestError, ContractError) as error:
                if isinstance(error, RateLimitError | ServerError):
                    raise
                self._has_batch_of_books = False
            else:
                yield from ((wire.ticker_in(row), row) for row in rows)
                return
        for ticker in tickers:
            try:
                yield ticker, self._main.get_json(("markets", ticker, "orderbook"))
            except NotFoundError:
                continue

    def _try(self) -> None:
        self._cutoffs = None
        self._cutoff()


def _market(
    row: Mapping[str, Any], event: Mapping[str, Any] | None = None, series: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The record of a market of an answer, whose tickers are those of the venue."""
    wire.refuse_wrong_ids(row, "market")
    return wire.market(row, event, series)


def _event(row: Mapping[str, Any], series: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of an event of an answer, whose tickers are those of the venue."""
    return wire.event(_known_event(row), series)


def _known_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """An event of an answer as it came."""
    wire.refuse_wrong_ids(row, "event")
    return dict(row)


def _series(row: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a series of an answer, whose ticker is one of the venue."""
    wire.refuse_wrong_ids(row, "series")
    return wire.series(row)


def _is_parlay(row: object) -> bool:
    """Whether a row says that it is a parlay, which no listing has."""
    return isinstance(row, Mapping) and bool(row.get("mve_collection_ticker"))


def _has_words(search: str, *of: Mapping[str, Any]) -> bool:
    """Whether the titles of an event, its series and markets have all words of a search."""
    fields = ("title", "sub_title", "ticker", "event_ticker", "yes_sub_title", "category")
    text = " ".join(str(one[name]) for one in of for name in fields if one.get(name)).casefold()
    text += " ".join(str(tag) for one in of for tag in one.get("tags") or ()).casefold()
    return all(word in text for word in searched_words(search))


SOURCE = Kalshi
