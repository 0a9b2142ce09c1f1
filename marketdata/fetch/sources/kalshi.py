"""How to ask Kalshi: records, candles as prices, quotes and metrics, trades, and the books of this moment.

What settled two months ago or earlier is archived: its candles and trades have other paths, and a listing finds its
markets by their event or series alone.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

import numpy as np

from marketdata.errors import ConfigError, ContractError, NotFoundError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer
from marketdata.fetch.sources.venue import Host, Listing, Venue, distinct, refuse_filters, unknown_market
from marketdata.fetch.windows import IdKind, Window
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Page, Trades, joined
from marketdata.points.views import View
from marketdata.times import MINUTE, SECOND, Range, first_time
from marketdata.vendors import KalshiPrice, Service
from marketdata.wire import kalshi as wire
from marketdata.wire.decode import load

RATES = {"kalshi": Host("https://external-api.kalshi.com/trade-api/v2", 480)}
HOSTS = {name: host.address for name, host in RATES.items()}
OPTIONS = ("price",)
SERVICE = Service(
    name="kalshi", base_url=HOSTS["kalshi"], key_variable=None, prefix="", views=("prices", "quotes", "metrics"),
    resolutions=("1m", "1h", "1d"), listing_page=200, short="kalshi", filters=("include_closed", "category", "tags"),
)  # fmt: skip
_CANDLES, _TRADES, _EVENTS, _MARKETS = 5_000, 1_000, 200, 1_000  # of one answer
_PARLAYS = "KXMVE"  # what their tickers begin with
_ARCHIVE = ("historical",)


def connect(hosts: Mapping[str, str], *, allow_insecure: bool = False, price: KalshiPrice = "mid") -> Kalshi:
    """The source at this address."""
    return Kalshi(hosts, allow_insecure=allow_insecure, price=price)


class Kalshi(Venue):
    """Candles and trades; ``price`` says which price of a candle counts; see `Source`."""

    service = SERVICE

    def __init__(self, hosts: Mapping[str, str], *, allow_insecure: bool = False, price: KalshiPrice = "mid") -> None:
        self._price = choice("price", price, get_args(KalshiPrice), "'mid', 'last' and 'mean'")
        super().__init__(hosts, RATES, "kalshi", allow_insecure=allow_insecure)
        self._cutoffs: tuple[int, int] | None = None
        self._series: dict[str, dict[str, Any]] = {}
        self._events: dict[str, dict[str, Any]] = {}
        self._tiers: dict[str, bool] = {}  # whether a market was found in the archive

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._hosts, self._price)

    def pages(
        self, window: Window, report: Report | None = None, stop: threading.Event | None = None
    ) -> Iterator[Page]:
        """The points of both tokens, 5,000 candles a page."""
        if window.view not in SERVICE.views:
            raise ConfigError(
                f"kalshi has no history of {window.view}; it has {', '.join(SERVICE.views)}.", argument="view"
            )
        market, width = self._known(window.id), window.resolution.micros
        ticker = market["id"]
        labels = {str(token["label"]): token["id"] for token in market["tokens"] if window.view != "metrics"}
        end, span = -(-window.rng.end // width) * width, _CANDLES * width
        for first in range(window.first_bucket, end, span):
            part = Range(first, min(first + span, end))
            candles = self._candles(market, part, width, report, stop)
            of_view = (
                partial(candles.prices, price=self._price) if window.view == "prices" else getattr(candles, window.view)
            )
            columns = of_view(ticker, width).sort()
            if window.kind == "token":
                wanted = [i for i, token in enumerate(columns.tokens) if token.token_id == window.id]
                columns = columns.take(np.flatnonzero(np.isin(columns.token, wanted)))
                labels = {label: token for label, token in labels.items() if token == window.id}
            more = str(part.end) if part.end < end else None
            yield Page(columns, ticker, str(window.resolution), labels, None, None, more, date=self.server_time)

    def requests(self, window: Window, tokens: int) -> int:  # noqa: ARG002 an answer is about both
        """One for 5,000 candles."""
        return max(1, math.ceil(window.buckets / _CANDLES))

    def _candles(self, market: dict[str, Any], part: Range, width: int, *counts: Any) -> wire.Candles:
        """The candles that begin in a range, from the tier that has the market, or else from the other one."""
        report, stop = counts
        params = {"start_ts": (part.start + width) // SECOND, "end_ts": part.end // SECOND}
        params |= {"period_interval": width // MINUTE}
        ticker, series = market["id"], market.get("series_id")
        live = ("series", str(series), "markets", ticker, "candlesticks")

        def ask(*, archived: bool) -> list[Any]:
            path = (*_ARCHIVE, "markets", ticker, "candlesticks") if archived else live
            read = self.to["kalshi"].read
            rows: list[Any] = read(path, params, lambda a: _rows(a, "candlesticks").data, counts=report, stop=stop)
            return rows

        rows = self._from_tier(market, ask)
        ends = [row for row in rows if part.start + width <= int(row.get("end_period_ts", 0)) * SECOND <= part.end]
        return wire.candles(ends)

    def _from_tier(self, market: dict[str, Any], ask: Any) -> list[Any]:
        """Rows of the tier of a market; where it has none, the other tier is tried once, as the cutoff moves."""
        ticker = market["id"]
        known = self._tiers.get(ticker)
        settled = first_time(market, "resolved_at")
        archived = known if known is not None else settled is not None and settled < self._cutoff()[0]
        try:
            rows: list[Any] = ask(archived=archived)
        except NotFoundError:
            if known is not None:
                raise
            rows = []
        if rows or known is not None:
            self._tiers[ticker] = archived
            return rows
        try:
            others: list[Any] = ask(archived=not archived)
        except NotFoundError:
            others = []
        self._tiers[ticker] = archived if not others else not archived
        return others

    def _cutoff(self) -> tuple[int, int]:
        """The times before which markets and trades are archived."""
        if self._cutoffs is None:
            self._cutoffs = self.to["kalshi"].get_json((*_ARCHIVE, "cutoff"), None, wire.cutoff)
        return self._cutoffs

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market by its ticker, or by one of its tokens, with facts of its event and series."""
        ticker, _, side = market.rpartition(":")
        name = ticker if side in ("yes", "no") and ticker else market
        for path in (("markets", name), (*_ARCHIVE, "markets", name)):
            try:
                row = self.to["kalshi"].get_json(path, None, lambda top: _member(top, "market"))
            except NotFoundError:
                continue
            event = self._event(str(row.get("event_ticker")))
            return self._keep(wire.market(row, event, self._series_of(event)), market)
        raise unknown_market(market)

    def _event(self, ticker: str) -> dict[str, Any]:
        if ticker not in self._events:
            top: dict[str, Any] = self.to["kalshi"].get_json(("events", ticker), {"with_nested_markets": "true"})
            self._events[ticker] = {"markets": top.get("markets"), **_member(top, "event")}
        return self._events[ticker]

    def _series_of(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The answer about the series of an event, which has the fees."""
        ticker = str(event.get("series_ticker"))
        if ticker not in self._series:
            path = ("series", ticker)
            self._series[ticker] = self.to["kalshi"].get_json(path, None, lambda top: _member(top, "series"))
        return self._series[ticker]

    def records(
        self, kind: str, filters: Mapping[str, str | None], max_rows: int | None = None, page_size: int | None = None
    ) -> list[dict[str, Any]]:
        """Records of a listing; markets and events come with the facts of their series."""
        given = {name: value for name, value in filters.items() if value is not None}
        if "search" in given:
            hint = "Name an event (event_slug=) or a series (client.events(series_slug=...)), or filter the frame."
            raise ConfigError("is refused: kalshi has no search in texts.", argument="search", hint=hint)
        size = min(page_size or _EVENTS, _EVENTS)
        rows = self._all_series(given) if kind == "series" else self._members(kind, given, size)
        return distinct(rows, max_rows)

    def _all_series(self, given: dict[str, str]) -> Iterator[dict[str, Any]]:
        refuse_filters(given, ("category", "tags"), "series", "kalshi")
        for row in self.to["kalshi"].get_json(("series",), given, lambda top: _listing(top, "series")).data:
            self._series[str(row.get("ticker"))] = row
            yield wire.series(row)

    def _members(self, kind: str, given: dict[str, str], size: int) -> Iterator[dict[str, Any]]:
        """Events, or their markets, live ones first."""
        refuse_filters(
            given,
            ("event_slug", "event_id", "series_slug", "series_id", "include_closed", "min_close_ts"),
            kind,
            "kalshi",
        )
        name = given.get("event_slug") or given.get("event_id")
        series = given.get("series_slug") or given.get("series_id")
        is_open = given.get("include_closed") == "false"
        params = {"with_nested_markets": "true", "series_ticker": series, "status": "open" if is_open else None}
        params |= {"min_close_ts": given.get("min_close_ts")}
        pages = [[self._event(name)]] if name else self._listed(("events",), "events", params, size)
        for events in pages:
            for event in (one for one in events if not str(one.get("event_ticker")).startswith(_PARLAYS)):
                of = self._series_of(event)
                if kind == "events":
                    yield wire.event(event, of)
                else:
                    found = [
                        record for record in wire.markets_of(event, of) if not is_open or record["status"] == "active"
                    ]
                    yield from map(self._keep, found)
        if kind == "markets" and (name or series) and not is_open:
            yield from self._archived("event_ticker" if name else "series_ticker", str(name or series))

    def _archived(self, what: str, name: str) -> Iterator[dict[str, Any]]:
        path, params = (*_ARCHIVE, "markets"), {what: name, "mve_filter": "exclude"}
        for rows in self._listed(path, "markets", params, _MARKETS):
            for row in rows:
                event = self._event(str(row.get("event_ticker")))
                yield self._keep(wire.market(row, event, self._series_of(event)))

    def _listed(
        self, path: tuple[str, ...], name: str, params: Mapping[str, Any], size: int
    ) -> Iterator[list[dict[str, Any]]]:
        def ask(cursor: str | None) -> Listing:
            query = {**params, "limit": size, "cursor": cursor}
            return self.to["kalshi"].get_json(path, query, lambda top: _listing(top, name))

        key = {"events": "event_ticker", "markets": "ticker", "trades": "trade_id"}[name]
        return self._pages(ask, f"the {name}", key)

    def tags(self) -> list[str]:
        """Every tag of a series."""
        return sorted({tag for row in self._all_series({}) for tag in row.get("tags") or ()})

    def trades(self, market: str, rng: Range, kind: IdKind = "market") -> Iterator[Trades]:
        """Prints of a market or a token; older ones are archived."""
        record, cut = self._known(market), self._cutoff()[1]
        for path, part in (((*_ARCHIVE, "trades"), (rng.start, min(rng.end, cut))), (("markets", "trades"), rng)):
            if part[0] >= part[1]:
                continue
            params = {"ticker": record["id"], "min_ts": part[0] // SECOND, "max_ts": -(-part[1] // SECOND)}
            pages = [*self._listed(path, "trades", params, _TRADES)]
            if not any(pages):
                continue
            columns = wire.trades([row for rows in pages for row in rows]).between(*rng)
            wanted = [i for i, token in enumerate(columns.tokens) if kind == "market" or token.token_id == market]
            yield columns.take(np.flatnonzero(np.isin(columns.token, wanted)))

    def now(self, view: View, tokens: Sequence[str]) -> Books:
        """The books of tokens, a request for each market."""
        if view != "books":
            raise ConfigError(f"kalshi has no {view} of this moment; it has books.", argument="view")
        tickers = dict.fromkeys(token.rpartition(":")[0] for token in tokens)
        answers: list[tuple[str, Any]] = [(t, self.to["kalshi"].get_json(("markets", t, "orderbook"))) for t in tickers]
        books = joined([wire.books(answer, ticker, self._now()) for ticker, answer in answers])
        wanted = [i for i, token in enumerate(books.tokens) if token.token_id in tokens]
        return books.take(np.flatnonzero(np.isin(books.token, wanted)))

    def health(self) -> dict[str, Any]:
        """Whether the exchange is up."""
        top: dict[str, Any] = self.to["kalshi"].get_json(("exchange", "status"))
        return {"status": "ok" if top.get("exchange_active") else "paused", "timestamp": self._now() / SECOND}


def _again(hosts: Mapping[str, str], price: KalshiPrice) -> Kalshi:
    """A source after pickling, whose address was allowed before."""
    return Kalshi(hosts, allow_insecure=True, price=price)


def _member(top: Any, name: str) -> dict[str, Any]:
    """The object of an answer by its name."""
    if not isinstance(top, dict) or not isinstance(top.get(name), dict):
        raise ContractError(f"An answer of kalshi has no object {name!r}.")
    member: dict[str, Any] = top[name]
    return member


def _listing(top: Any, name: str) -> Listing:
    """A page of rows; an empty cursor is the end."""
    if not isinstance(top, dict) or not isinstance(top.get(name), list):
        raise ContractError(f"An answer of kalshi has no list {name!r}.")
    return Listing(top[name], top.get("cursor") or None)


def _rows(answer: Answer, name: str) -> Listing:
    return _listing(load(answer.body), name)
