"""How to ask Polymarket: records of Gamma, prices of the CLOB or the Data API, trades, and the books of this moment."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np

from marketdata.errors import (
    ConfigError,
    ContractError,
    ExpiredError,
    MarketDataError,
    NotFoundError,
    ServiceOddityWarning,
    warn,
)
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer
from marketdata.fetch.sources import batches, venue
from marketdata.fetch.sources.venue import Host, Rows, Venue
from marketdata.fetch.windows import Window
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Series, Token, Trades, joined
from marketdata.points.records import in_order
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, SECOND, Range, first_time, parse_iso, to_datetime, to_text
from marketdata.vendors import PolymarketRoute, Service
from marketdata.wire import polymarket as wire
from marketdata.wire.decode import convert, load

RATES = {
    "gamma": Host("https://gamma-api.polymarket.com", 600),
    "data": Host("https://data-api.polymarket.com", 900),
    "clob": Host("https://clob.polymarket.com", 900),
}
HOSTS = {
    **{name: host.address for name, host in RATES.items()},
    venue.STREAM: "wss://ws-subscriptions-clob.polymarket.com/ws/market",
}
OPTIONS = ("route",)
SERVICE = Service(
    name="polymarket", base_url=HOSTS["gamma"], key_variable=None, prefix="", views=("prices",), listing_page=100,
    resolutions=("1m", "5m", "10m", "15m", "30m", "1h", "3h", "6h", "12h", "1d"), short="polymarket",
    filters=("search", "tags", "tags_match", "start_date_min", "start_date_max", "end_date_min", "end_date_max",
             "min_liquidity", "include_closed", "state", "sort", "order", "resolved_at_min", "resolved_at_max"),
    live=("books",), has_trades=True, names_filter="names",
    own_parameters=("limit", "after_cursor", "closed", "offset", "page", "q", "limit_per_type", "events_status"),
)  # fmt: skip
LONGEST = 15 * DAY  # of one answer of prices
_KEPT_DAYS = ((5 * MINUTE, 7), (30 * MINUTE, 60), (180 * MINUTE, 90))  # widths below these, by the Data API
_POINTS, _TRADES, _BOOKS, _CONDITIONS, _LISTED = 10_000, 1000, 500, 20, 100  # of one answer
_NAMES = 25  # of one request, whose address may have 8,000 characters
_NOTHING = wire.History(np.empty(0, np.int64), np.empty(0))
_OVER = ("closed", "resolved")  # states of a record
_SORTS = {"volume_24h": ("volume24hr", False), "volume": ("volumeNum", False), "newest": ("startDate", False),
          "end_date": ("endDate", True)}  # fields of Gamma, and whether the least comes first  # fmt: skip
_LONGEST_NUMBER = 18  # digits of a number of Gamma; ids of tokens are longer


class Polymarket(Venue):
    """Records, prices and trades; see `Source`.

    ``route="clob"`` averages the minutes of the CLOB, which reach back for years, so that all resolutions mean the
    same. ``route="data"`` takes the buckets of the Data API, whose fine steps are kept for days.
    """

    service, rates = SERVICE, RATES

    def __init__(
        self, hosts: Mapping[str, str], *, allow_insecure: bool = False, route: PolymarketRoute = "clob"
    ) -> None:
        self._route = choice("route", route, get_args(PolymarketRoute), "'clob' and 'data'")
        super().__init__(hosts, self._route, allow_insecure=allow_insecure, route=route)

    def _tokens(self, name: str) -> tuple[str, list[Token]]:
        market = self._known(name)
        return market["id"], [Token(market["id"], token["id"], token["label"]) for token in market["tokens"]]

    def _buckets(self, width: int) -> int:
        return LONGEST // width

    def _columns(
        self, window: Window, tokens: Sequence[Token], part: Range, report: Report | None, stop: threading.Event | None
    ) -> Series:
        """The prices of tokens in a part, a request each."""
        ask = self._minutes if self._route == "clob" else self._histories
        width = window.resolution
        histories = [_NOTHING, *(ask(str(token.token_id), part, width, report, stop) for token in tokens)]
        ts, prices = (np.concatenate(values) for values in zip(*histories, strict=True))
        bounds = np.cumsum([len(history.ts) for history in histories])
        return Series((), bounds, ts, {"price": prices}).with_tokens(tokens, bounds)

    def requests(self, window: Window, tokens: int) -> int:
        """One a token and fifteen days; of the Data API one a token and 10,000 buckets."""
        answers = math.ceil(window.buckets / (LONGEST // window.resolution.micros))
        pages = 1 if self._route == "clob" else math.ceil(window.buckets / answers / _POINTS)
        return max(1, tokens) * answers * pages

    def _minutes(self, token: str, part: Range, resolution: BucketWidth, *counts: Any) -> wire.History:
        """Means of the midpoints of each bucket, without the one of the present, which a live market appends."""
        params = {"market": token, "startTs": part.start // SECOND, "endTs": part.end // SECOND, "fidelity": 1}
        (report, stop), width = counts, resolution.micros
        (ts, price), date = self.to["clob"].read(
            ("prices-history",), params, lambda answer: (_history(answer, token), answer.date), counts=report, stop=stop
        )
        present = self._now() // MINUTE * MINUTE
        if len(ts) and date is not None and ts[-1] > int(date * SECOND) - MINUTE:
            # The minute of the last point may have ended since, or before the answer was dated.
            present = min(present, int(ts[-1]) // MINUTE * MINUTE)
        self._note_outside(ts, part, width, report, f"the prices of token {token}")
        inside = (ts >= part.start) & (ts < min(part.end, present))
        buckets, place, number = np.unique(ts[inside] // width * width, return_inverse=True, return_counts=True)
        return wire.History(buckets, np.bincount(place, price[inside], len(buckets)) / np.maximum(number, 1))

    def _histories(self, token: str, part: Range, resolution: BucketWidth, *counts: Any) -> wire.History:
        """Buckets of the Data API; ExpiredError if it no longer keeps such fine steps."""
        (report, _), width = counts, resolution.micros
        params = {"token_id": token, "start": part.start // SECOND, "end": part.end // SECOND}
        params |= {"bucket_seconds": width // SECOND, "limit": _POINTS}

        pages = self._listed(("v2", "prices-history"), "data", "timestamp", params, *counts, host="data")
        points = [point for rows in pages for point in rows]
        ts, price = wire.prices({"data": points}, token)[token]
        self._note_outside(ts, part, width, report, f"the prices of token {token}")
        # The last point of a live range is off the grid, or the very moment of the answer.
        inside = (ts % width == 0) & (ts >= part.start) & (ts < min(part.end, self._now()))
        ts, price = ts[inside], price[inside]
        days = next((days for below, days in _KEPT_DAYS if width < below), None)
        earliest = None if days is None else self._now() - days * DAY
        old = ts[ts < earliest] if earliest is not None else ts
        if earliest is not None and part.start < earliest and (len(old) < 2 or int(np.median(np.diff(old))) > width):
            what = f"polymarket keeps prices at {resolution} for {days} days, from {to_text(earliest)} on"
            hint = "Ask for a later start or a coarser resolution, or take md.Client('polymarket', route='clob')."
            error = ExpiredError(f"{what}; {to_text(part.start)} is earlier.", status=200, hint=hint)
            error.view, error.history_days, error.earliest = "prices", float(days or 0), to_datetime(earliest)
            raise error
        return wire.History(ts, price)

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market by its slug, condition id or number, or by one of its tokens.

        The slug of an event is that of its market, if it has one; else an error lists its markets.
        """
        found: dict[str, Any] | None = None
        name = wire.condition_of(market.strip().lower())
        if not name.startswith("0x") and not (name.isdigit() and len(name) > _LONGEST_NUMBER):
            path = ("markets", name) if name.isdigit() else ("markets", "slug", name)
            with suppress(NotFoundError):
                found = wire.market(self._object(path, host="gamma"))
        if found is None and (name.startswith("0x") or name.isdigit()):
            found = next(self._named([name], are_tokens=True), None)
        elif found is None:
            found = self._of_event(name)
        if found is None:
            raise venue.unknown_market(market)
        return self._keep(self._settled([found])[0], market)

    def _of_event(self, slug: str) -> dict[str, Any] | None:
        """The record of the one market of an event; None if there is no such event."""
        self._refuse_event(slug)
        try:
            event = self._object(("events", "slug", slug), host="gamma")
        except NotFoundError:
            return None
        members = [row for row in event.get("markets") or () if isinstance(row, dict)]
        return wire.market(self._member(slug, members, "slug"), event)

    def similar(self, name: str) -> Iterator[list[str]]:
        """The slugs that a search by the words of a name finds, then those by its longest word."""
        words = re.findall(r"[^\W_]+", name)
        for search in dict.fromkeys([" ".join(words), max(words, key=len, default="")]):
            with suppress(MarketDataError):
                found = self.records("markets", {"search": search}, max_rows=100)
                yield [record["slug"] for record in found if record.get("slug")]

    def _rows_of(self, kind: str, given: dict[str, str], size: int, states: set[str]) -> Iterator[dict[str, Any]]:
        """Open records, then closed ones, each a listing of its own; sorted ones together."""
        if kind == "series":
            venue.refuse_filters(given, (), kind, "polymarket")
            yield from batches.readable(wire.event, self._by_offset("series", 50))
            return
        if "names" in given:
            yield from self._named(given["names"].split(","))
            return
        sort = given.pop("sort", None)
        order = None if sort is None else given.pop("order", None)
        if sort is not None and kind == "events":
            raise ConfigError("is no argument of events of polymarket; sort the frame.", argument="sort")
        closed = [one for one, of in (("false", {"open"}), ("true", {*_OVER})) if not states or states & of]
        if (events := self._named_events(given, states)) is not None:
            rows = [row for event in events for row in self._inside(kind, event) if venue.passes(row, given)]
            yield from in_order(rows, sort, order) if sort else rows
            return
        if "order" in given and len(closed) > 1:
            hint = "Give state=, or sort=, which sorts both together."
            raise ConfigError("sorts open and closed ones apart, two listings.", argument="params['order']", hint=hint)
        since, until = (given.pop(f"resolved_at_{end}", None) for end in ("min", "max"))
        params = {"include_tag": "true" if kind == "markets" else None, **self._params(kind, given), "limit": size}
        if sort is not None:
            field, is_rising = _SORTS[sort]
            params |= {"order": field, "ascending": str(is_rising if order is None else order == "asc").lower()}
        if (since or until) and "order" not in params:
            closed = [one for one in closed if one == "true"]
            params |= {"order": "closedTime", "ascending": "false"}
        read = wire.event if kind == "events" else wire.market
        listings = [batches.readable(read, self._each(kind, {**params, "closed": one})) for one in closed]
        limits = {f"resolved_at_{end}": at for end, at in (("min", since), ("max", until)) if at}
        for row in _merged(listings, sort, order) if sort else itertools.chain(*listings):
            if params.get("order") == "closedTime" and since and _is_before(row, since):
                return
            if venue.passes(row, limits):
                yield row

    def _inside(self, kind: str, event: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The record of an event, or those of its markets."""
        whole = [event] if kind == "events" else event.get("markets") or []
        return batches.readable(wire.event if kind == "events" else partial(wire.market, event=event), whole)

    def _each(self, kind: str, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        return (row for rows in self._keyset(kind, params) for row in rows)

    def _named_events(self, given: dict[str, str], states: set[str]) -> Iterator[dict[str, Any]] | None:
        """The events that an id, a slug or a search names; None for a listing of all."""
        if (one := given.get("event_slug") or given.get("event_id")) is not None:
            venue.refuse_filters(given, ("event_slug", "event_id"), "events by name", "polymarket")
            path = ("events", "slug", one) if "event_slug" in given else ("events", one)
            return iter([self._object(path, host="gamma")])
        if "search" not in given:
            return None
        venue.refuse_filters(given, ("search", *venue.LOCAL_FILTERS), "search", "polymarket")
        params = {"q": given["search"], "limit_per_type": 50, "events_status": "active" if states == {"open"} else None}
        pages = self._numbered(("public-search",), "events", params, "page", 1, host="gamma")
        return (event for events in pages for event in events)

    def _params(self, kind: str, given: dict[str, str]) -> dict[str, Any]:
        """Filters in the words of the venue; further parameters are passed as they are."""
        least = "liquidity_num_min" if kind == "markets" else "liquidity_min"
        names = {"min_liquidity": least, "tags_match": "tag_match", "tags": "tag_id", "series_slug": "series_id"}
        for name in given:
            if names.get(name, name) != name and names[name] in given:
                raise ConfigError(f"is refused: {name}= says it.", argument=f"params[{names[name]!r}]")
        names |= {"tags": "tags", "series_slug": "series_slug"}
        out: dict[str, Any] = {names.get(name, name): value for name, value in given.items()}
        if (tags := out.pop("tags", None)) is not None:
            ids = [self._tag(slug) for slug in tags.split(",")]
            if kind == "events" and len(ids) > 1:
                hint = "Ask for each of them, or for markets."
                raise ConfigError("are several; a listing of events takes one tag.", argument="tags", hint=hint)
            out["tag_id"] = ids
        if (slug := out.pop("series_slug", None)) is not None:
            found = [row["id"] for row in self._by_offset("series", 50) if row.get("slug") == slug]
            if not found:
                raise ConfigError("names no series of polymarket.", argument="series_slug", value=slug)
            out["series_id"] = found[0]
        return out

    def _tag(self, slug: str) -> str:
        """The id of a tag."""
        found = self._object(("tags", "slug", slug), host="gamma").get("id")
        if found is None:
            raise ContractError(f"The tag {slug} has no id.")
        return str(found)

    def tags(self) -> list[str]:
        """The slug of every tag."""
        return [str(row["slug"]) for row in self._by_offset("tags", 100) if row.get("slug")]

    def _by_offset(self, kind: str, size: int) -> Iterator[dict[str, Any]]:
        pages = self._numbered((kind,), kind, {"limit": size}, "offset", 0, host="gamma")
        return (row for rows in pages for row in rows)

    def _named(self, names: Sequence[str], *, are_tokens: bool = False) -> Iterator[dict[str, Any]]:
        """Markets by their slugs, condition ids, numbers or tokens, many a request, in any order."""
        by_filter: dict[str, list[str]] = defaultdict(list)
        for name in names:
            filters = ("condition_ids", "slug") if name.startswith("0x") else ("slug",)
            if re.fullmatch("0x[0-9a-fA-F]+", name):
                by_filter["condition_ids"] += wire.forms_of(wire.condition_of(name))
                continue
            elif name.isdigit():  # a short one may be of a token all the same
                is_token = are_tokens or len(name) > _LONGEST_NUMBER
                filters = ("clob_token_ids", "position_ids") if is_token else ("id",)
            for one in filters:
                by_filter[one].append(name)
        for (one, every), closed in product(by_filter.items(), ("true", "false")):

            def ask(some: Sequence[str], one: str = one, closed: str = closed) -> Rows:
                return [row for rows in self._keyset("markets", {one: some, "closed": closed}) for row in rows]

            for rows in batches.halved(every, _NAMES, ask):
                yield from batches.readable(wire.market, rows)

    def _keyset(self, kind: str, params: Mapping[str, Any]) -> Iterator[Rows]:
        query = {"limit": _LISTED, **params}
        return self._listed((kind, "keyset"), kind, "id", query, host="gamma", cursor="after_cursor")

    def _settled(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Records of markets; the payoffs of closed ones are from the venue's resolutions, whatever a record says."""
        said: dict[str, dict[str, Any]] = {}
        closed = [row["id"] for row in rows if row["status"] in _OVER and row["id"].startswith("0x")]

        def ask(some: Sequence[str]) -> Rows:
            query = {"condition": ",".join(some)}
            pages = self._listed(("v2", "resolutions"), "data", "condition_id", query, host="data")
            return [row for rows in pages for row in rows]

        for found in batches.halved(closed, _CONDITIONS, ask):
            said |= {wire.condition_of(str(row.get("condition_id"))): row for row in found}
        out = [*batches.readable(lambda row: wire.resolved(dict(row), said.get(row["id"], {})), rows)]
        before = {row["id"]: row["payoffs"] for row in rows}
        others = [row["id"] for row in out if before[row["id"]] not in (None, row["payoffs"])]
        if others:
            what = f"{len(others)} records tell another outcome than the resolutions of the venue, which count: "
            warn(what + ", ".join(others[:5]) + (", ..." if len(others) > 5 else "."), ServiceOddityWarning)
        return out

    def _prints(self, market: str, rng: Range) -> Iterator[Rows]:
        """Prints of a market, read back to the start of the range if the newest come first."""
        params = {"condition": self._known(market)["id"], "taker_only": "true", "limit": _TRADES}
        for page in self._print_pages(("v2", "trades"), "data", params, host="data"):
            found = (wire.condition_of(str(row.get("condition_id", row.get("conditionId")))) for row in page)
            gate.refuse_others(found, [params["condition"]], "the market")
            yield page
            times = convert([row.get("timestamp") for row in page], list[int], "The list of times of trades")
            if times and times[0] > times[-1] and times[-1] * SECOND < rng.start:
                return

    def _trades_of(self, rows: Rows) -> Trades:
        return wire.trades(rows, role="taker")

    def _books(self, tokens: Sequence[str]) -> Iterator[Books]:
        """Up to 500 a request. A book that cannot be read is left out, as one of a token that is not traded."""

        def ask(some: Sequence[str]) -> Books:
            content = [{"token_id": token} for token in some]
            return self.to["clob"].read(("books",), None, lambda answer: _books(load(answer.body)), content=content)

        yield from batches.halved(tokens, _BOOKS, ask)

    def _try(self) -> None:
        next(self._keyset("markets", {"limit": 1}))


def _books(rows: Any) -> Books:
    """The books of an answer; if one is odd, the others."""
    try:
        return wire.books(rows)
    except ContractError:
        if not isinstance(rows, list):
            raise
        with batches.noted() as left_out:
            found = [*batches.readable(lambda row: wire.books([row]), (row for row in rows if isinstance(row, dict)))]
        if not found:
            raise
        reasons = "; ".join(f"{reason} ({len(names)})" for reason, names in left_out.items())
        warn(f"Books of the venue that cannot be read were left out: {reasons}", ServiceOddityWarning)
        return joined(found)


def _merged(listings: Sequence[Iterator[dict[str, Any]]], sort: str, order: str | None) -> Iterator[dict[str, Any]]:
    """The records of sorted listings in one order, read as far as they are taken."""
    heads = [(next(rows, None), rows) for rows in listings]
    while some := [(row, rows) for row, rows in heads if row is not None]:
        first = in_order([row for row, _ in some], sort, order)[0]
        yield first
        heads = [(next(rows, None), rows) if row is first else (row, rows) for row, rows in some]


def _is_before(row: Mapping[str, Any], text: str) -> bool:
    """Whether a market is known to have closed before a time."""
    closed = first_time(row, "closed_at")
    return closed is not None and closed < parse_iso(text)


def _history(answer: Answer, token: str) -> wire.History:
    body = load(answer.body)
    if not isinstance(body, dict) or "history" not in body:
        raise ContractError("An answer of polymarket has no 'history'.")
    return wire.prices(body, token).get(token, _NOTHING)


SOURCE = Polymarket
