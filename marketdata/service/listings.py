"""Listings of series, events and markets: filtered, sorted, and continued after the last record served."""

from __future__ import annotations

import hashlib
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, count
from typing import TYPE_CHECKING, Any, Literal

from marketdata.archive.storage.parquet import Recent
from marketdata.points.records import KINDS, SEARCHED, RecordKind
from marketdata.service.errors import invalid_cursor
from marketdata.service.pagination import Cursors, Facts
from marketdata.service.parameters import ListingQuery, Order, SortField
from marketdata.times import parse_iso

if TYPE_CHECKING:
    from marketdata.archive import Archive

Record = dict[str, Any]
# Cached listings (8 bytes a record each), so that a later page costs no more than the first.
CACHED_LISTINGS = 64


@dataclass(frozen=True, slots=True)
class Parent:
    """The series or event that a listing is limited to."""

    field: Literal["series", "event"]
    id: str | None = None
    slug: str | None = None


class _Records:
    """The records of one kind at one version of the archive, with cached listings."""

    def __init__(self, version: int, records: list[Record]) -> None:
        self.version = version
        self.records = sorted(records, key=lambda r: str(r.get("id")))
        # Short names of records for cursors; ids may be long.
        self.marks = [hashlib.sha256(str(r.get("id")).encode()).hexdigest()[:24] for r in self.records]
        self.places = {mark: place for place, mark in enumerate(self.marks)}
        self.orders: dict[tuple[str, str], list[int]] = {}
        # Where the records that pass the filters stand in their order, rising.
        self.listings = Recent[Facts, "array[int]"](CACHED_LISTINGS)

    @cached_property
    def words(self) -> list[str]:
        return [" ".join(str(r[name]) for name in SEARCHED if r.get(name) is not None).casefold() for r in self.records]

    @cached_property
    def dates(self) -> dict[str, list[int | None]]:
        """Start and end dates [microseconds]; None without a valid one."""
        return {name: [_micros(record.get(name)) for record in self.records] for name in ("start_date", "end_date")}

    @cached_property
    def tags(self) -> set[str]:
        return {tag for record in self.records for tag in _tags(record)}

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
        return sorted(set[str]().union(*(self._current(kind).tags for kind in KINDS)))

    def page(
        self, kind: RecordKind, query: ListingQuery, cursors: Cursors, parent: Parent | None = None
    ) -> tuple[list[Record], str | None]:
        """Records of one page, and the cursor of the next; HTTPException 400 if the cursor is of another listing."""
        facts = _facts(kind, query, parent)
        behind = None if query.cursor is None else cursors.read(facts, query.cursor)
        current = self._current(kind)
        order, listing, start = current.order(query.sort, query.order), self._listing(current, facts, query, parent), 0
        if behind is not None:
            place = current.places.get(behind)
            if place is None:
                raise invalid_cursor()
            start = bisect_right(listing, order.index(place))
        places = [order[rank] for rank in listing[start : start + query.limit]]
        goes_on = start + query.limit < len(listing)
        following = cursors.give(facts, current.marks[places[-1]]) if goes_on else None
        return [current.records[place] for place in places], following

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

    def _listing(self, current: _Records, facts: Facts, query: ListingQuery, parent: Parent | None) -> array[int]:
        children = None
        if parent is not None and (parent.id is not None or parent.slug is not None):
            parents = self._current("series" if parent.field == "series" else "events")
            # The records of parents decide which children are theirs.
            facts, children = (*facts, parents.version), _is_child(parent, parents.records)
        found = current.listings.get(facts)
        if found is None:
            passes = _filter(query, current)
            order = current.order(query.sort, query.order)
            some = (passes(p) and (children is None or children(current.records[p])) for p in order)
            found = current.listings[facts] = array("q", compress(count(), some))
        return found


def _filter(query: ListingQuery, current: _Records) -> Callable[[int], bool]:
    words = (query.search or "").casefold().split()
    combine = any if query.tags_match == "any" else all
    tags, bounds = query.wanted_tags, query.bounds

    def passes(place: int) -> bool:
        record = current.records[place]
        return (
            (query.status is None or record.get("status") == query.status)
            and all(word in current.words[place] for word in words)
            and (not tags or combine(tag in _tags(record) for tag in tags))
            and all(
                (date := current.dates[name][place]) is not None and low <= date <= high for name, low, high in bounds
            )
        )

    return passes


def _is_child(parent: Parent, parents: list[Record]) -> Callable[[Record], bool]:
    """Whether a record names its parent by id or slug, which the parent's own record joins."""
    wanted = [r for r in parents if parent.id in (None, r.get("id")) and parent.slug in (None, r.get("slug"))]
    ids, slugs = ({r.get(name) for r in wanted} - {None} for name in ("id", "slug"))

    def test(record: Record) -> bool:
        by_id, by_slug = record.get(f"{parent.field}_id"), record.get(f"{parent.field}_slug")
        return (parent.id is None or (by_id == parent.id if by_id is not None else by_slug in slugs)) and (
            parent.slug is None or (by_slug == parent.slug if by_slug is not None else by_id in ids)
        )

    return test


def _facts(kind: RecordKind, query: ListingQuery, parent: Parent | None) -> Facts:
    bounds = [part for bound in query.bounds for part in bound]
    of = (None, None) if parent is None else (parent.id, parent.slug)
    shown = (query.search, query.sort, query.order, query.status, ",".join(query.wanted_tags), query.tags_match)
    return ("listing", kind, *of, *shown, *bounds)


def _value(record: Record, name: str) -> Any:
    found = record.get(name)
    return record.get("question") if found is None and name == "title" else found


def _tags(record: Mapping[str, Any]) -> Iterable[str]:
    found = record.get("tags")
    return [str(tag) for tag in found] if isinstance(found, list | tuple) else []


def _micros(text: Any) -> int | None:
    try:
        return parse_iso(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None
