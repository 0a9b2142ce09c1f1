"""Lists the records of an archive by field, text or time, and sums up the archive in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import Any, NamedTuple

from marketdata.addresses import group_in
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.record_columns import Listing, Record
from marketdata.archive.records import ACTIVE_FIELDS, Catalog, active_times
from marketdata.archive.storage.files import FAR
from marketdata.archive.store import ArchiveStore
from marketdata.errors import EmptyRangeWarning, MarketDataError, warn
from marketdata.filters import SORTS, STATES
from marketdata.points.arguments import choice, text, texts, whole
from marketdata.points.records import (
    SEARCHED,
    STATE_FIELDS,
    in_order,
    searched_text,
    searched_words,
    sort_fields,
    state_of,
)
from marketdata.points.views import View
from marketdata.times import to_datetime


def listed(catalog: Catalog, search: str | None, **filters: str | None) -> Listing:
    """Records with these values of fields, and with all words in their texts; warns if none has them."""
    words = [] if search is None else searched_words(text("search", search, "words"))
    records = catalog.listing()
    for name, value in filters.items():
        if value is None:
            continue
        values = list(records.field(name))
        chosen = [place for place, one in enumerate(values) if one == text(name, value, "one")]
        if not chosen:
            similar = get_close_matches(value, {str(one) for one in values if one is not None}, n=3)
            hint = "Give search= to find them by words."
            if catalog.find(value) is not None:
                hint = f"It is one of the {catalog.kind} itself, which search={value!r} finds."
            elif similar:
                hint = f"Similar: {', '.join(map(repr, similar))}. {hint}"
            warn(f"No {catalog.kind} of the archive have {name}={value!r}.", EmptyRangeWarning, hint=hint)
        records = records.take(chosen)
    if not words:
        return records
    return _where(records, SEARCHED, lambda record: _has(searched_text(record), words))


def _where(records: Listing, names: Iterable[str], is_chosen: Callable[[Record], bool]) -> Listing:
    """The records for which a condition on some of their fields is true."""
    every = records.records([*names])
    return records.take([place for place, record in enumerate(every) if is_chosen(record)])


def _has(found: str, words: Iterable[str]) -> bool:
    return all(word in found for word in words)


class Chosen(NamedTuple):
    """Markets chosen as by `Archive.markets`."""

    event_slug: str | None = None
    search: str | None = None
    state: Any = None
    tags: Any = None
    sort: str | None = None
    max_rows: int | None = None

    def of(self, catalog: Catalog) -> Listing:
        """The records that are meant, in the order that is wanted."""
        states = set(map(partial(choice, "state", allowed=STATES), self._listed("state", self.state)))
        tags = {tag.casefold() for tag in self._listed("tags", self.tags)}
        sort = None if self.sort is None else choice("sort", self.sort, SORTS)
        most = None if self.max_rows is None else whole("max_rows", self.max_rows, 0)
        slug = None if self.event_slug is None else group_in(text("event_slug", self.event_slug, "one"))
        records = listed(catalog, self.search, event_slug=slug)
        if states := states or ({"open"} if sort == "volume_24h" else set()):
            records = _where(records, STATE_FIELDS, lambda record: state_of(record) in states)
        if tags:
            records = _where(
                records, ["tags"], lambda one: bool(tags & {str(tag).casefold() for tag in one["tags"] or ()})
            )
        places: Sequence[int] = range(len(records))
        if sort:
            names = sort_fields(sort)
            rows = [record | {"place": place} for place, record in enumerate(records.records(names))]
            places = [row["place"] for row in in_order(rows, sort)]
        return records if sort is None and most is None else records.take(places[:most])

    @staticmethod
    def _listed(name: str, value: Any) -> list[str]:
        return [] if value is None else texts(name, value, "one")


def existed(records: Listing, at: int, stored: Callable[[], Mapping[str, int]], *, is_open: bool = False) -> Listing:
    """The records of markets that had begun by a time [microseconds], and with ``is_open`` had not closed by then.

    A market begins at ``start_date``, else ``created_at``, else with the first row that is ``stored`` of it.
    """
    first = cache(stored)

    def is_there(record: Record) -> bool:
        began, closed = active_times(record)
        began = first().get(str(record["id"])) if began is None else began
        return began is not None and began <= at and not (is_open and closed is not None and closed <= at)

    return _where(records, ["id", *ACTIVE_FIELDS], is_there)


def first_rows(coverage: Mapping[View, Coverage]) -> dict[str, int]:
    """The start of the first stored range with rows of each market [microseconds]."""
    out: dict[str, int] = {}
    for stored in coverage.values():
        for market, records in stored.all().items():
            for record in records:
                if record.rows:
                    out[market] = min(out.get(market, record.start), record.start)
    return out


def line(store: ArchiveStore) -> str:
    """One line about the newest versions; the address alone where the archive cannot be read."""
    try:
        files = {view: table.version().files for view, table in store.points.items()}
        records, base = store.tables["markets"].version().files, store.base
    except MarketDataError:
        return f"Archive({store.root!r})"
    points = [file for version_files in files.values() for file in version_files]
    count = sum(file.rows for file in records)
    what = f"{count:,} market{'' if count == 1 else 's'}"
    times = [time for file in points if file.ts_max < FAR for time in (file.ts_min, file.ts_max)]
    if not times:
        return f"Archive({store.root!r}): {what}, no points"
    first, last = (f"{to_datetime(time):%Y-%m-%d %H:%M}" for time in (min(times), max(times)))
    views, size = ", ".join(str(view) for view in files if files[view]), sum(file.size for file in (*points, *records))
    return f"Archive({store.root!r}): {views} of {what}, {first} to {last} UTC at {base}, {size / 1e6:,.1f} MB"
