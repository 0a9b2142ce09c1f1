"""A service with other readings of what the interface leaves open, to try `Client.verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from marketdata.archive.reading import Reader
from marketdata.errors import ConfigError
from marketdata.points.columns import Books, Data, Series, joined
from marketdata.points.resample import aggregate
from marketdata.points.views import View
from marketdata.resolution import Resolution
from marketdata.service.pages import Pages, ServedPage, Subject
from marketdata.service.server import Service
from marketdata.times import Range

# What can be switched; the first choice of each is the reading of this service.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "label": ("start", "end"),
    "averages": ("points", "means", "last"),
    "books": ("last", "first"),
    "empty": ("absent", "null", "previous"),
    "limit": ("points", "times"),
}


def vary(service: Service, variants: Mapping[str, str]) -> None:
    """Let a running service answer under other readings; ConfigError if a variant does not exist."""
    state = service.application.state.service
    state.pages = _VariedPages(
        state.archive, {name: choice for name, choice in variants.items() if _checked(name, choice)}
    )


def _checked(name: str, choice: str) -> bool:
    if choice not in VARIANTS.get(name, ()):
        allowed = "; ".join(f"{key}: {', '.join(choices)}" for key, choices in VARIANTS.items())
        raise ConfigError(f"variants={{{name!r}: {choice!r}}} does not exist; allowed are {allowed}.")
    return choice != VARIANTS[name][0]


class _VariedPages(Pages):
    def __init__(self, source: Reader, variants: Mapping[str, str]) -> None:
        super().__init__(_Varied(source, variants) if variants else source)
        self._by_times = "limit" in variants
        self._by_end = "label" in variants

    def page(self, subject: Subject, rng: Range, limit: int, position: int | None = None) -> ServedPage:
        if self._by_times:
            out = _cut(super().page(subject, rng, limit * max(1, subject.tokens), position), limit)
        else:
            out = super().page(subject, rng, limit, position)
        if self._by_end:
            width = subject.width.micros
            out.parts = [replace(columns, ts=columns.ts + width) for columns in out.parts]
        return out


def _cut(page: ServedPage, limit: int) -> ServedPage:
    times = np.unique(np.concatenate([columns.ts for columns in page.parts] or [np.empty(0, np.int64)]))
    page.count = min(len(times), limit)
    if len(times) > limit:
        page.position = int(times[limit])
        kept = [columns.take(np.flatnonzero(columns.ts < times[limit])) for columns in page.parts]
        page.parts = [columns for columns in kept if len(columns)]
    return page


class _Varied:
    """An archive that aggregates by other rules."""

    def __init__(self, source: Reader, variants: Mapping[str, str]) -> None:
        self._source = source
        self._variants = variants

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def columns(
        self, view: View, market_id: str, rng: Range | None, resolution: Any, token_id: str | None = None
    ) -> Data:
        width = Resolution.of(resolution)
        fill = view != "books" and self._variants.get("empty")
        # What fills the start of a range may be before it.
        base = self._source.columns(view, market_id, None if fill else rng, Resolution.M1, token_id)
        rule = self._variants.get("books", "last") if view == "books" else self._variants.get("averages", "points")
        out = aggregate(base, width, rule)
        out = _filled(out, width.micros, carry=fill == "previous") if fill else out
        return out if rng is None else out.between(rng.start // width.micros * width.micros, rng.end)


def _filled(columns: Data, width: int, *, carry: bool) -> Data:
    assert not isinstance(columns, Books)
    parts = []
    for i in range(len(columns.tokens)):
        own = columns.part(i, i + 1)
        grid = np.arange(own.ts[0], own.ts[-1] + 1, width)
        before = np.searchsorted(own.ts, grid, side="right") - 1
        empty = own.ts[before] != grid
        values = {n: np.where(empty & (not carry), np.nan, v[before]) for n, v in own.values.items()}
        parts.append(Series(own.tokens, np.array([0, len(grid)]), grid, values))
    return joined(parts) if parts else columns
