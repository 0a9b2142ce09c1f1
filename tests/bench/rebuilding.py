"""Books from recorded changes, against the plain way; and what an import of many files takes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.measure import Table, compare, interleaved
from marketdata.points.columns import Books, Token
from marketdata.points.rebuild import BIDS, CHANGE, SNAPSHOT, Changes, Rebuilder
from marketdata.resolution import BucketWidth

_START = 1_767_225_600 * 10**6
_GAP, _AGE = 300 * 10**6, 3600 * 10**6
# Not ru_maxrss, which a new program inherits from what started it.
_IMPORT = """
import sys
import marketdata as md
md.Archive(sys.argv[1]).add_files(sys.argv[2], progress=False)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0])
"""


def changes(count: int, tokens: int, seconds: int = 3600) -> Changes:
    """Changes of an hour, by token and time; levels near a mid, three of ten are removals."""
    rng = np.random.default_rng(0)
    token, ts = rng.integers(0, tokens, count), rng.integers(0, seconds * 10**6, count)
    order = np.lexsort((ts, token))
    token, ts = token[order].astype(np.int32), ts[order] + _START
    side = rng.integers(0, 2, count).astype(np.int8)
    away = np.minimum(rng.geometric(1 / 15, count), 99)
    mid = rng.integers(100, 900, tokens)[token]
    price = np.where(side == BIDS, mid - away, mid + away) / 1000
    size = np.where(rng.random(count) < 0.3, 0.0, rng.exponential(100, count).round(2))
    event = np.where(np.diff(token, prepend=-1) != 0, SNAPSHOT, CHANGE).astype(np.int8)
    who = tuple(Token(f"m{i // 2}", f"t{i}", None) for i in range(tokens))
    return Changes(who, token, ts, ts, event, side, price, size, np.full((count, 2), np.nan))


def frame(rows: Changes) -> pl.DataFrame:
    """The same as a frame, as the plain way has it."""
    names = ("token", "ts", "event", "side", "price", "size")
    return pl.DataFrame({name: getattr(rows, name) for name in names})


def plainly(rows: pl.DataFrame, tokens: int, width: int) -> pl.DataFrame:
    """A filter per token, and a dictionary of levels to which its rows are applied one by one."""
    parts = []
    for token in range(tokens):
        mine = rows.filter(pl.col("token") == token)
        bids: dict[float, float] = {}
        asks: dict[float, float] = {}
        out: tuple[list[Any], ...] = ([], [], [], [])
        at = None
        end = int(mine["ts"][-1]) // width + 1

        def stand(
            until: int, at: int | None, bids: dict[float, float], asks: dict[float, float], out: tuple[list[Any], ...]
        ) -> None:
            levels = [(0, *level) for level in sorted(bids.items(), reverse=True)]
            levels += [(1, *level) for level in sorted(asks.items())]
            for bucket in range(until if at is None else at, until):
                for column, values in zip(out, zip(*((bucket, *level) for level in levels), strict=True), strict=True):
                    column.extend(values)

        for _, ts, event, side, price, size in mine.iter_rows():
            bucket = ts // width
            if at is not None and bucket != at:
                stand(bucket, at, bids, asks, out)
            at = bucket
            if event == SNAPSHOT:
                bids.clear()
                asks.clear()
            levels = asks if side else bids
            if size:
                levels[price] = size
            else:
                levels.pop(price, None)
        stand(end, at, bids, asks, out)
        parts.append(pl.DataFrame(dict(zip(("bucket", "side", "price", "size"), out, strict=True))))
    return pl.concat(parts)


def ours(rows: Changes, width: BucketWidth) -> int:
    """The kernel; how many levels its books have."""
    state = Rebuilder(width, _GAP, _AGE)
    parts: list[Books] = []
    levels = 0
    for step in (state.heard(rows.seen), state.push(rows), state.finish()):
        for part in step:
            levels += len(part.bids.price)
            parts = [part]
    del parts
    return levels


def _files(folder: Path, count: int, rows: Changes) -> None:
    """Hour files with a row per change."""
    folder.mkdir()
    table = pl.DataFrame(
        {
            "symbol": [t.token_id for t in rows.tokens],
        }
    )[rows.token.tolist()].with_columns(
        is_snapshot=pl.Series(rows.event == SNAPSHOT),
        side=pl.Series(np.where(rows.side == BIDS, "bid", "ask")),
        price=pl.Series(rows.price),
        amount=pl.Series(rows.size),
        timestamp=pl.Series(rows.ts),
    )
    for i in range(count):
        hour = table.with_columns(pl.col("timestamp") + i * 3600 * 10**6)
        hour.write_parquet(folder / f"hour-{i}.parquet")


def run(*, quick: bool = False) -> list[Table]:
    """Both ways at both bases, and the memory of imports of 20 and of 200 files."""
    out = []
    count, rounds = (200_000, 1) if quick else (10_000_000, 1)
    for every, tokens in (("1m", 2000), ("1s", 200)):
        tokens = tokens // 50 if quick else tokens  # noqa: PLW2901  so many rows a token
        rows, width = changes(count, tokens), BucketWidth.of(every)
        plain = frame(rows)
        times = interleaved(
            {
                "a dictionary of levels per token": lambda p=plain, t=tokens, w=width: plainly(p, t, w.micros),
                "marketdata": lambda r=rows, w=width: ours(r, w),
            },
            rounds,
            time.process_time,
        )
        title = f"Books from {count / 1e6:g} M changes of {tokens:,} tokens at {every}"
        out.append(compare(title, times, "marketdata", rows=count))
    table = Table("An import of recordings", ["files", "changes", "peak MB", "s"])
    part = changes(2_000 if quick else 50_000, 20)
    for files in (2, 4) if quick else (20, 200):
        with tempfile.TemporaryDirectory() as scratch:
            _files(Path(scratch, "in"), files, part)
            began = time.perf_counter()
            words = [sys.executable, "-c", _IMPORT, f"{scratch}/archive", f"{scratch}/in"]
            peak = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
            took = time.perf_counter() - began
        table.rows.append([f"{files}", f"{files * len(part):,}", f"{peak / 1024:.0f}", f"{took:.1f}"])
    return [*out, table]
