"""Pulls of prints, and recorders of books and prints, that are killed at random moments, and what is stored after.

No process that forks another one may use an archive, so whoever reads or serves one is a child too.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401  loaded before the forks, so that processes are killed at their work
import polars as pl
import pyarrow.dataset  # noqa: F401
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venue_loops import VENUES
from reference.venues import client_of

import marketdata as md
from marketdata.errors import NotArchivedError
from marketdata.times import DAY, Range, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
NOW, RANGE = START + 3 * DAY, Range(START, START + 2 * DAY)
KINDS: dict[str, Any] = {"polymarket": PolymarketStub, "kalshi": KalshiStub}
COLUMNS = ["ts", "token_id", "side", "price", "size"]
HOUR = {"start": "2025-12-31T06:00", "end": "2025-12-31T07:00"}
_fork = multiprocessing.get_context("fork")


def run_pulls(folder: Path, venue: str, kills: int, seed: int) -> Counter[str]:
    """Pull the prints of a venue into one archive after the other, each killed until it is whole; what is wrong."""
    draw, tally = random.Random(seed), Counter[str]()
    began = time.monotonic()
    assert _ended(_pull, folder / "whole", venue, after=600)
    length = time.monotonic() - began
    while tally["killed"] < kills:
        place = folder / f"{venue}-{tally['archives']}"
        while not _ended(_pull, place, venue, after=draw.uniform(0.0, 1.1) * length):
            tally["killed"] += 1
            tally += _told(_compare_pulled, place, venue, False)
        tally["archives"] += 1
        tally += _told(_compare_pulled, place, venue, True)
    return tally


def run_recorders(folder: Path, kills: int, seed: int) -> Counter[str]:
    """Record an hour that a mirror plays, killed at random; what is stored that was not played, or twice."""
    draw, tally = random.Random(seed), Counter[str]()
    played, ready, stop = folder / "played", _fork.Queue(), _fork.Event()
    mirror = _fork.Process(target=_play, args=(played, ready, stop))
    mirror.start()
    address, market = ready.get(timeout=120)
    while tally["killed"] < kills:
        place = folder / f"recorded-{tally['killed'] // 10}"
        is_over = _ended(_record, place, address, market, after=draw.uniform(0.5, 8.0))
        tally["ended" if is_over else "killed"] += 1
        tally += _told(_compare_recorded, place, played)
    stop.set()
    mirror.join(20)
    return tally


def _ended(work: Callable[..., None], *args: Any, after: float) -> bool:
    """Whether a process did its work before it was killed, so long after it began."""
    began = _fork.Event()
    process = _fork.Process(target=_begin, args=(began, work, *args))
    process.start()
    began.wait(60)
    process.join(after)
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def _begin(began: Any, work: Callable[..., None], *args: Any) -> None:
    began.set()
    work(*args)


def _told(work: Callable[..., Counter[str]], *args: Any) -> Counter[str]:
    """The counts of a process of its own."""
    answers = _fork.Queue()
    process = _fork.Process(target=_tell, args=(answers, work, *args))
    process.start()
    counts: Counter[str] = answers.get(timeout=120)
    process.join()
    return counts


def _tell(answers: Any, work: Callable[..., Counter[str]], *args: Any) -> None:
    answers.put(work(*args))


def _stub(venue: str) -> Any:
    stub = KINDS[venue](count=6, days=2.2)
    stub.largest_page = 3 if venue == "polymarket" else 10
    return stub


def _pull(place: Path, venue: str) -> None:
    stub, span = _stub(venue), {"start": to_datetime(RANGE.start), "end": to_datetime(RANGE.end)}
    with client_of(stub, NOW) as client:
        names = [market.slug if venue == "polymarket" else market.ticker for market in stub.markets]
        md.Archive(place, frame="polars").pull(client, names, views="trades", **span)


def _rows(archive: Any, view: str, columns: list[str], **span: Any) -> Counter[Any]:
    try:
        frame = getattr(archive, view)(on_missing="partial", **span)
    except NotArchivedError:
        return Counter()
    frame = frame.with_columns(pl.col("ts").dt.epoch("us"), pl.col("price").round(9), pl.col("size").round(9))
    return Counter(frame.select(pl.col(columns).cast(pl.String)).rows())


def _compare_pulled(place: Path, venue: str, is_whole: bool) -> Counter[str]:
    """Prints that are stored, wrong (not of the venue, or stored again), and lacking where a range is final."""
    stub, archive = _stub(venue), md.Archive(place, frame="polars")
    held = _rows(archive, "trades", COLUMNS)
    case, truth, due = VENUES[venue], list[Any](), Counter[Any]()
    finals = archive.coverage().filter(view="trades", state="final") if place.exists() else None
    for market in stub.markets:
        name = getattr(market, "condition", None) or market.ticker
        ranges = [] if finals is None else finals.filter(market_id=name).select("start", "end").rows()
        for ts, token, price, size, side in case.trades(stub, market, RANGE):
            truth.append((ts, token, side, round(price, 9), round(size, 9)))
            if is_whole or any(a.timestamp() * 1e6 <= ts < b.timestamp() * 1e6 for a, b in ranges):
                due[truth[-1]] += 1
    made = {"ts": pl.Int64, "token_id": pl.String, "side": pl.String, "price": pl.Float64, "size": pl.Float64}
    texts = [
        Counter(pl.DataFrame([*rows], made, orient="row").cast(pl.String).rows()) for rows in (truth, due.elements())
    ]
    damage = len(archive.verify()) if place.exists() else 0
    return Counter(
        {
            "compared": sum(held.values()), "wrong": sum((held - texts[0]).values()),
            "lacking": sum((texts[1] - held).values()), "damaged": damage,
        }
    )  # fmt: skip


def _play(place: Path, ready: Any, stop: Any) -> None:
    archive = md.simulate(place, events=1, days=1, seed=2, frame="polars")
    market = archive.markets()["market_id"][0]
    with md.replay_server(archive, market, **HOUR, speed=2000) as mirror:
        ready.put((mirror.address, archive.records("markets")[0]))
        stop.wait()


def _record(place: Path, address: str, market: Any) -> None:
    archive, idle = md.Archive(place, frame="polars"), 0
    archive.add(markets=[market])
    client = md.Client("polymarket", hosts={"stream": address, "clob": "http://127.0.0.1:9"})
    for report in archive.record(client, market["id"], every="1m", commit_every=0.2):
        idle = idle + 1 if not (report.messages or report.known) else 0
        if idle > 3:
            break


def _compare_recorded(place: Path, played: Path) -> Counter[str]:
    """Levels of books and prints that are stored, and those that the mirror did not play, or twice."""
    if not place.exists():
        return Counter()
    archive, source = (md.Archive(one, frame="polars") for one in (place, played))
    tally = Counter({"damaged": len(archive.verify())})
    for view, columns in (("books", [*COLUMNS, "level"]), ("trades", COLUMNS)):
        held, truth = _rows(archive, view, columns), _rows(source, view, columns, **HOUR)
        tally[f"{view} compared"] += sum(held.values())
        tally["wrong"] += sum((held - truth).values())
    return tally
