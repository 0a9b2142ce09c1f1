"""From what a user names to the requests that fetch it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from marketdata.errors import AuthenticationError, ConfigError, RateLimitError, RequestError, ServerError
from marketdata.fetch.plan import pages_of, tokens_of
from marketdata.fetch.planning import crew, segment
from marketdata.fetch.position import LARGEST_LIMIT, Kind, Request
from marketdata.fetch.transport import Transport
from marketdata.resolution import Resolution
from marketdata.times import Range, parse_iso
from marketdata.wire.columns import View

_ONE_PAGE = LARGEST_LIMIT // 2
_FEW_PAGES = 8


@dataclass(frozen=True, slots=True)
class Facts:
    """What discovery tells of a market: its tokens, and when it was alive [microseconds UTC]."""

    tokens: tuple[str, ...] = ("", "")
    labels: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    def alive(self, part: Range, width: int) -> bool:
        """Whether a part that no border cuts lies inside of the life."""
        begun = self.start is None or part.start >= self.start // width * width
        return begun and (self.end is None or part.start < self.end)


class Catalogue:
    """Looks markets up once; a service without discovery is no obstacle."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[str, Facts] = {}

    def facts(self, id_or_slug: str) -> Facts:
        """Facts of a market, or the common case where the service does not tell them."""
        if id_or_slug not in self._known:
            try:
                self._known[id_or_slug] = _facts(self._transport.get_json(("markets", id_or_slug)))
            except (AuthenticationError, RateLimitError, ServerError):
                raise
            except RequestError:
                # Unknown, no such route, or not for this key: the history request itself will tell which.
                self._known[id_or_slug] = Facts()
        return self._known[id_or_slug]

    def pages(self, request: Request) -> int:
        """Pages that a request will have, if every bucket has its points."""
        known = self._known.get(request.id, Facts())
        return pages_of(request, tokens_of(request, len(known.tokens)))

    def _look_up(self, ids: Sequence[str]) -> None:
        """Learn the facts of many markets side by side."""
        unknown = [i for i in ids if i not in self._known]
        if len(unknown) > 1:
            workers = min(len(unknown), crew(self._transport.pacer, self._transport.latency))
            with ThreadPoolExecutor(workers, thread_name_prefix="marketdata-facts") as pool:
                list(pool.map(self.facts, unknown))

    def requests(self, wanted: Sequence[Request], *, bounded: bool = False) -> list[Request]:
        """The requests cut into walks that keep the key's rate busy; too wide markets token by token.

        Stretches before and after a market's life are asked for too, for data can stand there, but uncut: where
        nothing is, one request says so.
        """
        self._look_up([r.id for r in wanted if r.kind == "market" and r.buckets > _ONE_PAGE])
        parts = [part for request in wanted for part in self._parts(request)]
        lively = [request for request, alive in parts if alive]
        tokens = {id_: len(facts.tokens) for id_, facts in self._known.items()}
        if sum(pages_of(r, tokens_of(r, tokens)) for r in lively) > _FEW_PAGES:
            # How many walks the rate asks for decides how many parts there must be.
            self._transport.learn_limits()
        busy = crew(self._transport.pacer, self._transport.latency)
        cut = iter(segment(lively, tokens, busy, bounded=bounded))
        out: list[Request] = []
        for request, alive in parts:
            out.append(next(cut) if alive else request)
            while out[-1].rng.end < request.rng.end:
                out.append(next(cut))
        return out

    def _parts(self, request: Request) -> list[tuple[Request, bool]]:
        """The request cut where the market's life begins and ends, and whether each part lies in it."""
        known = self._known.get(request.id, Facts())
        if request.kind == "token" or (request.buckets <= _ONE_PAGE and len(known.tokens) <= LARGEST_LIMIT):
            return [(_named(request, known), True)]
        facts = self.facts(request.id)
        width = request.resolution.micros
        borders = [b // width * width for b in (facts.start, facts.end) if b is not None]
        edges = [request.rng.start, *sorted({b for b in borders if request.rng.start < b < request.rng.end})]
        parts = [Range(a, b) for a, b in zip(edges, [*edges[1:], request.rng.end], strict=True)]
        asked = (
            by_token(request, facts)
            if request.view != "metrics" and len(facts.tokens) > LARGEST_LIMIT
            else [_named(request, facts)]
        )
        return [(replace(one, rng=part), facts.alive(part, width)) for one in asked for part in parts]


def wanted(view: View, kind: Kind, ids: Any, rng: Range, resolution: Resolution, limit: int) -> list[Request]:
    """One request per id, each id once.

    Raises
    ------
    ConfigError
        If it is no text or list of texts, or names nothing.
    """
    name = "market" if kind == "market" else "token_id"
    given = [ids] if isinstance(ids, str) else list(ids) if isinstance(ids, Iterable) else None
    if not given or not all(isinstance(i, str) and i for i in given):
        raise ConfigError(f"{name}={ids!r}: give an id{' or slug' if kind == 'market' else ''}, or a list of them.")
    return [Request(view, kind, i, rng, resolution, limit) for i in dict.fromkeys(map(str, given))]


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number in its bounds.

    Raises
    ------
    ConfigError
        If it is none.
    """
    if type(value) is not int or value < least or (most is not None and value > most):
        bounds = f"from {least} up" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name}={value!r}: give a whole number {bounds}.")
    return value


def by_token(request: Request, facts: Facts) -> list[Request]:
    """The request asked token by token."""
    return [replace(request, kind="token", id=token, labels=()) for token in facts.tokens]


def _named(request: Request, facts: Facts) -> Request:
    """The request with the labels that its pages will show; metrics have none."""
    return request if request.view == "metrics" or request.kind == "token" else replace(request, labels=facts.labels)


def _facts(record: Any) -> Facts:
    try:
        tokens = tuple(str(t["id"]) for t in record["tokens"])
        labels = tuple(dict.fromkeys(t["label"] for t in record["tokens"] if isinstance(t.get("label"), str)))
    except (KeyError, TypeError, AttributeError):
        tokens, labels = Facts().tokens, ()
    return Facts(tokens, labels, _time(record, "start_date"), _time(record, "end_date"))


def _time(record: Any, name: str) -> int | None:
    try:
        return parse_iso(record[name])
    except (KeyError, TypeError, ValueError):
        return None
