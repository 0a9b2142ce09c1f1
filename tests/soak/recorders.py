"""A recorder of books on a simulated clock: restarts, outages, markets that close, and what must be stored after."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reference.faults import Act
from reference.polymarket_stub import PolymarketStub
from reference.venues import answered, simulated_clock

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.times import DAY, MINUTE, SECOND, Range, parse_iso

START = parse_iso("2026-01-05T06:00:10Z")


@dataclass
class LoggingStub(PolymarketStub):
    """Remembers when it gave the book of which token."""

    given: set[tuple[str, int]] = field(default_factory=set)  # token, bucket

    def books(self, wanted: list[dict[str, str]]) -> Act:
        at = self.now // MINUTE * MINUTE
        for token in (one["token_id"] for one in wanted):
            market, _ = self.by_token[token]
            if market.closed is None or self.now < market.closed:
                self.given.add((token, at))
        return super().books(wanted)


def run_recorder(folder: Path, tokens: int, minutes: int, seed: int) -> Counter[str]:
    """Record books of so many tokens; counts of books stored, lost, invented and changed, and of wrong coverage.

    The recorder is left, and starts again after a while, at random; for a twelfth of the time the venue is down.
    """
    draw, tally = random.Random(seed), Counter[str]()
    down = START + minutes // 3 * MINUTE
    outage = Range(down, down + minutes // 12 * MINUTE)
    # Most markets close while the recorder runs.
    stub = LoggingStub(count=tokens // 2, days=0.25 + minutes / 2 / 1440, outages=(outage,))
    # Other clocks would go on while this machine works, and so leave the one of the venue.
    with simulated_clock(START, is_still=True), answered(dict.fromkeys(stub.hosts, stub)):
        while stub.now < START + minutes * MINUTE:
            archive = md.Archive(folder, frame="polars")
            with md.Client("polymarket", frame="polars", progress=False) as client:
                slugs = [market.slug for market in stub.markets]
                with closing(archive.follow(client, slugs, views="books", every="1m")) as rounds:
                    for report in rounds:
                        tally["rounds"] += 1
                        tally["failed rounds"] += report.error is not None
                        if draw.random() < 8 / minutes or stub.now >= START + minutes * MINUTE:
                            break
            tally["starts"] += 1
            SYSTEM.sleep(draw.random() * minutes)
        tally["requests"] = sum(stub.paths.values())
        tally["requests for books"] = stub.paths["/books"]
        compare(md.Archive(folder, frame="polars"), stub, tally)
    return tally


def compare(archive: md.Archive[Any], stub: LoggingStub, tally: Counter[str]) -> None:
    """Count what is stored, and what of it the stub did not give."""
    held: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = {}
    rows = archive.books(on_missing="partial").select("token_id", "ts", "side", "price", "size")
    for token, ts, side, price, size in rows.iter_rows():
        levels = held.setdefault((token, round(ts.timestamp()) * SECOND), {"bid": [], "ask": []})
        if price is not None:
            levels[side].append((price, size))
    tally["books"], tally["lost"], tally["invented"] = (
        len(held),
        len(stub.given - held.keys()),
        len(held.keys() - stub.given),
    )
    for (token, ts), levels in held.items():
        bids, asks = stub.levels(*stub.by_token[token], ts)
        tally["changed"] += levels != {"bid": bids, "ask": asks}
    covered = {
        (row["market_id"], ts)
        for row in archive.coverage().rows(named=True)
        for ts in range(*(round(row[at].timestamp()) * SECOND for at in ("start", "end")), MINUTE)
    }
    given = {(stub.by_token[token][0].condition, ts) for token, ts in stub.given}
    tally["wrong coverage"] = len(covered ^ given)
    tally["minutes without"] = DAY // MINUTE - len({ts for _, ts in given})
