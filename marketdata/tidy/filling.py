"""Buckets without data: rows for them only where somebody asks, and marked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import narwhals as nw
import numpy as np

from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.tidy.clock import FILLS, align
from marketdata.tidy.frames import to_columns, to_frame
from marketdata.tidy.kinds import is_local, kind_name, new_series, wrapped
from marketdata.tidy.runs import group_starts
from marketdata.tidy.schema import is_count
from marketdata.tidy.snapshots import closed, opened
from marketdata.wire.columns import BookColumns

F = TypeVar("F")


def check_fill(frame: Any, fill: str) -> None:
    """Refuse a fill that does not exist, or a frame that it can not be done for.

    Raises
    ------
    ConfigError
        Naming what is allowed.
    """
    if fill not in FILLS:
        raise ConfigError(f"fill={fill!r} does not exist; allowed are None (no row), 'null' and 'previous'.")
    if not is_local(wrapped(frame)):
        raise ConfigError(
            f"fill={fill!r} needs a pandas, polars or Arrow frame, not a {kind_name(frame)}; resample without "
            "fill, bring the result into memory, and fill it with md.resample(frame, resolution, fill=...)."
        )


def filled(frame: F, resolution: Resolution, fill: str) -> F:
    """Resampled rows, and marked ones for the buckets between the first and the last row that have none."""
    data = wrapped(frame)
    names = data.collect_schema().names()
    if "side" in names:
        return _books(frame, resolution, fill)
    out = opened(align(frame, str(resolution), fill=fill))
    counts = [c for c in names if is_count(c, names)]
    # What was not observed has no weight when means are taken again.
    out = out.with_columns(*(nw.when(nw.col("observed")).then(nw.col(c)).otherwise(0).alias(c) for c in counts))
    return closed(out.with_columns(nw.col(c).cast(nw.Int64) for c in counts), frame)  # type: ignore[no-any-return]


def _books(frame: F, resolution: Resolution, fill: str) -> F:
    data = opened(frame)
    eager = data.collect() if isinstance(data, nw.LazyFrame) else data
    columns = to_columns("books", eager.to_native())
    assert isinstance(columns, BookColumns)
    columns, observed = _on_grid(columns, resolution.micros, fill)
    out = nw.from_native(to_frame(columns, "pandas" if eager.implementation.is_pandas() else "polars"))
    rows = np.maximum(columns.counts, 1).reshape(-1, 2).sum(axis=1)
    out = out.with_columns(new_series(out, "observed", np.repeat(observed, rows)))
    return closed(out.lazy() if isinstance(data, nw.LazyFrame) else out, frame)  # type: ignore[no-any-return]


def _on_grid(books: BookColumns, width: int, fill: str) -> tuple[BookColumns, np.ndarray[Any, Any]]:
    """A snapshot of each token at each bucket, empty or the one before, and whether it was there."""
    if not len(books):
        return books, np.empty(0, bool)
    grid = np.arange(books.ts.min(), books.ts.max() + 1, width, dtype=np.int64)
    begins = group_starts(books.token)
    nothing = len(books)
    sources, observed = [], []
    for a, b in zip(begins, np.append(begins[1:], nothing), strict=True):
        at = np.searchsorted(books.ts[a:b], grid, side="right") - 1
        there = (at >= 0) & (books.ts[a:b][at] == grid)
        sources.append(np.where(there | (at >= 0 if fill == "previous" else False), at + a, nothing))
        observed.append(there)
    empty = replace(
        books,
        token=np.append(books.token, books.token[:1]),
        ts=np.append(books.ts, books.ts[:1]),
        counts=np.append(books.counts, [0, 0]),
    )
    out = empty.take(np.concatenate(sources))
    token, ts = np.repeat(books.token[begins], len(grid)), np.tile(grid, len(begins))
    return replace(out, token=token, ts=ts), np.concatenate(observed)
