"""Listings of series, events and markets: filtered, sorted, and continued after the last record served."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from marketdata.points.records import KINDS, SEARCHED, RecordKind
from marketdata.service.cursors import Cursors, Facts
from marketdata.service.errors import invalid_cursor
from marketdata.service.parameters import EventQuery, ListingQuery, MarketQuery
from marketdata.times import first_time, parse_seconds

if TYPE_CHECKING:
    from marketdata.archive.reader import Reader

Record = dict[str, Any]
Condition = Callable[[Record], bool]


class SortedRecords(NamedTuple):
    """All records of a kind in one order, and the place of each by its mark."""

    records: list[Record]
    places: dict[str, int]


def mark_of(record: Record) -> str:
    """A short name of a record for cursors, because ids may be long."""
    return hashlib.sha256(str(record.get("id")).encode()).hexdigest()[:24]


class Listings:
    """Listings of the records of an archive."""

    def __init__(self, archive: Reader) -> None:
        self._archive = archive
        self._sorted_at = lru_cache(8)(self._sort)
        self._tags_at = lru_cache(1)(self._read_tags)

    def records(self, kind: RecordKind) -> list[Record]:
        """All records of a kind; events and series have a title."""
        return self._sorted(kind, "updated_at", "desc").records

    def tags(self) -> list[str]:
        """Every tag in use, sorted."""
        return self._tags_at(*(self._archive.version(kind) for kind in KINDS))

    def page(
        self, kind: RecordKind, query: ListingQuery, cursors: Cursors, now: float
    ) -> tuple[list[Record], str | None]:
        """Records of one page, and the cursor of the next; HTTPException 400 for the cursor of another listing."""
        chosen = query.model_dump(mode="json", exclude={"limit", "cursor"})
        facts: Facts = ("listing", kind, *map(str, chosen.values()))
        records, places = self._sorted(kind, query.sort, query.order)
        start = 0
        if query.cursor is not None:
            last_served = str(cursors.read(facts, query.cursor))
            if last_served not in places:
                raise invalid_cursor()
            start = places[last_served] + 1
        conditions = list(self._conditions(query, now))
        matching = (r for r in islice(records, start, None) if all(condition(r) for condition in conditions))
        page = list(islice(matching, query.limit + 1))
        if len(page) <= query.limit:
            return page, None
        return page[:-1], cursors.issue(facts, mark_of(page[-2]))

    def _sorted(self, kind: RecordKind, by: str, order: str) -> SortedRecords:
        return self._sorted_at(kind, by, order, self._archive.version(kind))

    def _sort(self, kind: RecordKind, by: str, order: str, _version: int) -> SortedRecords:
        """By a field, then by id; records without the field come last."""
        records = sorted(self._archive.records(kind), key=lambda r: str(r.get("id")))
        if kind != "markets":
            # Derived from markets that name only a slug they have no title, which clients expect.
            records = [{**r, "title": r.get("title") or r.get("slug") or r.get("id")} for r in records]
        name = "question" if by == "title" and kind == "markets" else by
        with_field = [r for r in records if r.get(name) is not None]
        with_field.sort(key=lambda r: str(r[name]), reverse=order == "desc")
        ordered = with_field + [r for r in records if r.get(name) is None]
        return SortedRecords(ordered, {mark_of(record): place for place, record in enumerate(ordered)})

    def _read_tags(self, *_versions: int) -> list[str]:
        return sorted({tag for kind in KINDS for record in self.records(kind) for tag in _tags(record)})

    def _conditions(self, query: ListingQuery, now: float) -> Iterator[Condition]:
        """The conditions that a listed record meets."""
        if query.status is not None:
            yield lambda record: record.get("status") == query.status
        if wanted := query.wanted_tags:
            least = len(wanted) if query.tags_match == "all" else 1
            yield lambda record: len(wanted & _tags(record)) >= least
        for bounds in query.date_bounds:
            yield partial(_is_within, *bounds)
        if words := (query.search or "").casefold().split():
            yield lambda record: all(word in _searched_text(record) for word in words)
        if isinstance(query, EventQuery):
            yield from self._of_parent("series", "series", query.series_id, query.series_slug)
        if isinstance(query, MarketQuery):
            yield from self._of_parent("events", "event", query.event_id, query.event_slug)
            if not query.include_closed:
                yield lambda record: not _is_closed(record, now)
            if query.category is not None:
                yield lambda record: record.get("category") == query.category
            if query.min_liquidity is not None:
                yield partial(_is_liquid, query.min_liquidity)

    def _of_parent(
        self, kind: RecordKind, name: str, parent_id: str | None, parent_slug: str | None
    ) -> Iterator[Condition]:
        """Whether a record names its parent, by id or by slug: the parent's own record has both."""
        if parent_id is None and parent_slug is None:
            return
        parents = [
            parent
            for parent in self.records(kind)
            if parent_id in (None, parent.get("id")) and parent_slug in (None, parent.get("slug"))
        ]
        ids, slugs = ({parent.get(field) for parent in parents} - {None} for field in ("id", "slug"))

        def is_child(record: Record) -> bool:
            named_id, named_slug = record.get(f"{name}_id"), record.get(f"{name}_slug")
            has_id = named_id == parent_id if named_id is not None else named_slug in slugs
            has_slug = named_slug == parent_slug if named_slug is not None else named_id in ids
            return (parent_id is None or has_id) and (parent_slug is None or has_slug)

        yield is_child


def _is_within(field: str, low: int, high: int, record: Record) -> bool:
    date = first_time(record, field)
    return date is not None and low <= date <= high


def _is_liquid(least: float, record: Record) -> bool:
    liquidity = record.get("liquidity")
    return isinstance(liquidity, int | float) and liquidity >= least


def _is_closed(record: Record, now: float) -> bool:
    closed_at = first_time(record, "closed_at")
    is_past = closed_at is not None and closed_at <= parse_seconds(f"{now:.6f}")
    return is_past or record.get("status") in ("closed", "resolved")


def _searched_text(record: Record) -> str:
    return " ".join(str(record[name]) for name in SEARCHED if record.get(name) is not None).casefold()


def _tags(record: Record) -> set[str]:
    tags = record.get("tags")
    return {str(tag) for tag in tags} if isinstance(tags, list | tuple) else set()
