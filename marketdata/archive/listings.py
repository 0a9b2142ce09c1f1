"""Records of an archive that a listing asks for: by a field, by words, or those that existed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from marketdata.archive.catalog import Catalog
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.records import Record
from marketdata.errors import EmptyRangeWarning, warn
from marketdata.points.arguments import text
from marketdata.points.records import SEARCHED, RecordKind
from marketdata.points.views import View
from marketdata.times import first_time
from marketdata.typing import FrameKind


def listed(catalog: Catalog, search: str | None, filters: Mapping[str, str | None]) -> list[Record]:
    """Records with these values of fields, and with a text in id, slug, question or title; warns if none has them."""
    words = "" if search is None else text("search", search, "words").casefold()
    given = {name: text(name, value, "one") for name, value in filters.items() if value is not None}
    records = catalog.records()
    for name, value in given.items():
        _warn_unknown(catalog, records, name, value)
    chosen = [record for record in records if all(record.get(name) == value for name, value in given.items())]
    return [r for r in chosen if not words or any(words in str(r.get(name) or "").casefold() for name in SEARCHED)]


def _warn_unknown(catalog: Catalog, records: Sequence[Record], name: str, value: str) -> None:
    values = {str(record[name]) for record in records if record.get(name) is not None}
    if value in values:
        return
    similar = ", ".join(map(repr, get_close_matches(value, values, n=3)))
    hint = f"{similar and f'Similar: {similar}. '}Give search= to find them by words."
    if catalog.find(value) is not None:
        hint = f"It is one of the {catalog.kind} itself, which search={value!r} finds."
    warn(f"No {catalog.kind} of the archive have {name}={value!r}.", EmptyRangeWarning, hint=hint)


def records_frame(kind: RecordKind, records: Sequence[Record], frame: FrameKind) -> Any:
    """Records as a frame of a kind."""
    from marketdata.accessor import register
    from marketdata.tidy.records import to_frame

    register(frame)
    return to_frame(kind, records, frame)


def existed(
    records: Iterable[Record], at: int, stored: Callable[[], Mapping[str, int]], *, is_open: bool = False
) -> list[Record]:
    """The records of markets that had begun by a time [microseconds], and with ``is_open`` had not closed by then.

    A market begins at ``start_date``, else ``created_at``, else with the first row that is ``stored`` of it.
    """
    first = cache(stored)
    out = []
    for record in records:
        began = first_time(record, "start_date", "created_at")
        began = first().get(str(record["id"])) if began is None else began
        if began is not None and began <= at and not (is_open and _closed_by(record, at)):
            out.append(record)
    return out


def first_rows(coverage: Mapping[View, Coverage]) -> dict[str, int]:
    """The start of the first stored range with rows of each market [microseconds]."""
    out: dict[str, int] = {}
    for stored in coverage.values():
        for market, records in stored.all().items():
            for record in records:
                if record.rows:
                    out[market] = min(out.get(market, record.start), record.start)
    return out


def _closed_by(record: Record, at: int) -> bool:
    """Whether trading had ended by then; a market that is over and does not say when had its scheduled end."""
    over = record.get("status") in ("closed", "resolved") or record.get("resolved_token_id") is not None
    closed = first_time(record, "closed_at", "resolved_at", *(("end_date",) if over else ()))
    return closed is not None and closed <= at
