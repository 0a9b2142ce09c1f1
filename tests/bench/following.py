"""A year of following, scaled down: many small commits into one archive, which stays as fast as at its beginning."""

from __future__ import annotations

import datetime as dt
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from coded import coded_series

from bench.many_markets import market_id
from bench.measure import Table
from marketdata.archive import Archive
from marketdata.points.columns import Series, Token
from marketdata.points.views import View
from marketdata.times import MINUTE, Range

HOUR = 60 * MINUTE

# An hour from round to round; a thirtieth of the rounds of a year.
EVERY, ROUNDS, MARKETS = HOUR, 365 * 24 // 30, 300
START = 1_767_225_600_000_000
# Of so many markets one has a point every second hour only.
_QUIET = 10


class Source:
    """What `Archive.pull` asks of a client: prices of each minute of all markets, up to a clock that is set."""

    def __init__(self) -> None:
        self.now = START

    def server_time(self) -> dt.datetime:
        """The clock."""
        return dt.datetime.fromtimestamp(self.now / 1e6, dt.UTC)

    def iter_columns(
        self,
        asked: Iterable[tuple[View, str, Range]],
        resolution: str,
    ) -> Iterator[tuple[int, Range, Series, bool]]:
        """All points of each range, in one part."""
        for k, (_, market, wanted) in enumerate(asked):
            step = 2 * HOUR if int(market, 16) % _QUIET == 0 else MINUTE
            ts = np.arange(-(-wanted.start // step) * step, min(wanted.end, self.now), step, dtype=np.int64)
            price = (ts // MINUTE % 997) / 997
            token = Token(market, market, "Yes")
            yield k, wanted, coded_series((token,), np.zeros(len(ts), np.int32), ts, {"price": price}), True


def run(*, quick: bool = False) -> list[Table]:
    """Follow, and look at the archive after each quarter."""
    rounds, markets = (40, 20) if quick else (ROUNDS, MARKETS)
    names = [market_id(m) for m in range(1, markets + 1)]
    table = Table(
        f"{markets} markets followed every hour, {rounds:,} rounds, a thirtieth of a year",
        ["after", "ms a round", "files", "KB of logs", "files of logs", "records of coverage", "open and read ms"],
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "archive")
        archive, source = Archive(root, frame="polars"), Source()
        archive.add(markets=[{"market_id": m, "token_ids": [m], "token_labels": ["Yes"]} for m in names])
        for quarter in range(4):
            began = time.process_time()
            for _ in range(rounds // 4):
                source.now += EVERY
                archive.pull(source, names, views=["prices"], start=START / 1e6, progress=False)
            took = (time.process_time() - began) / (rounds // 4)
            table.rows.append([f"{quarter + 1}/4", f"{took * 1e3:.0f}", *_looked_at(root, source, names[0])])
        rows = len(archive.prices(on_missing="partial"))
        if not archive.verify().is_empty():
            raise RuntimeError("what was followed is not what was written")
    table.notes.append(f"{rows:,} prices; processor time; the read is of the last hour of one market.")
    return [table]


def _looked_at(root: Path, source: Source, market: str) -> list[str]:
    """Files, size and number of files of the logs, records of coverage, and a first read of an hour."""
    logs = [path for path in root.glob("*/_delta_log/*") if path.is_file()]
    took = []
    for _ in range(9):
        began = time.process_time()
        Archive(root, frame="polars").prices(market, (source.now - HOUR) / 1e6, source.now / 1e6, on_missing="partial")
        took.append(time.process_time() - began)
    fresh = Archive(root, frame="polars")
    return [
        str(len(fresh.files("prices"))),
        f"{sum(path.stat().st_size for path in logs) / 1e3:,.0f}",
        str(len(logs)),
        f"{fresh.coverage().height:,}",
        f"{statistics.median(took) * 1e3:.0f}",
    ]
