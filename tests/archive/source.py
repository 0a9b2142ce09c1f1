"""A source to pull from that lies in memory: revisable points, a clock that jumps, answers that stop midway."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
from reference.columns import coded_books, coded_series, levels_of

from marketdata.archive.feed import Feed
from marketdata.points.columns import Books, Data, Series, Token
from marketdata.points.views import View, empty
from marketdata.times import Range, to_text

MINUTE = 60_000_000
START = 1_750_000_020_000_000 // MINUTE * MINUTE
MARKETS = ("m/1", "M/1")
TOKENS = {m: (Token(m, f"{m}-yes" + "7" * 70, "Yes"), Token(m, f"{m}-no", "No")) for m in MARKETS}
Key = tuple[View, str, int, int]  # view, market, token position, minute since START


class CutError(Exception):
    """The connection is gone."""


class Source(Feed):
    """What ``Archive.pull`` asks of a client, answered from a dict of points.

    A point is a price, or (volume, liquidity), or (bids, asks) with a list of levels each.
    """

    def __init__(self) -> None:
        self.points: dict[Key, Any] = {}
        self.now = START + 10_000 * MINUTE
        self.requests: list[tuple[str, str, Range]] = []
        self.cut_after: int | None = None
        self.page = 7
        self.proves_its_end = True
        self.listed = list(MARKETS)

    def health(self) -> dict[str, Any]:
        return {"status": "ok", "timestamp": to_text(self.now)}

    def market(self, id_or_slug: str) -> dict[str, Any]:
        self.requests.append(("market", id_or_slug, Range(0, 0)))
        market = next(m for m in self.listed if id_or_slug in (m, f"slug-{m}"))
        tokens = [{"id": t.token_id, "label": t.token_label} for t in tokens_of(market)]
        return {"id": market, "slug": f"slug-{market}", "question": None, "event_slug": "e", "tokens": tokens}

    def markets(self, event_slug: str | None = None, search: str = "") -> list[dict[str, Any]]:
        self.requests.append(("markets", event_slug or search, Range(0, 0)))
        return [self.market(m) for m in self.listed if search in m]

    def events(self, series_slug: str) -> list[dict[str, Any]]:
        self.requests.append(("events", series_slug, Range(0, 0)))
        return [{"id": "1", "slug": "e", "title": "E", "series_slug": series_slug}]

    def market_records(self, names: Any) -> list[dict[str, Any]]:
        return [self.market(name) for name in names if any(name in (m, f"slug-{m}") for m in self.listed)]

    def iter_columns(
        self, asked: Iterable[tuple[View, str, Range]], resolution: str = "1m", *, progress: Any = None
    ) -> Generator[tuple[int, Range, Data, bool], None, None]:
        assert resolution == "1m"
        pages = 0
        for k, (view, market, rng) in enumerate(asked):
            for at in range(rng.start, rng.end, self.page * MINUTE):
                if self.cut_after is not None and pages >= self.cut_after:
                    raise CutError
                done = Range(at, min(at + self.page * MINUTE, rng.end))
                self.requests.append((view, market, done))
                pages += 1
                yield k, done, self.columns(view, market, done), self.proves_its_end or done.end < rng.end

    def columns(self, view: View, market: str, rng: Range) -> Data:
        minutes = range(-(-(rng.start - START) // MINUTE), -(-(rng.end - START) // MINUTE))
        keys = [(token, n) for token in (0, 1) for n in minutes if (view, market, token, n) in self.points]
        return columns_of(view, market, keys, [self.points[view, market, *key] for key in keys])

    @property
    def asked(self) -> list[tuple[str, str, Range]]:
        return [r for r in self.requests if r[0] in ("books", "prices", "metrics")]


def tokens_of(market: str) -> tuple[Token, Token]:
    """The tokens of a market."""
    return TOKENS.get(market) or (Token(market, f"{market}-yes", "Yes"), Token(market, f"{market}-no", "No"))


def columns_of(view: View, market: str, keys: list[tuple[int, int]], values: list[Any]) -> Data:
    if not keys:
        return empty(view)
    token = np.array([k[0] for k in keys], np.int32)
    ts = np.array([START + k[1] * MINUTE for k in keys], np.int64)
    if view == "prices":
        return coded_series(tokens_of(market), token, ts, {"price": np.array(values, float)}).sort()
    if view == "metrics":
        volume, liquidity = np.array(values, float).T
        spread = np.full(len(keys), np.nan)
        named = {"volume": volume, "liquidity": liquidity, "spread": spread}
        return coded_series((Token(market),), np.zeros(len(keys), np.int32), ts, named)
    counts = np.array([len(side) for v in values for side in v], np.int64)
    levels = np.array([level for v in values for side in v for level in side], float).reshape(-1, 2)
    return coded_books(tokens_of(market), token, ts, counts, levels).sort()


def points_of(view: View, columns: Data) -> dict[Key, Any]:
    """The dict that columns stand for."""
    out: dict[Key, Any] = {}
    ends = np.cumsum(columns.counts) if isinstance(columns, Books) else None
    for i, (code, ts) in enumerate(zip(columns.token.tolist(), columns.ts.tolist(), strict=True)):
        who = columns.tokens[code]
        place = 0 if view == "metrics" else tokens_of(who.market_id).index(who)
        key: Key = (view, who.market_id, place, (ts - START) // MINUTE)
        assert key not in out, f"{key} is there twice"
        if isinstance(columns, Books):
            assert ends is not None
            spans = [(ends[j] - columns.counts[j], ends[j]) for j in (2 * i, 2 * i + 1)]
            out[key] = tuple([tuple(x) for x in levels_of(columns)[a:b].tolist()] for a, b in spans)
        elif view == "prices":
            assert isinstance(columns, Series)
            out[key] = float(columns.price[i])
        else:
            assert isinstance(columns, Series)
            out[key] = (float(columns.values["volume"][i]), float(columns.values["liquidity"][i]))
    return out
