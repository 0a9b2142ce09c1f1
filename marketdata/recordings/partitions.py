"""Rows of a large table, divided by market and time, so that each part fits into memory."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.points.columns import Ints

# Rows of a part; a table with fewer is one part, and stays in memory.
PART_ROWS = 1 << 19
_IDS = ("market_id", "slug", "token_id", "token_label")
_LAST = chr(0x10FFFF)


class Partitions:
    """Rows in their order, and afterwards the same rows in parts: whole buckets of whole markets, in order of markets.

    ``bucket`` is the width of a bucket [microseconds]. A market with too many rows is divided by time.
    """

    def __init__(self, bucket: int) -> None:
        self._bucket = bucket
        self._kept, self._rows = list[pl.DataFrame](), 0
        self._chunks = list[Path]()
        self._of_market = Counter[str]()
        self._bounds: dict[str, tuple[int, int]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="marketdata-import-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, at: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def add(self, rows: pl.DataFrame) -> None:
        """Add rows with ``ts`` [microseconds]."""
        if not rows.width:
            return
        # Few ids repeat, and numbers of them are short.
        self._kept.append(
            rows.with_columns(pl.col(n).cast(pl.Categorical) for n in _IDS if rows.schema.get(n) == pl.String)
        )
        self._rows += len(rows)
        if (self._chunks or self._rows > PART_ROWS) and sum(map(len, self._kept)) > PART_ROWS // 2:
            self._spill()

    @property
    def is_small(self) -> bool:
        """Whether all rows fit into memory."""
        return not self._chunks

    def whole(self) -> pl.DataFrame:
        """All rows of a small table."""
        return pl.concat(self._kept, how="diagonal_relaxed") if self._kept else pl.DataFrame()

    def _spill(self) -> None:
        rows = self.whole()
        markets = _markets_of(rows)
        counted = rows.select(market=markets, ts="ts").group_by("market").agg(
            pl.len(), pl.col("ts").min().alias("first"), pl.col("ts").max().alias("last")
        )  # fmt: skip
        for market, count, first, last in counted.cast({"market": pl.String}).iter_rows():
            self._of_market[market] += count
            before = self._bounds.get(market, (first, last))
            self._bounds[market] = min(first, before[0]), max(last, before[1])
        self._chunks.append(Path(self._folder.name, f"chunk-{len(self._chunks)}.arrow"))
        rows.write_ipc(self._chunks[-1], compression="lz4")
        self._kept.clear()

    def parts(self) -> Iterator[pl.DataFrame]:
        """The rows of each part, in their order."""
        if self._kept:
            self._spill()
        plan, pieces = self._plan()
        files: defaultdict[int, list[Path]] = defaultdict(list)
        for number, chunk in enumerate(self._chunks):
            rows = read_rows(chunk)
            begin, span, start = _of_each(_markets_of(rows), plan)
            part: Ints = begin + (rows["ts"].to_numpy() // self._bucket - start) // span
            for which in np.unique(part).tolist():
                path = Path(self._folder.name, f"part-{which}-{number}.arrow")
                rows.filter(part == which).write_ipc(path, compression="lz4")
                files[which].append(path)
            chunk.unlink()
        for which in range(pieces):
            yield pl.concat(map(read_rows, files[which]), how="diagonal_relaxed")
            for path in files[which]:
                path.unlink()

    def _plan(self) -> tuple[dict[str, tuple[int, int, int]], int]:
        """The first part of each market, its buckets in one part and its first bucket; and the number of parts."""
        plan, part, filled = dict[str, tuple[int, int, int]](), 0, 0
        for market, count in sorted(self._of_market.items()):
            begins, ends = (at // self._bucket for at in self._bounds[market])
            pieces = -(-count // PART_ROWS)
            if filled and (pieces > 1 or filled + count > PART_ROWS):
                part, filled = part + 1, 0
            span = -(-(ends - begins + 1) // pieces)
            plan[market] = part, span, begins
            part, filled = (part + (ends - begins) // span + 1, 0) if pieces > 1 else (part, filled + count)
        return plan, part + bool(filled)


def _of_each(markets: pl.Series, plan: Mapping[str, tuple[int, int, int]]) -> NDArray[np.int64]:
    """What is planned for the market of each row, in three rows."""
    codes = markets.to_physical().to_numpy()
    distinct = markets.unique()
    found = np.zeros((3, int(codes.max(initial=0)) + 1), np.int64)
    found[:, distinct.to_physical().to_numpy()] = np.array([plan[one] for one in distinct.cast(pl.String)]).T
    return found[:, codes]


def _markets_of(rows: pl.DataFrame) -> pl.Series:
    """What tells the markets of rows apart: the market, else the token."""
    names = [name for name in ("market_id", "slug") if name in rows.columns]
    if names and rows[names[0]].dtype == pl.Categorical and not rows[names[0]].null_count():
        return rows[names[0]].alias("market")
    texts = [pl.col(name).cast(pl.String) for name in names]
    if "token_id" in rows.columns:
        # They come last, when the markets of tokens that other rows name are known.
        texts.append(_LAST + pl.col("token_id").cast(pl.String))
    market = pl.coalesce(*texts, pl.lit(_LAST)).cast(pl.Categorical)
    return rows.select(market.alias("market")).to_series()


def read_rows(path: Path) -> pl.DataFrame:
    """The rows of a file, which is closed afterwards, so that it can be removed."""
    with path.open("rb") as file:
        return pl.read_ipc(file)
