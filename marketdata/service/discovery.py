"""Listings of series, events and markets: filter, sort, and go on behind the last record served."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from marketdata.service.chunks import Source
from marketdata.service.cursors import Cursors, Facts
from marketdata.service.queries import ListingQuery
from marketdata.service.refusals import invalid_cursor
from marketdata.times import parse_iso

Kind = Literal["series", "events", "markets"]
Record = dict[str, Any]
KINDS: tuple[Kind, ...] = ("series", "events", "markets")
# readings: "one market"; fields that a market's own page has beside those of a listing
DETAILS = ("description", "closed_at", "resolved_token_id", "resolved_token_label")
_SEARCHED = ("id", "slug", "title", "question")


@dataclass(frozen=True, slots=True)
class Parent:
    """The series of events, or the event of markets, that a listing is kept to."""

    field: Literal["series", "event"]
    id: str | None = None
    slug: str | None = None


class Catalogue:
    """Listings of the records of an archive."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def tags(self) -> list[str]:
        """Every tag in use, sorted."""
        found = (tag for kind in KINDS for r in self._source.records(kind) for tag in _tags(r))
        return sorted(set(found))

    def page(
        self, kind: Kind, query: ListingQuery, cursors: Cursors, parent: Parent | None = None
    ) -> tuple[list[Record], str | None]:
        """Records of one page, and the cursor of the next one.

        Raises
        ------
        Refusal
            400 if the cursor was not given for this listing.
        """
        found = sorted(self._source.records(kind), key=_text_of_id)
        found.sort(key=functools.partial(_sort_value, query.sort), reverse=query.order == "desc")
        found.sort(key=lambda r: _value(r, query.sort) is None)
        start = 0
        facts = _facts(kind, query, parent)
        if query.cursor is not None:
            behind = cursors.read(facts, query.cursor)
            start = 1 + next((i for i, r in enumerate(found) if _mark(r) == behind), len(found))
            if start > len(found):
                raise invalid_cursor()
        out: list[Record] = []
        for record in filter(self._test(query, parent), found[start:]):
            if len(out) == query.limit:
                return out, cursors.give(facts, _mark(out[-1]))
            out.append(record)
        return out, None

    def _test(self, query: ListingQuery, parent: Parent | None) -> Callable[[Record], bool]:
        tests: list[Callable[[Record], bool]] = []
        words = (query.search or "").casefold().split()
        if words:
            tests.append(lambda r: _has_words(r, words))
        if query.tags:
            combine = any if query.tags_match == "any" else all
            tests.append(lambda r: combine(tag in _tags(r) for tag in query.tags))
        for field, low, high in query.bounds:
            tests.append(functools.partial(_within, field, low, high))
        if parent is not None and (parent.id is not None or parent.slug is not None):
            tests.append(self._child_test(parent))
        return lambda r: all(test(r) for test in tests)

    def _child_test(self, parent: Parent) -> Callable[[Record], bool]:
        """Children name their parent by id, by slug or by both; the parent's own record joins the two."""
        parents = self._source.records("series" if parent.field == "series" else "events")
        wanted = [
            (r.get("id"), r.get("slug"))
            for r in parents
            if (parent.id is None or r.get("id") == parent.id) and (parent.slug is None or r.get("slug") == parent.slug)
        ]
        ids = {i for i, _ in wanted if i is not None}
        slugs = {s for _, s in wanted if s is not None}

        def is_child(record: Record) -> bool:
            by_id, by_slug = record.get(f"{parent.field}_id"), record.get(f"{parent.field}_slug")
            return (parent.id is None or (by_id == parent.id if by_id is not None else by_slug in slugs)) and (
                parent.slug is None or (by_slug == parent.slug if by_slug is not None else by_id in ids)
            )

        return is_child


def detail(record: Record) -> Record:
    """The record of one market, with the fields that only its own page has."""
    return {**dict.fromkeys(DETAILS), **record}


def _facts(kind: Kind, query: ListingQuery, parent: Parent | None) -> Facts:
    bounds = [part for bound in query.bounds for part in bound]
    of = (None, None) if parent is None else (parent.id, parent.slug)
    shown = [query.search, query.sort, query.order, ",".join(query.tags), query.tags_match]
    return ["listing", kind, *of, *shown, *bounds]


def _mark(record: Record) -> str:
    """A short name of a record for cursors; ids may be long."""
    return hashlib.sha256(_text_of_id(record).encode()).hexdigest()[:24]


def _text_of_id(record: Record) -> str:
    return str(record.get("id"))


def _value(record: Record, field: str) -> Any:
    found = record.get(field)
    return record.get("question") if found is None and field == "title" else found


def _sort_value(field: str, record: Record) -> str:
    return str(_value(record, field) or "")


def _tags(record: Mapping[str, Any]) -> Iterable[str]:
    found = record.get("tags")
    return [str(tag) for tag in found] if isinstance(found, list | tuple) else []


def _has_words(record: Record, words: list[str]) -> bool:
    text = " ".join(str(record[name]) for name in _SEARCHED if record.get(name) is not None).casefold()
    return all(word in text for word in words)


def _within(field: str, low: int, high: int, record: Record) -> bool:
    found = record.get(field)
    if not isinstance(found, str):
        return False
    try:
        return low <= parse_iso(found) <= high
    except (ValueError, OverflowError):
        return False
