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

from marketdata.points.columns import Ints

# Rows of a part; a table with fewer is one part, and stays in memory.
PART_ROWS = 1 << 17
# Times that are kept of so many rows; a cut is about as exact as one of them.
_TIMES_OF_A_PART = 512
_IDS = ("market_id", "slug", "token_id", "token_label")
_LAST = chr(0x10FFFF)


class Partitions:
    """Rows in their order, and afterwards the same rows in parts: whole buckets of whole markets, in order of markets.

    ``bucket`` is the width of a bucket [microseconds]; of 1 for rows that are in none, such as prints. A market with
    too many rows is divided by time.
    """

    def __init__(self, bucket: int) -> None:
        self._bucket = bucket
        self._kept, self._rows = list[pl.DataFrame](), 0
        self._chunks = list[Path]()
        self._of_market = Counter[str]()
        # Some times of each market, which show where one of too many rows is cut.
        self._times = defaultdict[str, list[int]](list)
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
        every = max(PART_ROWS // _TIMES_OF_A_PART, 1)
        times = pl.col("ts").sort().gather_every(every).alias("times")
        counted = rows.select(market=markets, ts="ts").group_by("market").agg(pl.len(), times)
        for market, count, of_market in counted.cast({"market": pl.String}).iter_rows():
            self._of_market[market] += count
            self._times[market] += of_market
        self._chunks.append(Path(self._folder.name, f"chunk-{len(self._chunks)}.arrow"))
        rows.write_ipc(self._chunks[-1], compression="lz4")
        self._kept.clear()

    def parts(self) -> Iterator[pl.DataFrame]:
        """The rows of each part, in their order; a small table is one part."""
        if self.is_small:
            if self._rows:
                yield self.whole()
            return
        if self._kept:
            self._spill()
        plan, pieces = self._plan()
        files: defaultdict[int, list[Path]] = defaultdict(list)
        for number, chunk in enumerate(self._chunks):
            rows = read_rows(chunk)
            part = _parts_of(_markets_of(rows), rows["ts"].to_numpy(), plan)
            for which in np.unique(part).tolist():
                path = Path(self._folder.name, f"part-{which}-{number}.arrow")
                rows.filter(part == which).write_ipc(path, compression="lz4")
                files[which].append(path)
            chunk.unlink()
        for which in range(pieces):
            yield pl.concat(map(read_rows, files[which]), how="diagonal_relaxed")
            for path in files[which]:
                path.unlink()

    def _plan(self) -> tuple[dict[str, tuple[int, Ints]], int]:
        """The first part of each market, and the times at which its next ones begin; and the number of parts."""
        plan, part, filled = dict[str, tuple[int, Ints]](), 0, 0
        for market, count in sorted(self._of_market.items()):
            cuts = self._cuts(market)
            if filled and (len(cuts) or filled + count > PART_ROWS):
                part, filled = part + 1, 0
            plan[market] = part, cuts
            part, filled = (part + len(cuts) + 1, 0) if len(cuts) else (part, filled + count)
        return plan, part + bool(filled)

    def _cuts(self, market: str) -> Ints:
        """The starts of buckets at which a market of too many rows is cut; each part has a row."""
        pieces = -(-self._of_market[market] // PART_ROWS)
        times = np.sort(np.array(self._times[market], np.int64)) // self._bucket * self._bucket
        cuts = np.unique(times[len(times) * np.arange(1, pieces) // pieces])
        return np.asarray(cuts[cuts > times[0]])


def _parts_of(markets: pl.Series, ts: Ints, plan: Mapping[str, tuple[int, Ints]]) -> Ints:
    """The part of each row."""
    codes = markets.to_physical().to_numpy()
    distinct = markets.unique()
    names = dict(zip(distinct.to_physical().to_list(), distinct.cast(pl.String).to_list(), strict=True))
    first = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    first[[*names]] = [plan[name][0] for name in names.values()]
    part: Ints = first[codes]
    for code, name in names.items():
        cuts = plan[name][1]
        if len(cuts):
            rows = np.flatnonzero(codes == code)
            part[rows] += np.searchsorted(cuts, ts[rows], side="right")
    return part


def _markets_of(rows: pl.DataFrame) -> pl.Series:
    """What tells the markets of rows apart: the market, else the token."""
    names = [name for name in ("market_id", "slug") if name in rows.columns]
    if names and rows[names[0]].dtype == pl.Categorical and not rows[names[0]].null_count():
        return rows[names[0]].alias("market")
    texts = [pl.col(name).cast(pl.String) for name in names]
    if "token_id" in rows.columns:
        # Rows without a market come last: by then other rows may have said the market of their token.
        texts.append(_LAST + pl.col("token_id").cast(pl.String))
    market = pl.coalesce(*texts, pl.lit(_LAST)).cast(pl.Categorical)
    return rows.select(market.alias("market")).to_series()


def read_rows(path: Path) -> pl.DataFrame:
    """The rows of a file, which is closed afterwards, so that it can be removed."""
    with path.open("rb") as file:
        return pl.read_ipc(file)
