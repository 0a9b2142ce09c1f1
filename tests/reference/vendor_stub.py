"""A stub of the two vendors: their plans, error bodies and habits, each of which a test can switch."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from reference.faults import Act, Ask, ok

from marketdata.clock import SYSTEM
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, SECOND, Range, parse_iso, to_text

MISSING_EVERY = 11  # one bucket in so many has no point


@dataclass(frozen=True)
class Habits:
    """How a vendor answers where vendors differ."""

    resolutions: tuple[str, ...] = ("1m", "10m", "1h", "6h", "1d")
    finest: str = "1m"
    views: tuple[str, ...] = ("books", "prices", "metrics")
    history_days: int | None = None
    requests_per_minute: int = 60_000
    error: str = "detail"  # detail, error, message
    counts_buckets: bool = False
    largest_limit: int = 200
    listing_page: int = 1000
    repeats_boundary: bool = False
    refuses_future: bool = False
    hides_closed: bool = False
    lacks_token: bool = False
    usage: str = "texts"  # texts, numbers, lists, nulls
    knows_end: bool = True  # whether the last page has no cursor


FREE_PLAN_A = Habits(finest="10m", views=("prices", "metrics"), history_days=30, requests_per_minute=10)
STARTER_B = Habits(
    resolutions=("250ms", "1s", "60s", "1m", "5m", "10m", "15m", "1h", "6h", "1d"),
    finest="250ms",
    error="error",
    counts_buckets=True,
    listing_page=100,
    repeats_boundary=True,
    refuses_future=True,
    hides_closed=True,
    usage="numbers",
)


@dataclass
class VendorStub:
    """Answers for a `FaultServer`; ``paths`` counts what was requested, without the market."""

    habits: Habits
    markets: int = 3
    paths: Counter[str] = field(default_factory=Counter)

    labels = ("Up", "Down")

    @property
    def now(self) -> int:
        return int(SYSTEM.time()) * SECOND

    def __call__(self, ask: Ask) -> Act:
        self.paths[re.sub(r"/(markets|tokens)/[^/]+/", r"/\1/", ask.path)] += 1
        parts = ask.path.removeprefix("/v1/").split("/")
        if parts == ["usage"]:
            act = ok(self.usage())
        elif parts == ["markets"]:
            act = self.listing(ask.params)
        elif parts[0] == "markets" and not re.fullmatch(r"m?\d+", parts[1]):
            act = self.refuse(404, f"Market not found: {parts[1]}")
        elif parts[0] == "markets" and len(parts) == 2:
            act = ok(self.record(int(parts[1].removeprefix("m")), single=True))
        elif parts[0] == "markets" and len(parts) == 3:
            act = self.history(parts[1].removeprefix("m"), parts[2], ask.params)
        else:
            act = self.refuse(404, "Not Found")
        return act.with_header("Date", format_datetime(datetime.fromtimestamp(self.now / SECOND, UTC), usegmt=True))

    def refuse(self, status: int, text: str) -> Act:
        bodies = {"detail": {"detail": text}, "error": {"error": "refused", "message": text}}
        return Act(status=status, body=json.dumps(bodies.get(self.habits.error, {"message": text})).encode())

    def usage(self) -> dict[str, Any]:
        habits = self.habits
        days: Any = habits.history_days
        limits: dict[str, Any] = {"requests_per_minute": habits.requests_per_minute, "requests_remaining": None}
        if habits.usage == "texts":
            limits |= {"granularity_allowed": habits.finest, "max_history_days": str(days or "unlimited")}
        elif habits.usage == "lists":
            allowed = [name for name in habits.resolutions if self.allows(name)]
            limits |= {"granularity_allowed": allowed, "max_history_days": days}
        elif habits.usage == "numbers":
            limits |= {"max_history_days": days}
        else:
            limits |= {"granularity_allowed": None, "max_history_days": None, "requests_per_day": "none"}
        return {"plan": "a plan", "limits": limits}

    def allows(self, resolution: str) -> bool:
        return BucketWidth.of(resolution).micros >= BucketWidth.of(self.habits.finest).micros

    def record(self, k: int, *, single: bool = False) -> dict[str, Any]:
        tokens = [{"id": f"{k}-{label}", "label": label} for label in self.labels]
        is_closed = k % 3 == 2
        record = {"id": str(k), "slug": f"m{k}", "question": f"Question {k}?", "tokens": tokens, "winner": None}
        record |= {"status": "closed" if is_closed else "open", "is_resolved": is_closed}
        return record | ({"winner": "Up"} if single and is_closed else {})

    def listing(self, params: dict[str, str]) -> Act:
        limit = int(params["limit"])
        if limit > self.habits.listing_page:
            return self.refuse(400, f"limit must be <= {self.habits.listing_page}")
        rows = [self.record(k) for k in range(self.markets)]
        if self.habits.hides_closed and params.get("include_closed") != "true":
            rows = [row for row in rows if row["status"] == "open"]
        first = int(params.get("cursor", "0"))
        following = str(first + limit) if first + limit < len(rows) else None
        return ok({"data": rows[first : first + limit], "metadata": {"next_cursor": following}})

    def history(self, market: str, view: str, params: dict[str, str]) -> Act:
        habits, limit = self.habits, int(params["limit"])
        start, end = parse_iso(params["start_ts"]), parse_iso(params["end_ts"])
        if params["resolution"] not in habits.resolutions:
            return self.refuse(400, f"resolution must be one of {', '.join(habits.resolutions)}")
        if view not in habits.views:
            return self.refuse(403, "Your plan does not allow historical order books")
        if not self.allows(params["resolution"]):
            words = f"Your plan does not allow {params['resolution']} granularity. Minimum: {habits.finest}"
            return self.refuse(403, words)
        if habits.history_days is not None and start < self.now - habits.history_days * DAY:
            first = to_text(self.now - habits.history_days * DAY)
            words = {
                "detail": f"Your plan allows up to the last {habits.history_days} days of historical data",
                "error": f"History window exceeds your starter plan (max {habits.history_days} days). "
                f"Earliest allowed start_ts is {first}.",
            }
            return self.refuse(403, words.get(habits.error, words["error"]))
        if limit > habits.largest_limit:
            words = {"detail": f"limit too large. Requested: {limit}, Maximum: {habits.largest_limit}"}
            return self.refuse(400, words.get(habits.error, f"limit must be <= {habits.largest_limit}"))
        if habits.refuses_future and end > self.now:
            return self.refuse(400, "end_ts must not be in the future")
        return ok(self.page(market, view, params["resolution"], Range(start, end), limit, params.get("cursor")))

    def page(
        self, market: str, view: str, resolution: str, rng: Range, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        width = BucketWidth.of(resolution).micros
        most = limit if self.habits.counts_buckets or view == "metrics" else limit // len(self.labels)
        first = rng.start // width if cursor is None else int(cursor[1:])
        buckets: list[int] = []
        for bucket in self.buckets(first, min(rng.end, self.now), width):
            if len(buckets) == most:
                following: str | None = f"c{buckets[-1] if self.habits.repeats_boundary else bucket}"
                break
            buckets.append(bucket)
        else:
            following = None
        points = {
            label: [{"t": to_text(b * width), **self.point(view, market, k, b)} for b in buckets]
            for k, label in enumerate(self.labels)
        }
        count = len(buckets) * (1 if self.habits.counts_buckets or view == "metrics" else len(self.labels))
        head = {
            "market_id": market,
            "resolution": resolution,
            "metadata": {"count": count, "limit": limit, "next_cursor": following},
        }
        if view == "metrics":
            return {**head, "data": points[self.labels[0]]}
        known = self.labels[: -1 if self.habits.lacks_token else None]
        return {**head, "tokens": {label: f"{market}-{label}" for label in known}, "data": points}

    def buckets(self, first: int, end: int, width: int) -> Iterator[int]:
        return (bucket for bucket in range(first, -(-end // width)) if bucket % MISSING_EVERY)

    def point(self, view: str, market: str, k: int, bucket: int) -> dict[str, Any]:
        number = (bucket * 7 + k * 13 + int(market) * 3) % 89
        if view == "prices":
            return {"p": (number + 5) / 100}
        if view == "metrics":
            return {"volume": number / 10, "liquidity": number * 2, "spread": 0.01}
        bids = [[(number + 3 - level) / 100, 10 + level] for level in range(number % 3)]
        asks = [[(number + 6 + level) / 100, 20 + level] for level in range(bucket % 3)]
        return {"bids": bids, "asks": asks}

    def rows(self, view: str, market: str, resolution: str, rng: Range) -> list[tuple[Any, ...]]:
        """All points by a plain loop: label, time [microseconds] and the values of each."""
        market = market.removeprefix("m")
        width = BucketWidth.of(resolution).micros
        return [
            (label, bucket * width, self.point(view, market, k, bucket))
            for k, label in enumerate(self.labels if view != "metrics" else self.labels[:1])
            for bucket in self.buckets(rng.start // width, rng.end, width)
        ]
