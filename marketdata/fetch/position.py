"""Where a walk stands: what was asked, what arrived, what is left. All of it plain data that can be pickled."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Literal

import numpy as np

from marketdata.fetch.shown import html_table
from marketdata.resolution import Resolution
from marketdata.times import Range, to_text
from marketdata.wire.columns import AnyColumns, BookColumns, PriceColumns, View
from marketdata.wire.validation import REPAIRS as PAGE_REPAIRS

Kind = Literal["market", "token"]
LARGEST_LIMIT = 200
_REPAIRS = PAGE_REPAIRS | {"duplicate_points", "outside_range", "points_sorted", "limit_raised"}
# True of real markets, and no fault of anybody.
_OBSERVED = frozenset({"null_value", "crossed_book", "locked_book", "size_not_positive"})


@dataclass(frozen=True, slots=True)
class Request:
    """One history question (interface 4.1).

    Attributes
    ----------
    view : {"books", "prices", "metrics"}
    kind : {"market", "token"}
    id : str
        Id or slug of the market, or id of the token.
    rng : Range
        Half-open, microseconds UTC.
    resolution : Resolution
    limit : int
        Points per page, 1 to 200.
    labels : tuple of str
        Labels of the market's tokens, where its record is known: all must be seen to pass.
    """

    view: View
    kind: Kind
    id: str
    rng: Range
    resolution: Resolution
    limit: int = LARGEST_LIMIT
    labels: tuple[str, ...] = ()

    @property
    def segments(self) -> tuple[str, str, str]:
        """Path below ``/v1``."""
        return f"{self.kind}s", self.id, self.view

    @property
    def first_bucket(self) -> int:
        """Start of the bucket that holds the start of the range [microseconds UTC]."""
        return self.rng.start // self.resolution.micros * self.resolution.micros

    @property
    def buckets(self) -> int:
        """Buckets that the range touches."""
        return -(-(self.rng.end - self.first_bucket) // self.resolution.micros)

    def __str__(self) -> str:
        return f"{self.view} of {self.kind} {self.id} at {self.resolution} in {self.rng}"


@dataclass
class Report:
    """What fetching did beside fetching.

    Attributes
    ----------
    repairs : Counter of str
        Deterministic fixes by name: duplicates dropped, points sorted, ...
    warnings : Counter of str
        Oddities whose data was kept.
    observed : Counter of str
        Facts of the data worth a count: null values, crossed books.
    requests, retries, restarts, pages, points : int
    """

    repairs: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    observed: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    retries: int = 0
    restarts: int = 0
    pages: int = 0
    points: int = 0

    def _repr_html_(self) -> str:
        counts = [(name, f"{getattr(self, name):,}") for name in ("requests", "retries", "restarts", "pages", "points")]
        named = {"repaired": self.repairs, "odd": self.warnings, "observed": self.observed}
        return html_table([*counts, *((f"{kind}: {n}", f"{c:,}") for kind, of in named.items() for n, c in of.items())])

    def note(self, notes: Mapping[str, int]) -> list[str]:
        """Count oddities; the names of those that strict mode refuses."""
        refused = []
        for name, count in notes.items():
            if name in _OBSERVED or name.startswith("unknown_field:"):
                self.observed[name] += count
                continue
            refused.append(name)
            (self.repairs if name in _REPAIRS else self.warnings)[name] += count
        return refused

    def add(self, other: Report) -> None:
        """Take over the counts of another report."""
        for counts, more in (
            (self.repairs, other.repairs),
            (self.warnings, other.warnings),
            (self.observed, other.observed),
        ):
            counts.update(more)
        self.requests += other.requests
        self.retries += other.retries
        self.restarts += other.restarts
        self.pages += other.pages
        self.points += other.points


@dataclass
class Position:
    """How far a walk has come.

    Attributes
    ----------
    request : Request
    asked : Range
        The range that the cursor belongs to; shorter than the request's after a restart by time.
    cursor : str or None
    limit : int
    market_id : str or None
    labels : dict
        Token label to id, as seen so far.
    seen : dict
        label -> t -> digest of every point that arrived.
    held : columns or None
        Points of buckets that were still open: the last version of them wins.
    in_time_order : bool
        Whether no page went back behind the ones before.
    risen : bool
        Whether a cursor has led forward in time.
    falls, late : bool
        Whether a page was not sorted, and whether the first one lies nearer to the end of the range than to its start:
        signs of a service that gives the newest points first.
    """

    request: Request
    asked: Range
    cursor: str | None = None
    limit: int = LARGEST_LIMIT
    market_id: str | None = None
    labels: dict[str, str | None] = field(default_factory=dict)
    seen: dict[str, dict[int, bytes]] = field(default_factory=dict)
    held: AnyColumns | None = None
    last: int | None = None
    in_time_order: bool = True
    risen: bool = False
    falls: bool = False
    late: bool = False
    pages: int = 0
    page_limit: int | None = None
    fruitless: int = 0
    stalls: int = 0
    cursors: set[bytes] = field(default_factory=set)

    @classmethod
    def start(cls, request: Request) -> Position:
        """Before the first page."""
        return cls(request, request.rng, limit=request.limit)

    @property
    def safe_start(self) -> int:
        """A time from which asking again without the cursor loses nothing [microseconds UTC].

        That is the last bucket received, unless points came, or might come, label after label instead of
        bucket after bucket: a label without points yet may have all of them ahead. Nor if they may come newest first.
        """
        rising = self.in_time_order and (self.risen or not (self.falls or self.late))
        whole = rising and all(self.seen.get(label) for label in (*self.labels, *self.request.labels))
        if self.last is None or not whole:
            return self.request.rng.start
        return max(self.request.rng.start, self.last)

    @property
    def remaining(self) -> Range:
        """What is left of the request."""
        return Range(self.safe_start, self.request.rng.end)

    @property
    def page_bound(self) -> int:
        """More pages than this no honest walk has."""
        limit = self.limit if not self.page_limit or self.page_limit < 1 else min(self.limit, self.page_limit)
        return -(-self.request.buckets * max(1, len(self.labels)) // limit) * 2 + 50


@dataclass(frozen=True, repr=False)
class Resume:
    """What ``client.resume`` takes to go on after what had arrived. It holds no key and no connection.

    Attributes
    ----------
    positions : tuple of Position
        One per request that is not complete, in order.
    """

    positions: tuple[Position, ...]

    @property
    def cursor(self) -> str | None:
        """The cursor of the first walk that is left."""
        return self.positions[0].cursor if self.positions else None

    @property
    def remaining(self) -> tuple[Range, ...]:
        """What is left of each request."""
        return tuple(p.remaining for p in self.positions)

    def __repr__(self) -> str:
        return f"<Resume: {self}>"

    def __str__(self) -> str:
        parts = [
            f"{p.request.view} of {p.request.kind} {p.request.id} from {to_text(p.safe_start)}" for p in self.positions
        ]
        return "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more" if len(parts) > 5 else "")


def digests(columns: AnyColumns) -> list[bytes]:
    """Eight bytes per entry that differ where the values differ; -0.0 equals 0.0."""
    if isinstance(columns, PriceColumns) and not columns.extra:
        data = (columns.price + 0.0).tobytes()
        return [data[i : i + 8] for i in range(0, len(data), 8)]
    if isinstance(columns, BookColumns):
        data = (columns.levels + 0.0).tobytes()
        sides = columns.counts.reshape(-1, 2)
        ends = np.cumsum(sides.sum(axis=1)) * 16
        out, begin = [], 0
        for end, bids in zip(ends.tolist(), sides[:, 0].tolist(), strict=True):
            out.append(_digest(data[begin:end] + bids.to_bytes(8, "little")))
            begin = end
        return out
    names = sorted(columns.values)
    rows = zip(*((columns.values[n] + 0.0).tolist() for n in names), strict=True)
    return [_digest(repr([(n, v) for n, v in zip(names, row, strict=True) if not isnan(v)]).encode()) for row in rows]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()
