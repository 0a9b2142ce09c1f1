"""The historical market data service (interface 4) as a source."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel

from marketdata.errors import (
    BadRequestError,
    ConfigError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    ParameterError,
    TooManyTokensError,
)
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.sources import batches
from marketdata.fetch.windows import WORTH_DIVIDING, IdKind, Window
from marketdata.points.columns import Data, Page, Series, Trades, joined
from marketdata.points.duplicates import repeated
from marketdata.points.records import names_of
from marketdata.points.views import View
from marketdata.resolution import BucketWidth, micros_of
from marketdata.times import Range
from marketdata.vendors import largest_limit
from marketdata.wire import models
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT


class Interface:
    """A service that answers the interface, at the address of a transport; see `Source`."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.stream_address: str | None = None
        self.base_url, self.service, self.pacer = transport.base_url, transport.service, transport.pacer
        self.learn_limits, self.close = transport.learn_limits, transport.close
        self._limits: dict[tuple[View, str], int] = {}  # the smallest limit that a market needs
        self._largest_limit = LARGEST_LIMIT  # that the service takes
        self._facts: dict[str, str | None] = {}  # the market that an id or slug names, the token that a label names
        self._lock = threading.Lock()

    limits = property(lambda self: self.transport.limits)
    latency = property(lambda self: self.transport.latency)
    server_time = property(lambda self: self.transport.server_time)

    def __reduce__(self) -> tuple[type[Interface], tuple[Transport]]:
        return Interface, (self.transport,)

    def pages(
        self, window: Window, report: Report | None = None, stop: threading.Event | None = None
    ) -> Iterator[Page]:
        """The pages of a window by their cursors, token after token if a bucket of the market does not fit a page."""
        name = window.view, window.id
        limit = max(min(window.limit, self._largest_limit), self._limits.get(name, 1))
        window = replace(window, limit=limit)

        def bound(page: Page) -> int:
            least = page.limit if page.limit and 1 <= page.limit < limit else limit
            return -(-window.buckets * max(1, len(page.labels)) // least) * 2 + 50

        try:
            yield from paginate(partial(self._page, window, report, stop), keys_of, window, bound)
        except TooManyTokensError:
            tokens = [] if window.kind == "token" else self.record(window.id).get("tokens") or []
            if len(tokens) <= LARGEST_LIMIT:
                raise
            for token in tokens:
                yield from self.pages(replace(window, kind="token", id=token["id"]), report, stop)
        except BadRequestError as error:
            is_small = isinstance(error, LimitTooSmallError)
            if is_small and error.minimum is not None and limit < error.minimum <= LARGEST_LIMIT:
                self._limits[name] = error.minimum
            elif not is_small and error.maximum is not None and 1 <= error.maximum < limit:
                self._largest_limit = error.maximum
            else:
                raise
            if report is not None:
                with self._lock:
                    report.note({"limit_raised" if is_small else "limit_lowered": 1})
            yield from self.pages(window, report, stop)

    def requests(self, window: Window, tokens: int) -> int:
        """One request per page of whole buckets; the second page may begin with a bucket of the first."""
        page = max(1, window.limit // tokens)
        return max(1, math.ceil((window.buckets + (window.buckets > WORTH_DIVIDING * page)) / page))

    def trades(self, market: str, rng: Range, kind: IdKind = "market") -> Iterator[Trades]:  # noqa: ARG002
        """The interface has no prints."""
        raise self.service.lacks("trades")

    def prints(self, market: str, rng: Range) -> Generator[tuple[Range, Trades], None, None]:  # noqa: ARG002
        """See `trades`."""
        raise self.service.lacks("trades")

    def candles(self, market: str, rng: Range, resolution: BucketWidth, report: Report | None = None) -> Series:  # noqa: ARG002
        """The interface has no candles."""
        raise self.service.lacks("candles")

    def now(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:  # noqa: ARG002
        """The interface has the buckets of the present as any others."""
        raise ConfigError(f"{self.service.name} has no {view} of this moment; ask for the last bucket.")

    def _page(self, window: Window, report: Report | None, stop: threading.Event | None, cursor: str | None) -> Page:
        miscounted: list[Data] = []

        def decode(answer: Answer) -> Page:
            page = decode_page(window.view, answer.body)
            self.transport.check_cursor(page.next_cursor)
            self._check(window, page)
            per_token = np.diff(page.columns.bounds).max(initial=0)
            if page.count not in (page.points, len(np.unique(page.columns.ts)), per_token):
                # If the answer repeats, the service counts differently; if it differs, points get lost.
                miscounted.append(page.columns)
                if len(miscounted) < 2 or not _are_same(*miscounted):
                    raise ContractError(f"{window}: metadata.count is {page.count}, not {page.points}.")
                page.notes["count_mismatch"] += 1
            page.notes.update(answer.notes)
            page.notes["limit_clamped"] += page.limit is not None and page.limit < window.limit
            return replace(page, date=answer.date)

        params = {**window.params, "cursor": cursor}
        return self.transport.read(window.segments, params, decode, counts=report, stop=stop)

    def _check(self, window: Window, page: Page) -> None:
        """ContractError for an answer about another resolution, market or token than requested or answered before."""
        if micros_of(page.resolution) != window.resolution.micros:  # in any spelling: "60s" is "1m"
            raise ContractError(f"{window}: the answer has the resolution {page.resolution!r}.")
        facts: dict[str, str | None] = {f"the market of {window.kind} {window.id!r}": page.market_id}
        facts |= {f"token {label!r} of market {page.market_id!r}": token for label, token in page.labels.items()}
        for what, value in facts.items():
            if (before := self._facts.setdefault(what, value)) != value:
                raise ContractError(f"{window}: {what} was {before!r} and is now {value!r}.")
        gate.refuse_shared_tokens(page.labels.values(), page.market_id)
        if window.kind == "token" and page.labels and set(page.labels.values()) != {window.id}:
            raise ContractError(f"{window}: the answer is about the tokens {list(page.labels.values())[:3]}.")

    def get(self, *segments: str, model: type[BaseModel] = models.Body) -> dict[str, Any]:
        """A record of the service by its path."""
        what = f"The answer of {'/'.join(segments)}"
        return self.transport.get_json(segments, None, lambda body: models.parse(model, body, what).model_dump())

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market."""
        record = models.listed("markets", self.get("markets", market, model=models.MarketDetail))
        gate.refuse_shared_tokens((token["id"] for token in record["tokens"]), record["id"])
        named = {*names_of(record), *(str(one) for one in record.values() if isinstance(one, str | int))}
        if market.strip().casefold() not in {one.casefold() for one in named}:
            raise ContractError(f"The answer is about the market {record['id']!r}, and was asked for {market!r}.")
        return record

    def similar(self, name: str) -> Iterator[list[str]]:
        """The slugs that have one of the two longest words of a name, then those of the first page."""
        words = sorted(name.replace("_", "-").split("-"), key=len, reverse=True)
        for search in [*words[:2], None]:
            with suppress(MarketDataError):
                listed = self.records("markets", {"search": search}, max_rows=100)
                yield [str(record["slug"]) for record in listed if isinstance(record.get("slug"), str)]

    def health(self) -> dict[str, Any]:
        """Whether the service is up."""
        return self.get("health", model=models.Health)

    def usage(self) -> dict[str, Any]:
        """Plan of the key and what is left of it."""
        usage = self.get("usage")
        self.transport.follow(usage)
        return usage

    def tags(self) -> list[str]:
        """Every tag in use."""
        return list(self.get("tags", model=models.Tags)["data"])

    def records(
        self,
        kind: str,
        filters: Mapping[str, str | None],
        max_rows: int | None = None,
        page_size: int | None = None,
        report: Report | None = None,
    ) -> list[dict[str, Any]]:
        """Records of a listing, page after page, each id once; one that cannot be read is left out, and counted."""
        if max_rows == 0:
            return []
        with batches.noted() as left_out:
            rows = self._listed(kind, filters, max_rows, page_size)
        if report is not None:
            report.leave_out_all(left_out)
        return rows

    def _listed(
        self, kind: str, filters: Mapping[str, str | None], max_rows: int | None, page_size: int | None
    ) -> list[dict[str, Any]]:
        known = batches.Distinct()
        rows = known.rows
        size = page_size or self.service.listing_page

        def check(body: Any) -> models.Listing:
            page = models.parse(models.Listing, body, f"The answer of {kind}")
            self.transport.check_cursor(page.next_cursor)
            return page

        def ask(cursor: str | None) -> Any:
            nonlocal size
            limit = size if max_rows is None else min(size, max_rows - len(rows))
            try:
                return self.transport.get_json((kind,), {**filters, "limit": limit, "cursor": cursor}, check)
            except (BadRequestError, ParameterError) as error:
                allowed = largest_limit(error.detail)
                if allowed is None or not 1 <= allowed < limit:
                    raise
                size = allowed  # fewer than this service was thought to give
                return ask(cursor)

        for page in paginate(ask, lambda page: (str(row.get("id")) for row in page.data), f"the listing of {kind}"):
            for row in batches.readable(partial(_record, kind), page.data):
                # A record comes again if the listing moves between two pages; the later one is the newer.
                name = row.get("id")
                known.add(len(rows) if name is None else str(name), row)
            if max_rows is not None and len(rows) >= max_rows:
                break
        return list(rows.values())[:max_rows]


def _record(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a listing."""
    record = models.listed(kind, row)
    tokens = record.get("tokens")
    ids = [token.get("id") for token in tokens if isinstance(token, Mapping)] if isinstance(tokens, list) else []
    gate.refuse_shared_tokens(ids, str(record.get("id")))
    return record


def keys_of(page: Page) -> Iterable[Hashable]:
    """(label, t) of each point."""
    columns = page.columns
    labels = [token.token_label for token in columns.tokens]
    return ((labels[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True))


def _are_same(first: Data, second: Data) -> bool:
    """Whether both have the same points with the same values."""
    again, is_equal = repeated(joined([first, second]).sort())
    return len(again) == len(first) == len(second) and bool(is_equal.all())
