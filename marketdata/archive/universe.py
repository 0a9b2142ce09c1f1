"""The markets that existed at a time, as far as their records tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.records import Record
from marketdata.points.views import View
from marketdata.times import first_time

# The states of a market that can no longer be traded.
_OVER = ("closed", "resolved")


def existed(
    records: Iterable[Record], at: int, stored: Callable[[], Mapping[str, int]], *, is_open: bool = False
) -> list[Record]:
    """The records of markets that had begun by a time [microseconds]; ``is_open``: and had not closed by then.

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
    over = record.get("status") in _OVER or record.get("resolved_token_id") is not None
    closed = first_time(record, "closed_at", "resolved_at", *(("end_date",) if over else ()))
    return closed is not None and closed <= at
