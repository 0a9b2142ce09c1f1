"""Prints of a file in parts of whole markets, in bounded memory; an archive has those of a market together then."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import polars as pl

# Rows that are in memory at a time; a market with more is cut between two times.
_PART_ROWS = 250_000


class PrintParts:
    """Takes in the prints of a file, and gives them back market after market; a context, as it has a folder."""

    def __init__(self) -> None:
        self._waiting: list[pl.DataFrame] = []
        self._rows = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[Path] = []
        self._counts = Counter[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def add(self, prints: pl.DataFrame) -> None:
        """Take in some prints, whose markets are known."""
        if not len(prints):
            return
        counts = prints["market_id"].value_counts()
        self._counts.update(dict(counts.iter_rows()))
        self._waiting.append(prints)
        self._rows += len(prints)
        if self._rows >= _PART_ROWS:
            self._spill()

    def parts(self) -> Iterator[pl.DataFrame]:
        """All prints, by whole markets; those of one token and time are together, in the order in which they came."""
        if not self._files:
            if self._waiting:
                yield pl.concat(self._waiting, how="diagonal_relaxed")
            return
        self._spill()
        every = pl.scan_parquet(self._files, missing_columns="insert", extra_columns="ignore", schema=self._schema())
        for first, last in self._ranges():
            rows = every.filter(pl.col("market_id").is_between(pl.lit(first), pl.lit(last)))
            if sum(self._counts[name] for name in (first, last)) < 2 * _PART_ROWS or first != last:
                yield rows.collect()
                continue
            for begin, end in self._times(rows, self._counts[first]):
                yield rows.filter(pl.col("ts") >= begin, pl.col("ts") < end).collect()

    def _spill(self) -> None:
        """Write what waits to a file, by market."""
        if not self._waiting:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="marketdata-prints-")
        rows = pl.concat(self._waiting, how="diagonal_relaxed").sort("market_id", maintain_order=True)
        self._waiting.clear()
        self._rows = 0
        path = Path(self._folder.name, f"{len(self._files):06d}.parquet")
        rows.write_parquet(path, compression="lz4", row_group_size=20_000)
        self._files.append(path)

    def _schema(self) -> dict[str, Any]:
        """The columns of all files."""
        out: dict[str, Any] = {}
        for path in self._files:
            for name, kind in pl.read_parquet_schema(path).items():
                out[name] = kind if out.get(name, pl.Null()) == pl.Null() else out[name]
        return out

    def _ranges(self) -> Iterator[tuple[str, str]]:
        """The first and last market of each part, in their order."""
        names, count = list[str](), 0
        for name in sorted(self._counts):
            if names and count + self._counts[name] > _PART_ROWS:
                yield names[0], names[-1]
                names, count = [], 0
            names.append(name)
            count += self._counts[name]
        if names:
            yield names[0], names[-1]

    @staticmethod
    def _times(rows: pl.LazyFrame, count: int) -> Iterator[tuple[int, int]]:
        """Ranges of time [microseconds] with about as many prints of one market as a part has."""
        ts = rows.select("ts").collect()["ts"].sort()
        edges = sorted({int(ts[place]) for place in range(0, count, _PART_ROWS)})
        yield from zip(edges, [*edges[1:], int(ts[-1]) + 1], strict=True)
