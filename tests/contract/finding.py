"""A market that has history, and some hours in which it has some, found by asking."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from reference.web import Web

from marketdata.times import parse_iso, to_text

SECOND = 1_000_000
HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
MOST_MARKETS = 200
# Days to look back; a plan that refuses the longest may allow a shorter one.
LOOKBACK = (1_100, 90, 7, 1)
Found = tuple[dict[str, Any], str, str]


def find(web: Web, market: str | None = None) -> Found | None:
    """A market with prices and books at 1m, else one with prices; three hours at the end of its history."""
    second_best = None
    for record in _markets(web, market):
        for end in _ends(web, record):
            hour = _last_hour(web, record, end)
            if hour is None:
                continue
            found = record, to_text(hour - 2 * HOUR), to_text(hour + HOUR)
            if not _count(web, "prices", *found):
                continue
            if _count(web, "books", *found):
                return found
            second_best = second_best or found
    return second_best


def _markets(web: Web, market: str | None) -> Iterator[dict[str, Any]]:
    if market:
        yield web.get(f"/v1/markets/{market}").body
        return
    listed = (record for body in web.walk("/v1/markets", limit=100) for record in body["data"])
    for record in itertools.islice(listed, MOST_MARKETS):
        if 0 < len(record.get("tokens") or ()) <= 200:
            yield record


def _ends(web: Web, record: dict[str, Any]) -> list[int]:
    """Where the history of a market may end: when it closed, when it was to end, and now."""
    now = int(time.time()) * SECOND
    detail = web.get(f"/v1/markets/{record['id']}").body
    named = [parse_iso(detail[name]) for name in ("closed_at", "end_date") if detail.get(name)]
    return list(dict.fromkeys([*(t + HOUR for t in named if t < now), now]))


def _last_hour(web: Web, record: dict[str, Any], end: int) -> int | None:
    """Start of the last hour with a price before ``end``."""
    for days in LOOKBACK:
        day = _last_bucket(web, record, "1d", end - days * DAY, end)
        if day is not None:
            return _last_bucket(web, record, "1h", day, min(day + DAY, end))
    return None


def _last_bucket(web: Web, record: dict[str, Any], resolution: str, start: int, end: int) -> int | None:
    path, cursor, last = f"/v1/markets/{record['id']}/prices", None, None
    asked = {"resolution": resolution, "start_ts": to_text(start // HOUR * HOUR), "end_ts": to_text(end), "limit": 200}
    while True:
        answer = web.get(path, cursor=cursor, **asked)
        if answer.status != 200:
            return last
        times = [parse_iso(p["t"]) for rows in answer.body["data"].values() for p in rows if p["p"] is not None]
        last = max(times, default=last)
        cursor = answer.body["metadata"]["next_cursor"]
        if cursor is None:
            return last


def _count(web: Web, view: str, record: dict[str, Any], start: str, end: str) -> int:
    path = f"/v1/markets/{record['id']}/{view}"
    answer = web.get(path, start_ts=start, end_ts=end, resolution="1m", limit=200)
    return int(answer.body["metadata"]["count"]) if answer.status == 200 else 0
