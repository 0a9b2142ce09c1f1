"""Many markets of a venue pulled at its pace, killed on the way and resumed, and what must be stored after.

As a program, it pulls into a folder and dies at a request: ``pulls.py FOLDER VENUE MARKETS DAYS REQUEST``. Of many
markets it counts requests from a fifth commit on: by a clock that does not wait, many come before it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from reference.faults import Act, Ask
from reference.kalshi_stub import MISSING_EVERY, KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import VenueStub, answered, simulated_clock

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.times import DAY, MINUTE, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
BURST = 32  # requests that may come at once after a silence
KINDS: dict[str, Any] = {"polymarket": PolymarketStub, "kalshi": KalshiStub}


def stub_of(venue: str, markets: int, days: float) -> Any:
    """The stub of a venue whose markets were all traded for so many days, two fifths of those of Kalshi archived."""
    # Markets settle an hour after they close, those of one remainder of five at once, 7 minutes after the one before.
    cutoff = {"cutoff": START + int(days * DAY) + 75 * MINUTE} if venue == "kalshi" else {}
    return KINDS[venue](count=markets, days=days, **cutoff)


def is_history(ask: Ask) -> bool:
    return "history" in ask.path or "candlesticks" in ask.path


def pull(archive: md.Archive[Any], stub: VenueStub) -> tuple[int, float]:
    """Pull all prices; how many requests to the host of points that took, and how long by the clock [s]."""
    asked, answer, began = list[float](), stub.answer, SYSTEM.time()

    def log(ask: Ask) -> Act:
        if is_history(ask) or stub.venue == "kalshi":  # whose records have the same host and pace
            asked.append(SYSTEM.time())
        return answer(ask)

    stub.answer = log  # type: ignore[method-assign]
    with (
        simulated_clock(end_of(stub), is_still=True),
        answered(dict.fromkeys(stub.hosts, stub)),
        md.Client(stub.venue, frame="polars", progress=False) as client,
    ):
        began = SYSTEM.time()
        names = [getattr(market, "slug", None) or market.ticker for market in stub.markets]  # type: ignore[attr-defined]
        archive.pull(client, names, views="prices", start=to_datetime(START), progress=False)
        seconds = SYSTEM.time() - began
    stub.answer = answer  # type: ignore[method-assign]
    return len(asked), seconds


def run_pull(folder: Path, venue: str, markets: int, days: float, killed_at: int) -> Counter[str]:
    """Pull in a process that is killed at a request for points, then pull the rest; what is wrong after each.

    ``pace`` is the share of the rate that the rest reached behind its first burst, in percent.
    """
    tally, stub, archive = Counter[str](), stub_of(venue, markets, days), md.Archive(folder, frame="polars")
    words = [str(folder), venue, str(markets), str(days), str(killed_at)]
    died = subprocess.run([sys.executable, __file__, *words], env={**os.environ, "PYTHONPATH": _PATH}, check=False)
    tally["killed"] = died.returncode == 9
    tally["stored when killed"], tally["wrong when killed"], _ = compare(archive, stub)
    tally["requests"], seconds = pull(archive, stub)
    rate = md.Client(venue).usage().limits["requests_per_minute"]
    tally["pace"] = round(100 * (tally["requests"] - BURST) / rate * 60 / max(seconds, 1.0))
    tally["seconds"] = round(seconds)
    tally["stored"], tally["wrong"], tally["lacking"] = compare(archive, stub)
    tally["records of coverage"] = len(archive.coverage())
    return tally


def compare(archive: md.Archive[Any], stub: Any) -> tuple[int, int, int]:
    """Points that are stored; those that are wrong, or lack where all is said to be there; those that lack anywhere."""
    if not Path(archive.location, "prices").is_dir():
        return 0, 0, 2 * len(stub.markets)
    coverage = archive.coverage().filter(pl.col("state").is_in(["final", "provisional"]), view="prices")
    ranges = {key[0]: part for key, part in coverage.group_by("market_id")}
    stored = wrong = lacking = 0
    for market in stub.markets:
        name = getattr(market, "condition", None) or market.ticker
        held = archive.prices(name, on_missing="partial") if name in ranges else None
        for i in (0, 1):
            minutes, prices = expected(stub, market, i)
            times, values = minutes[:0], prices[:0]
            if held is not None:
                token = market.tokens[i] if hasattr(market, "tokens") else f"{name}:{('yes', 'no')[i]}"
                rows = held.filter(token_id=token)
                times = rows["ts"].dt.epoch("us").to_numpy() // MINUTE
                values = rows["price"].fill_null(float("nan")).to_numpy()
            stored += len(times)
            # Of open markets later minutes come while the pull runs: they may lack, but are never wrong.
            now = end_of(stub) // MINUTE
            lacking += int((minutes < now).sum() - (times < now).sum())
            there, place = np.isin(times, minutes), np.searchsorted(minutes, times)
            same = np.isclose(values[there], prices[place[there]], rtol=0, atol=1e-9, equal_nan=True)
            wrong += len(times) - int(same.sum())
            for row in ranges[name].rows(named=True) if held is not None else ():
                first, end = (min(round(row[at].timestamp() * 1e6) // MINUTE, now) for at in ("start", "end"))
                counts = [int(((of >= first) & (of < end)).sum()) for of in (minutes, times)]
                wrong += abs(counts[0] - counts[1])
    return stored, wrong, lacking


def end_of(stub: Any) -> int:
    """When the pull begins, a day after the markets closed [microseconds]."""
    return START + int((stub.days + 1) * DAY)


def expected(stub: Any, market: Any, i: int) -> tuple[Any, Any]:
    """The minutes that have a price of a token, of open markets for an hour after the pull began, and the prices."""
    # A candle of the stub may begin a minute before its market opens; none does before the start of the pull.
    first = max(START, market.opened - (stub.venue == "kalshi") * MINUTE) // MINUTE
    minutes = np.arange(first, -(-(market.closed or end_of(stub) + 60 * MINUTE) // MINUTE))
    minutes = minutes[minutes % MISSING_EVERY != 0]
    yes = (minutes * 7 + market.k * 13) % 89 + 5
    if stub.venue == "polymarket":
        return minutes, (100 - yes if i else yes) / 100
    mid = (2 * yes + 3) / 200
    mid = np.where(np.isin(minutes % 13, (1, 2)), np.nan, mid)
    return minutes, 1 - mid if i else mid


_PATH = os.pathsep.join(map(str, (Path(__file__).parents[1], Path(__file__).parents[2])))

if __name__ == "__main__":
    place, of_venue, count, length, last = sys.argv[1:]
    dying = stub_of(of_venue, int(count), float(length))
    left, reply = iter(range(int(last), 0, -1)), dying.answer
    commits = Path(place, "prices", "_delta_log")

    def die(ask: Ask) -> Act:
        """Answer, or end the process at once."""
        has_begun = int(count) <= 100 or len([*commits.glob("*.json")]) > 2
        if has_begun and is_history(ask) and next(left, 0) == 0:
            os._exit(9)
        return reply(ask)

    dying.answer = die
    pull(md.Archive(place, frame="polars"), dying)
