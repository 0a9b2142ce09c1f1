"""Listings of series, events and markets: filtered, sorted, and continued after the last record served."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

import polars as pl

from marketdata.decimals import to_number
from marketdata.points.records import RECORD_KINDS, SEARCHED, RecordKind, searched_text, searched_words
from marketdata.service.cursors import Cursors, Facts, invalid_cursor
from marketdata.service.parameters import EventQuery, ListingQuery, MarketQuery, SortField
from marketdata.times import first_time

if TYPE_CHECKING:
    from marketdata.archive.reading import Reader
    from marketdata.archive.record_columns import Listing

Record = dict[str, Any]
_TEXTS = (*get_args(SortField), "question", "category", "series_id", "series_slug", "event_id", "event_slug")
_DATES = {"start_date": "start", "end_date": "end", "closed_at": "closed"}


class Listings:
    """Listings of the records of an archive."""

    def __init__(self, archive: Reader, cursors: Cursors, clock: Callable[[], float]) -> None:
        self._archive, self._cursors, self._clock = archive, cursors, clock
        self._table_at = lru_cache(len(RECORD_KINDS))(self._read)

    def tags(self) -> list[str]:
        """Every tag in use, sorted."""
        tags = pl.concat([self._table(kind)[1]["tags"] for kind in RECORD_KINDS])
        return tags.explode().drop_nulls().unique().sort().to_list()

    def page(self, kind: RecordKind, query: ListingQuery) -> tuple[list[Record], str | None]:
        """Records of one page, and the cursor of the next; HTTPException 400 for the cursor of another listing."""
        chosen = query.model_dump(mode="json", exclude={"limit", "cursor"})
        facts: Facts = ("listing", kind, *map(str, chosen.values()))
        records, table = self._table(kind)
        field = "question" if (kind, query.sort) == ("markets", "title") else query.sort
        table = table.sort(field, "id", descending=[query.order == "desc", False], nulls_last=True)
        if query.cursor is not None:
            last_served = str(self._cursors.read(facts, query.cursor))
            at = next((row for row, identity in enumerate(table["id"]) if _mark(identity) == last_served), None)
            if at is None:
                raise invalid_cursor()
            table = table[at + 1 :]
        page = table.filter(*self._conditions(query)).head(query.limit + 1)
        next_cursor = self._cursors.issue(facts, _mark(page["id"][-2])) if len(page) > query.limit else None
        served = records.take(page["row"].head(query.limit).to_list()).parsed()
        return [_served(kind, record) for record in served], next_cursor

    def _table(self, kind: RecordKind) -> tuple[Listing, pl.DataFrame]:
        return self._table_at(kind, self._archive.version(kind))

    def _read(self, kind: RecordKind, _version: int) -> tuple[Listing, pl.DataFrame]:
        """All records of a kind, and a table with a row for each."""
        records = self._archive.listing(kind)
        columns = {name: _column(records, name, pl.String, _text) for name in _TEXTS}
        if kind != "markets":
            columns["title"] = pl.Series(map(_title, records.records(("title", "slug", "id"))), dtype=pl.String)
        columns |= {new: _column(records, name, pl.Int64, _time) for name, new in _DATES.items()}
        columns["tags"] = _column(records, "tags", pl.List(pl.String), _tags).fill_null([])
        columns["liquidity"] = _column(records, "liquidity", pl.Float64, _number)
        columns["searched"] = pl.Series(map(searched_text, records.records(SEARCHED)), dtype=pl.String)
        return records, pl.DataFrame(columns).with_row_index("row")

    def _conditions(self, query: ListingQuery) -> Iterator[pl.Expr]:
        """The conditions that a listed record meets."""
        compared: list[tuple[Callable[[Any], pl.Expr], Any]] = [
            (pl.col("status").eq, query.status),
            (pl.col("category").eq, query.category),
            (pl.col("start").ge, query.start_date_min),
            (pl.col("start").le, query.start_date_max),
            (pl.col("end").ge, query.end_date_min),
            (pl.col("end").le, query.end_date_max),
        ]
        if isinstance(query, EventQuery):
            yield from self._of_parent("series", "series_", query.series_id, query.series_slug)
        if isinstance(query, MarketQuery):
            yield from self._of_parent("events", "event_", query.event_id, query.event_slug)
            compared += [(pl.col("liquidity").ge, query.min_liquidity)]
            if not query.include_closed:
                has_closed = pl.col("closed").le(self._clock() * 1e6) | pl.col("status").is_in(["closed", "resolved"])
                yield ~has_closed.fill_null(value=False)
        yield from (compare(bound) for compare, bound in compared if bound is not None)
        if wanted := {tag.strip() for text in query.tags for tag in text.split(",")} - {""}:
            least = len(wanted) if query.tags_match == "all" else 1
            yield pl.col("tags").list.set_intersection(sorted(wanted)).list.len() >= least
        for word in searched_words(query.search or ""):
            yield pl.col("searched").str.contains(word, literal=True)

    def _of_parent(self, kind: RecordKind, prefix: str, parent_id: str | None, slug: str | None) -> Iterator[pl.Expr]:
        """A record names its parent by id or by slug; the parent's own record has both."""
        wanted = {f"{prefix}id": parent_id, f"{prefix}slug": slug}
        if is_parent := [pl.col(name) == text for name, text in wanted.items() if text is not None]:
            parents = self._table(kind)[1].select(pl.col("id", "slug").name.prefix(prefix)).filter(is_parent)
            for (name, text), other in zip(wanted.items(), reversed(wanted), strict=True):
                if text is not None:
                    yield pl.coalesce(pl.col(name) == text, pl.col(other).is_in(parents[other].drop_nulls().to_list()))


def with_outcome(record: Record) -> Record:
    """The record of a market with the names that some clients read its outcome by; its own values stay."""
    won = record.get("resolved_token_id")
    labels = {str(token["id"]): token.get("label") for token in record.get("tokens") or ()}
    is_resolved = won is not None or record.get("status") == "resolved" or record.get("payoffs") is not None
    named = {
        "public_id": record.get("id"),
        "is_resolved": is_resolved,
        "winner": record.get("resolved_token_label") or labels.get(str(won)),
        "volume": None,
    }
    return named | {name: value for name, value in record.items() if value is not None or name not in named}


def _served(kind: RecordKind, record: Record) -> Record:
    """A record as it is listed; derived from markets that name only a slug, it has no title, which clients expect."""
    return with_outcome(record) if kind == "markets" else {**record, "title": _title(record)}


def _title(record: Record) -> Any:
    return record.get("title") or record.get("slug") or record.get("id")


def _mark(identity: str) -> str:
    """A short name of an id, which may be too long for a cursor."""
    return hashlib.sha256(identity.encode()).hexdigest()[:24]


def _column(records: Listing, name: str, dtype: Any, read: Callable[[Any], Any]) -> pl.Series:
    """A field of all records: its column where that tells all of them, also of times; else each value as it is read."""
    values = records.field(name)
    if isinstance(values, list):
        return pl.Series([read(value) for value in values], dtype=dtype)
    is_text = isinstance(values.dtype, pl.Datetime) and dtype == pl.String
    return values.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ") if is_text else values.cast(dtype)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _time(value: object) -> int | None:
    return first_time({"time": value}, "time")


def _tags(value: object) -> list[str]:
    return [str(tag) for tag in value] if isinstance(value, list | tuple) else []


def _number(value: object) -> float | None:
    """A number as a float; None for anything else, and for one of 400 digits."""
    with suppress(ValueError):
        return None if math.isnan(number := to_number(value)) else number
    return None
