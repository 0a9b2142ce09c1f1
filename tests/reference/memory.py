"""A small archive in memory that says the aggregation rules a second time, as plain loops."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
from reference.columns import coded_books, coded_series

from marketdata.archive.reading import Reader
from marketdata.archive.record_columns import Listing
from marketdata.points.columns import METRICS, Data, Token
from marketdata.points.records import RecordKind
from marketdata.points.views import View, empty
from marketdata.resolution import Resolution
from marketdata.times import Range, to_datetime

MINUTE = 60_000_000
Book = tuple[list[tuple[float, float]], list[tuple[float, float]]]


class MemoryArchive(Reader):
    """Base points by view, market, token and minute, with the methods that the service asks of an archive."""

    location = "memory://"
    base = "1m"  # type: ignore[assignment]

    def __init__(self, *, simulated: bool = False) -> None:
        self.simulated = simulated
        self._records: dict[str, list[dict[str, Any]]] = {"series": [], "events": [], "markets": []}
        self.points: dict[tuple[str, str], dict[tuple[str | None, int], Any]] = defaultdict(dict)
        self._version = 0

    def add_record(self, kind: str, **record: Any) -> None:
        self._records[kind].append(record)
        self._version += 1

    def add_market(self, market_id: str, tokens: dict[str, str], **more: Any) -> None:
        listed = [{"id": token_id, "label": label} for label, token_id in tokens.items()]
        slug = more.pop("slug", f"slug-of-{market_id}")
        self.add_record("markets", id=market_id, slug=slug, question=f"Will {market_id}?", tokens=listed, **more)

    def put(self, view: View, market_id: str, token_id: str | None, ts: int, value: Any) -> None:
        assert ts % MINUTE == 0
        self.points[view, market_id][token_id, ts] = value
        self._version += 1

    def version(self, view: View) -> int:
        return self._version

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [dict(r) for r in self._records[kind]]

    def listing(self, kind: RecordKind) -> Listing:
        return Listing.of(kind, self.records(kind))

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        for field in ("id", "slug"):
            for record in self._records["markets"]:
                if record.get(field) == id_or_slug:
                    return dict(record)
        return None

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        for record in self._records["markets"]:
            for token in record["tokens"]:
                if token["id"] == token_id:
                    return dict(record), token["label"]
        return None

    def stored_ranges(self, view: View, market_id: str, rng: Range) -> list[Range]:
        times = sorted({ts for _, ts in self.points[view, market_id] if rng.start <= ts < rng.end})
        return [Range(ts, ts + MINUTE) for ts in times]

    def coverage(self) -> pl.DataFrame:
        rows = [
            (view, market, to_datetime(ts), to_datetime(ts + MINUTE), "final", 1)
            for (view, market), points in self.points.items()
            for ts in sorted({ts for _, ts in points})
        ]
        time = pl.Datetime("us", "UTC")
        schema = {"view": pl.String, "market_id": pl.String, "start": time, "end": time, "state": pl.String}
        return pl.DataFrame(rows, schema={**schema, "rows": pl.Int64}, orient="row")

    def columns(
        self,
        view: View,
        market_id: str,
        rng: Range | None = None,
        resolution: str = "1m",
        token_id: str | None = None,
    ) -> Data:
        width = Resolution.of(resolution).micros
        buckets: dict[tuple[str | None, int], list[Any]] = defaultdict(list)
        for (token, ts), value in sorted(self.points[view, market_id].items(), key=lambda item: item[0][1]):
            if rng is not None and not rng.start <= ts < rng.end:
                continue
            if token_id is None or token == token_id:
                buckets[token, ts // width * width].append(value)
        return self._to_columns(view, market_id, buckets)

    def _to_columns(self, view: View, market_id: str, buckets: dict[tuple[str | None, int], list[Any]]) -> Data:
        if not buckets:
            return empty(view)
        record = self.find_market(market_id) or {"tokens": []}
        label_of = {t["id"]: t["label"] for t in record["tokens"]}
        who = {t: Token(market_id, t, label_of.get(t)) if t else Token(market_id) for t, _ in buckets}
        tokens = tuple(sorted(who.values(), key=lambda t: t.sort_key))
        keys = sorted(buckets, key=lambda k: (tokens.index(who[k[0]]), k[1]))
        token = np.array([tokens.index(who[t]) for t, _ in keys], dtype=np.int32)
        ts = np.array([at for _, at in keys], dtype=np.int64)
        if view == "books":
            books: list[Book] = [buckets[k][-1] for k in keys]
            counts = np.array([n for bids, asks in books for n in (len(bids), len(asks))], dtype=np.int64)
            levels = np.array([level for book in books for side in book for level in side], dtype=float)
            return coded_books(tokens, token, ts, counts, levels.reshape(-1, 2))
        if view == "prices":
            return coded_series(tokens, token, ts, {"price": np.array([mean(buckets[k]) for k in keys])})
        names = dict.fromkeys([*METRICS, *(name for points in buckets.values() for p in points for name in p)])
        values = {name: np.array([mean([p.get(name) for p in buckets[k]]) for k in keys]) for name in names}
        return coded_series(tokens, token, ts, values)


def mean(values: list[float | None]) -> float:
    """Sum over count, nulls left out."""
    given = [v for v in values if v is not None and not math.isnan(v)]
    return sum(given) / len(given) if given else math.nan
