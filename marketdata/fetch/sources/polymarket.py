"""How to ask Polymarket: records of Gamma, prices of the CLOB or the Data API, trades, and the books of this moment."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from marketdata.errors import (
    ConfigError,
    ContractError,
    ExpiredError,
    MarketDataError,
    NotFoundError,
    RequestError,
    ServiceOddityWarning,
    warn,
)
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer
from marketdata.fetch.sources import batches, venue
from marketdata.fetch.sources.venue import Host, Rows, Venue
from marketdata.fetch.windows import Group, Window
from marketdata.points.arguments import choice
from marketdata.points.candles import CANDLES, of_prices
from marketdata.points.columns import Books, Series, Token, Trades, joined
from marketdata.points.records import in_order, names_of
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, HOUR, MINUTE, SECOND, Range, first_time, parse_iso, to_datetime, to_text
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
    own_parameters=("limit", "after_cursor", "closed", "offset", "page", "q", "limit_per_type", "events_status",
                    "include_markets"),
)  # fmt: skip
LONGEST = 15 * DAY  # of one answer of prices
_KEPT_DAYS = ((5 * MINUTE, 7), (30 * MINUTE, 60), (180 * MINUTE, 90))  # widths below these, by the Data API
_POINTS, _TRADES, _BOOKS, _CONDITIONS, _LISTED = 10_000, 1000, 500, 20, 100  # of one answer
_TOKENS, _BATCH_POINTS = 20, 200_000  # of one answer with several histories
_COMPARED = 100  # closed markets of a listing whose records are compared with resolutions
_NAMES = 25  # of one request, whose address may have 8,000 characters
_NOTHING = wire.History(np.empty(0, np.int64), np.empty(0))
_OVER = ("closed", "resolved")  # states of a record
_SORTS = {"volume_24h": ("volume24hr", False), "volume": ("volumeNum", False), "newest": ("startDate", False),
          "end_date": ("endDate", True)}  # fields of Gamma, and whether the least comes first  # fmt: skip
_LONGEST_NUMBER = 18  # digits of a number of Gamma; ids of tokens are longer


class Polymarket(Venue):
    """Records, prices and trades; see `Source`.

    ``route="clob"`` averages the points of the CLOB, which reach back for years: minutes below an hour, else hours, of
    several markets by one request. ``route="data"`` takes the buckets of the Data API, whose fine steps are kept for
    days.
    """

    service, rates, _asks_for_times = SERVICE, RATES, False

    def __init__(
        self, hosts: Mapping[str, str], *, allow_insecure: bool = False, route: PolymarketRoute = "clob"
    ) -> None:
        self._has_batch = True
        self._route = choice("route", route, get_args(PolymarketRoute), "'clob' and 'data'")
        super().__init__(hosts, self._route, allow_insecure=allow_insecure, route=route)

    def _tokens(self, window: Window) -> tuple[str, list[Token]]:
        self._look_up(window)
        market = self._known(window.id)
        return market["id"], [Token(market["id"], token["id"], token["label"]) for token in market["tokens"]]

    def _look_up(self, window: Window) -> None:
        """Learn the markets of the windows beside this one, many by one request."""
        group = window.group or Group([window])
        names = group.beside(window, _LISTED)

        def ask() -> None:
            unknown = [name for name in names if name not in self._records]
            for record in self._named(unknown) if len(unknown) > 1 else ():
                self._keep(record)

        group.once(("records", names), names, window, ask)

    def _buckets(self, width: int) -> int:
        return LONGEST // width

    def _columns(
        self, window: Window, tokens: Sequence[Token], part: Range, report: Report | None, stop: threading.Event | None
    ) -> Series:
        """The prices of tokens in a part."""
        ids = [str(token.token_id) for token in tokens]
        if self._route == "clob":
            found = {**self._shared(window, part, report, stop)}
            # What an answer lacks is asked for alone, as after a refusal of the whole batch.
            found |= {one: self._points([one], part, window, report, stop)[one] for one in ids if one not in found}
        else:
            found = {one: self._histories(one, part, window.resolution, report, stop) for one in ids}
        histories = [_NOTHING, *(found[one] for one in ids)]
        ts, prices = (np.concatenate(values) for values in zip(*histories, strict=True))
        bounds = np.cumsum([len(history.ts) for history in histories])
        return Series((), bounds, ts, {"price": prices}).with_tokens(tokens, bounds)

    def _notes(self, window: Window, columns: Series) -> Counter[str]:
        is_of_hours = self._route == "clob" and _step(window.resolution.micros) == HOUR
        return Counter({"mean_of_hourly_points": len(columns)} if is_of_hours else {})

    def _parts(self, window: Window) -> list[Range]:
        """Cells of fifteen days from the begin of the whole window on, so that markets share their requests."""
        if self._route != "clob":
            return super()._parts(window)
        span, whole = self._buckets(window.resolution.micros) * window.resolution.micros, self._whole(window)
        cells = [Range(first, min(first + span, whole.end)) for first in range(whole.start, whole.end, span)]
        own = (cell for cell in cells if cell.start < window.rng.end and cell.end > window.rng.start)
        return [cell for cell in own if self._is_asked(window.id, cell, window)]

    def _whole(self, window: Window) -> Range:
        """The buckets of the whole window of which a window is a part."""
        begin, end = (window.group or Group([window])).whole(window)
        width = window.resolution.micros
        return Range(begin // width * width, -(-end // width) * width)

    def _is_asked(self, name: str, cell: Range, window: Window) -> bool:
        """Whether a cell of a market is asked for: the only one, or one in which it was active, if that is known."""
        begin, end = self._active_range(self._records.get(name) or {}, cell, window.resolution.micros)
        return begin < end or cell == self._whole(window)

    def _shared(
        self, window: Window, part: Range, report: Report | None, stop: threading.Event | None
    ) -> dict[str, wire.History]:
        """The histories of the tokens of several markets, this one's among them, as far as a batch has them."""
        group, width = window.group or Group([window]), window.resolution.micros
        points = (part.end - part.start) // _step(width)
        most = max(1, min(_TOKENS, _BATCH_POINTS // max(1, points)))
        names, tokens = list[str](), list[str]()
        for name in group.beside(window, _LISTED):
            record = self._records.get(name)
            if record is None or not self._is_asked(name, part, window):
                continue
            ids = [token["id"] for token in record["tokens"] if window.kind == "market" or token["id"] == name]
            if len(tokens) + len(ids) > most:
                if window.id in names:
                    break
                names, tokens = [], []
            names, tokens = [*names, name], [*tokens, *ids]
        if len(tokens) < 2:
            return {}
        key = names[0], part, width

        def ask() -> dict[str, wire.History]:
            found: dict[str, wire.History] = {}
            every = batches.halved(tokens, most, lambda some: self._points(some, part, window, report, stop))
            for some in every:
                found |= some
            return found

        return group.once(key, names, window, ask)

    def requests(self, window: Window, tokens: int) -> float:
        """One for twenty tokens and fifteen days; of the Data API one a token and 10,000 buckets."""
        answers, tokens = math.ceil(window.buckets / (LONGEST // window.resolution.micros)), max(1, tokens)
        if self._route == "clob":
            points = min(LONGEST, window.buckets * window.resolution.micros) // _step(window.resolution.micros)
            return answers * tokens / max(1, min(_TOKENS, _BATCH_POINTS // max(1, points)))
        return tokens * answers * math.ceil(window.buckets / answers / _POINTS)

    def _points(
        self, tokens: Sequence[str], part: Range, window: Window, report: Report | None, stop: threading.Event | None
    ) -> dict[str, wire.History]:
        """The histories of tokens: means of the points of each bucket; a token that an answer lacks has none."""
        width = window.resolution.micros
        (start, end), fidelity = (at // SECOND for at in part), _step(width) // MINUTE
        if len(tokens) > 1 and self._has_batch:
            content = {"markets": [*tokens], "start_ts": start, "end_ts": end, "fidelity": fidelity}
            path, params = "batch-prices-history", None
        elif len(tokens) > 1:
            return {k: v for one in tokens for k, v in self._points([one], part, window, report, stop).items()}
        else:
            content, path = None, "prices-history"
            params = {"market": tokens[0], "startTs": start, "endTs": end, "fidelity": fidelity}

        def read(answer: Answer) -> tuple[dict[str, wire.History], float | None]:
            body = load(answer.body)
            if not isinstance(body, dict) or not isinstance(body.get("history", ""), list | dict | None):
                raise ContractError("An answer of polymarket has no 'history'.")
            histories = body["history"] if isinstance(body["history"], dict) else {tokens[0]: body["history"]}
            if len(tokens) > 1 and histories is not body["history"]:
                histories = {}  # of no token in particular
            found = dict[str, wire.History]()
            for token in (token for token in tokens if token in histories):
                with suppress(ContractError) if len(tokens) > 1 else nullcontext():  # an odd one is asked for alone
                    found[token] = wire.prices({token: histories[token]})[token]
            return found, answer.date

        try:
            found, date = self.to["clob"].read((path,), params, read, content=content, counts=report, stop=stop)
        except RequestError as error:
            if content is None or error.status not in (404, 405):
                raise
            self._has_batch = False
            return self._points(tokens, part, window, report, stop)
        out = dict[str, wire.History]()
        for one, history in found.items():
            with suppress(ContractError) if len(tokens) > 1 else nullcontext():
                self._note_outside(history.ts, part, width, report, f"the prices of token {one}")
                out[one] = self._means(history, part, width, date)
        return out

    def _means(self, history: wire.History, part: Range, width: int, date: float | None) -> wire.History:
        """Means of the midpoints of each bucket, without the one of the present, which a live market appends."""
        (ts, price), present = history, self._now() // MINUTE * MINUTE
        if len(ts) and date is not None and ts[-1] > int(date * SECOND) - MINUTE:
            # The minute of the last point may have ended since, or before the answer was dated.
            present = min(present, int(ts[-1]) // MINUTE * MINUTE)
        inside = (ts >= part.start) & (ts < min(part.end, present))
        buckets, place, number = np.unique(ts[inside] // width * width, return_inverse=True, return_counts=True)
        return wire.History(buckets, np.bincount(place, price[inside], len(buckets)) / np.maximum(number, 1))

    def _candles(self, window: Window, part: Range, report: Report | None) -> Series:
        """Candles of the minutes of the order book's mid, which is all that the venue has."""
        _, tokens = self._tokens(window)
        ids, minutes = [str(token.token_id) for token in tokens], replace(window, resolution=BucketWidth.of("1m"))
        found = self._points(ids, part, minutes, report, None) if ids else {}
        found |= {one: self._points([one], part, minutes, report, None)[one] for one in ids if one not in found}
        each = [of_prices(*found[one], window.resolution.micros) for one in ids]
        bounds = np.cumsum([0, *(len(ts) for ts, _ in each)])
        values = {name: np.concatenate([np.empty(0), *(v[name] for _, v in each)]) for name in CANDLES}
        ts = np.concatenate([np.empty(0, np.int64), *(ts for ts, _ in each)])
        if report is not None:
            report.note({"candles_of_minutes": len(ts)})
        return Series((), bounds, ts, values).with_tokens(tokens, bounds)

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
                found = _market(self._object(path, host="gamma"))
                gate.refuse_others([found.get("gamma_id" if name.isdigit() else "slug")], [name], "the market")
        if found is None and (name.startswith("0x") or name.isdigit()):
            found = next(self._named([name], are_tokens=True), None)
            known = [] if found is None else [wire.condition_of(one.lower()) for one in names_of(found)]
            if found is not None and name not in known:
                raise ContractError(f"The answer is about the market {found['id']!r}, and was asked for {name!r}.")
        elif found is None:
            found = self._of_event(name)
        if found is None:
            raise venue.unknown_market(market)
        return self._keep(self._settled([found], is_one=True)[0], market)

    def _of_event(self, slug: str) -> dict[str, Any] | None:
        """The record of the one market of an event; None if there is no such event."""
        self._refuse_event(slug)
        try:
            event = self._object(("events", "slug", slug), host="gamma")
        except NotFoundError:
            return None
        members = [row for row in event.get("markets") or () if isinstance(row, dict)]
        return _market(self._member(slug, members, "slug"), event)

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
            yield from batches.readable(partial(_event, kind="series"), self._by_offset("series", 50))
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
        # A record of an event needs no markets, which would be most of an answer.
        own = {"include_tag": "true"} if kind == "markets" else {"include_markets": "false"}
        params = {**own, **self._params(kind, given), "limit": size}
        if sort is not None:
            field, is_rising = _SORTS[sort]
            params |= {"order": field, "ascending": str(is_rising if order is None else order == "asc").lower()}
        if (since or until) and "order" not in params:
            closed = [one for one in closed if one == "true"]
            params |= {"order": "closedTime", "ascending": "false"}
        read = _event if kind == "events" else _market
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
        return batches.readable(_event if kind == "events" else partial(_market, event=event), whole)

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
        for one, every in by_filter.items():
            found = set[str]()
            for closed in ("true", "false"):

                def ask(some: Sequence[str], one: str = one, closed: str = closed) -> Rows:
                    return [row for rows in self._keyset("markets", {one: some, "closed": closed}) for row in rows]

                for rows in batches.halved([name for name in every if name not in found], _NAMES, ask):
                    for record in batches.readable(_market, rows):
                        found |= names_of(record)
                        yield record

    def _keyset(self, kind: str, params: Mapping[str, Any]) -> Iterator[Rows]:
        query = {"limit": _LISTED, **params}
        return self._listed((kind, "keyset"), kind, "id", query, host="gamma", cursor="after_cursor")

    def _settled(self, rows: list[dict[str, Any]], *, is_one: bool = False) -> list[dict[str, Any]]:
        """Records of markets; the payoffs of closed ones are from the venue's resolutions, whatever a record says.

        Of more than a page of them only those are asked for whose record does not say how it ended. One whose
        resolution cannot be read is left out, and an error if it alone was asked for (``is_one``).
        """
        said: dict[str, dict[str, Any]] = {}
        over = [row for row in rows if row["status"] in _OVER and row["id"].startswith("0x")]
        closed = [row["id"] for row in over if len(over) <= _COMPARED or row["payoffs"] is None]

        def ask(some: Sequence[str]) -> Rows:
            query = {"condition": ",".join(some)}
            pages = self._listed(("v2", "resolutions"), "data", "condition_id", query, host="data")
            return [row for rows in pages for row in rows]

        for found in batches.halved(closed, _CONDITIONS, ask):
            said |= {wire.condition_of(str(row.get("condition_id"))): row for row in found}

        def read(row: Mapping[str, Any]) -> dict[str, Any]:
            return wire.resolved(dict(row), said.get(row["id"], {}))

        out = [*(map(read, rows) if is_one else batches.readable(read, rows))]
        before = {row["id"]: row["payoffs"] for row in rows}
        others = [row["id"] for row in out if before[row["id"]] not in (None, row["payoffs"])]
        if others:
            what = f"{len(others)} records tell another outcome than the resolutions of the venue, which count: "
            warn(what + ", ".join(others[:5]) + (", ..." if len(others) > 5 else "."), ServiceOddityWarning)
        return out

    def _prints(self, market: str, rng: Range) -> Iterator[Rows]:
        """Prints of a market, read back to the start of the range if the newest come first."""
        known = self._known(market)
        tokens = [token["id"] for token in known["tokens"]]
        params = {"condition": known["id"], "taker_only": "true", "limit": _TRADES}
        for page in self._print_pages(("v2", "trades"), "data", params, host="data"):
            found = (wire.condition_of(str(row.get("condition_id", row.get("conditionId")))) for row in page)
            gate.refuse_others(found, [known["id"]], "the market")
            gate.refuse_others((row.get("token_id", row.get("asset")) for row in page), tokens, "the token")
            times = convert([row.get("timestamp") for row in page], list[int], "The list of times of trades")
            gate.refuse_jumps(times, DAY // SECOND, f"the trades of {market}")
            yield page
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


def _market(row: Mapping[str, Any], event: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of a market of an answer, whose ids are those of the venue."""
    record = wire.market(row, event)
    wire.refuse_wrong_ids(record, "market")
    return record


def _event(row: Mapping[str, Any], kind: Literal["event", "series"] = "event") -> dict[str, Any]:
    """The record of an event or a series of an answer, whose ids are those of the venue."""
    record = wire.event(row)
    wire.refuse_wrong_ids(record, kind)
    return record


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


def _step(width: int) -> int:
    """The distance of the points of which buckets are made: minutes are asked for where buckets are below an hour."""
    return HOUR if width >= HOUR else MINUTE


SOURCE = Polymarket
