"""Listings of series, events and markets: filtered, sorted, and continued after the last record served."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from marketdata.points.records import KINDS, SEARCHED, RecordKind
from marketdata.service.errors import invalid_cursor
from marketdata.service.pagination import Cursors, Facts
from marketdata.service.parameters import EventQuery, ListingQuery, MarketQuery, Order, SortField
from marketdata.times import first_time

if TYPE_CHECKING:
    from marketdata.archive import Archive

Record = dict[str, Any]
# Whether a listing has a record, which is named by its place.
Passes = Callable[[int], bool]


class _Records:
    """The records of one kind at one version of the archive."""

    def __init__(self, version: int, records: list[Record]) -> None:
        self.version = version
        self.records = sorted(records, key=lambda r: str(r.get("id")))
        # Short names of records for cursors; ids may be long.
        self.marks = [hashlib.sha256(str(r.get("id")).encode()).hexdigest()[:24] for r in self.records]
        self.places = {mark: place for place, mark in enumerate(self.marks)}
        self.orders: dict[tuple[str, str], list[int]] = {}
        self._fields: dict[str, list[Any]] = {}

    def field(self, name: str) -> list[Any]:
        """The value of a field of each record, or None."""
        if name not in self._fields:
            self._fields[name] = [record.get(name) for record in self.records]
        return self._fields[name]

    @cached_property
    def words(self) -> list[str]:
        return [" ".join(str(r[name]) for name in SEARCHED if r.get(name) is not None).casefold() for r in self.records]

    @cached_property
    def dates(self) -> dict[str, list[int | None]]:
        """Start and end dates [microseconds]; None without a valid one."""
        return {name: [first_time(record, name) for record in self.records] for name in ("start_date", "end_date")}

    @cached_property
    def tags(self) -> list[set[str]]:
        return [set(_tags(record)) for record in self.records]

    def order(self, by: SortField, order: Order) -> list[int]:
        """Places of the records in the order of a field; those without it come last."""
        found = self.orders.get((by, order))
        if found is None:
            values = [_value(record, by) for record in self.records]
            texts = [str(value or "") for value in values]
            found = sorted(range(len(values)), key=texts.__getitem__, reverse=order == "desc")
            found.sort(key=lambda place: values[place] is None)
            self.orders[by, order] = found
        return found


class Listings:
    """Listings of the records of an archive."""

    def __init__(self, source: Archive) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._by_kind: dict[RecordKind, _Records] = {}

    def records(self, kind: RecordKind) -> list[Record]:
        """All records; events and series have a title."""
        return self._current(kind).records

    def warm(self) -> None:
        """Read and sort the records for the first request."""
        for kind in KINDS:
            self._current(kind).order("updated_at", "desc")

    def tags(self) -> list[str]:
        """Every tag in use, sorted."""
        return sorted(set[str]().union(*(tags for kind in KINDS for tags in self._current(kind).tags)))

    def page(self, kind: RecordKind, query: ListingQuery, cursors: Cursors) -> tuple[list[Record], str | None]:
        """Records of one page, and the cursor of the next; HTTPException 400 if the cursor is of another listing."""
        facts: Facts = ("listing", kind, *query.model_dump(exclude={"limit", "cursor"}).values())
        behind = None if query.cursor is None else cursors.read(facts, query.cursor)
        current, start = self._current(kind), 0
        order = current.order(query.sort, query.order)
        if behind is not None:
            place = current.places.get(behind)
            if place is None:
                raise invalid_cursor()
            start = order.index(place) + 1
        # Each page looks on where the one before it ended, so that all of them look at each record once.
        some: Iterator[int] = islice(order, start, None)
        for passes in self._filters(query, current):
            some = filter(passes, some)
        places = list(islice(some, query.limit + 1))
        goes_on = len(places) > query.limit
        following = cursors.give(facts, current.marks[places[query.limit - 1]]) if goes_on else None
        return [current.records[place] for place in places[: query.limit]], following

    def _current(self, kind: RecordKind) -> _Records:
        version = self._source.version(kind)
        with self._lock:
            found = self._by_kind.get(kind)
            if found is None or found.version != version:
                records = self._source.records(kind)
                if kind != "markets":
                    # Derived from markets that name only a slug they have no title, which clients expect.
                    records = [{**r, "title": r.get("title") or r.get("slug") or r.get("id")} for r in records]
                found = self._by_kind[kind] = _Records(version, records)
            return found

    def _filters(self, query: ListingQuery, current: _Records) -> Iterator[Passes]:
        """The conditions of a query on records."""
        if isinstance(query, EventQuery):
            yield from self._children("series", "series", query.series_id, query.series_slug, current)
        if isinstance(query, MarketQuery):
            yield from self._children("events", "event", query.event_id, query.event_slug, current)
        if query.status is not None:
            states = current.field("status")
            yield lambda place: states[place] == query.status
        if tags := set(query.wanted_tags):
            least = len(tags) if query.tags_match == "all" else 1
            yield lambda place: len(tags & current.tags[place]) >= least
        for name, low, high in query.bounds:
            yield partial(_is_within, current.dates[name], low, high)
        for word in set((query.search or "").casefold().split()):
            yield partial(_has_word, current.words, word)

    def _children(
        self, kind: RecordKind, name: str, parent_id: str | None, slug: str | None, current: _Records
    ) -> Iterator[Passes]:
        """Whether a record names its parent by id or slug, which the parent's own record joins."""
        if parent_id is None and slug is None:
            return
        wanted = [r for r in self.records(kind) if parent_id in (None, r.get("id")) and slug in (None, r.get("slug"))]
        ids, slugs = ({r.get(field) for r in wanted} - {None} for field in ("id", "slug"))
        own_ids, own_slugs = current.field(f"{name}_id"), current.field(f"{name}_slug")

        def passes(place: int) -> bool:
            by_id, by_slug = own_ids[place], own_slugs[place]
            return (parent_id is None or (by_id == parent_id if by_id is not None else by_slug in slugs)) and (
                slug is None or (by_slug == slug if by_slug is not None else by_id in ids)
            )

        yield passes


def _is_within(dates: Sequence[int | None], low: int, high: int, place: int) -> bool:
    date = dates[place]
    return date is not None and low <= date <= high


def _has_word(texts: Sequence[str], word: str, place: int) -> bool:
    return word in texts[place]


def _value(record: Record, name: str) -> Any:
    found = record.get(name)
    return record.get("question") if found is None and name == "title" else found


def _tags(record: Mapping[str, Any]) -> Iterable[str]:
    found = record.get("tags")
    return [str(tag) for tag in found] if isinstance(found, list | tuple) else []
