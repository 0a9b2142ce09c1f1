"""Prints of venues pulled into an archive: each once, in ranges that are complete, whatever ends a pull."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venue_loops import VENUES
from reference.venues import client_of, refused

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.errors import MarketDataError, PaginationStalledError
from marketdata.times import DAY, MINUTE, SECOND, Range, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
NOW = START + 2 * DAY + 90 * MINUTE
KINDS = {"polymarket": PolymarketStub, "kalshi": KalshiStub}
COLUMNS = ("ts", "token_id", "price", "size", "side")
pytestmark = [
    pytest.mark.filterwarnings("ignore::marketdata.errors.PartialCoverageWarning"),
    pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning"),
]


def names_of(stub: Any) -> list[str]:
    return [market.slug if stub.venue == "polymarket" else market.ticker for market in stub.markets]


def printed(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The prints of a frame as plain rows."""
    rows = frame.with_columns(pl.col("ts").dt.epoch("us"), pl.col("price").round(9), pl.col("side").cast(pl.String))
    return sorted(rows.select(COLUMNS).rows())


def prints_of(stub: Any, rng: Range) -> list[tuple[Any, ...]]:
    """All that a venue has in a range, by a plain loop."""
    case = VENUES[stub.venue]
    rows = (row for market in stub.markets for row in case.trades(stub, market, rng))
    return sorted((ts, token, round(price, 9), size, side) for ts, token, price, size, side in rows)


@pytest.mark.parametrize("venue", KINDS)
@pytest.mark.parametrize("cutoff", [START - DAY, START + DAY, NOW])
def test_a_pull_in_steps_has_each_print_once(tmp_path: Path, venue: str, cutoff: int) -> None:
    """Two adjacent pulls, and one over both, hold what the venue has, from both tiers of it, and ask no more."""
    if venue != "kalshi" and cutoff != NOW:
        pytest.skip("this venue has one tier")
    stub = KINDS[venue](count=3, days=2.2, **({"cutoff": cutoff} if venue == "kalshi" else {}))
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars")
        for end in (START + DAY, START + 2 * DAY):
            archive.pull(client, names_of(stub), views="trades", start=to_datetime(START), end=to_datetime(end))
        rng = Range(START, START + 2 * DAY)
        held = archive.trades(start=to_datetime(START), end=to_datetime(rng.end))
        assert printed(held) == prints_of(stub, rng)
        assert len(held) > 20
        before = sum(stub.paths.values())
        again = archive.pull(client, names_of(stub), views="trades", start=to_datetime(START), end=to_datetime(rng.end))
        assert len(again) == 0 or set(again["state"]) == {"provisional"}
        assert sum(stub.paths.values()) - before <= 3 or len(again)
        archive.pull(
            client, names_of(stub), views="trades", start=to_datetime(START), end=to_datetime(rng.end), refresh=True
        )
        assert printed(archive.trades(start=to_datetime(START), end=to_datetime(rng.end))) == printed(held)
        assert not len(archive.verify())


@pytest.mark.parametrize("venue", KINDS)
@pytest.mark.parametrize("broken_after", [1, 3, 6])
def test_a_pull_that_broke_goes_on_where_it_was(tmp_path: Path, venue: str, broken_after: int) -> None:
    """What a broken pull calls complete is whole, and the next one asks for the rest of it and doubles nothing."""
    stub = KINDS[venue](count=2, days=2.2)
    stub.largest_page = 3 if venue == "polymarket" else 10
    with client_of(stub, NOW) as client:
        archive, rng = md.Archive(tmp_path, frame="polars"), Range(START, START + 2 * DAY)
        span = {"views": "trades", "start": to_datetime(rng.start), "end": to_datetime(rng.end)}
        answer = stub.answer

        def broken(ask: Any) -> Any:
            pages = sum(n for path, n in stub.paths.items() if "trades" in path)
            return refused(503, {}) if pages > broken_after and "trades" in "".join(ask.path) else answer(ask)

        stub.answer = broken
        with pytest.raises(MarketDataError):
            archive.pull(client, names_of(stub), **span)
        stub.answer = answer
        whole = archive.coverage().filter(pl.col("state") == "final") if archive.coverage().height else None
        for row in [] if whole is None else whole.rows(named=True):
            part = Range(round(row["start"].timestamp() * SECOND), round(row["end"].timestamp() * SECOND))
            mine = [one for one in prints_of(stub, part) if row["market_id"] in market_of(stub, one)]
            assert row["rows"] == len(mine)
        archive.pull(client, names_of(stub), **span)
        assert printed(archive.trades()) == prints_of(stub, rng)
        assert archive.verify().is_empty()


def market_of(stub: Any, one: tuple[Any, ...]) -> set[str]:
    """The market of a print."""
    if stub.venue == "kalshi":
        return {one[1].partition(":")[0]}
    return {market.condition for market in stub.markets if one[1] in market.tokens}


@pytest.mark.parametrize("venue", KINDS)
def test_a_print_that_comes_late_is_added(tmp_path: Path, venue: str) -> None:
    """It belongs to a range that had not settled, which is asked again; the prints that were there stay once."""
    stub = KINDS[venue](count=1, days=2.2)
    real = stub.prints
    with client_of(stub, NOW) as client:
        archive, span = md.Archive(tmp_path, frame="polars"), {"views": "trades", "start": to_datetime(START)}
        recent = Range(START, NOW)
        stub.prints = lambda market: real(market)[:-1]  # the newest is not there yet
        archive.pull(client, names_of(stub), **span)
        early = printed(archive.trades())
        stub.prints = real
        SYSTEM.sleep(2 * 3600)  # a quiet end is asked again after an hour
        archive.pull(client, names_of(stub), **span)
        late = [one for one in printed(archive.trades()) if one[0] < recent.end]
        assert late == prints_of(stub, recent)
        assert len(late) == len(early) + 1
        assert archive.verify().is_empty()


def test_prints_that_are_alike_are_no_stall(tmp_path: Path) -> None:
    """Nine thousand equal prints of one second are nine thousand."""
    stub = PolymarketStub(count=1, days=2.2)
    real = stub.prints
    market = stub.markets[0]
    with client_of(stub, NOW) as client:
        stub.prints = lambda market: [real(market)[20]] * 9_000
        archive, span = md.Archive(tmp_path, frame="polars"), (to_datetime(START), to_datetime(START + 2 * DAY))
        assert len(client.trades(market.slug, *span)) == 9_000
        for _ in range(2):
            archive.pull(client, market.slug, views="trades", start=span[0], end=span[1], refresh=True)
            assert len(archive.trades()) == 9_000


def test_pages_that_go_round_in_a_circle_end() -> None:
    """A venue that gives one page under ever new cursors is an error."""
    stub, count = PolymarketStub(count=1, days=2.2), itertools.count()
    answer = stub.answer

    def circle(ask: Any) -> Any:
        if not "".join(ask.path).endswith("trades"):
            return answer(ask)
        rows = stub.prints(stub.markets[0])[20:25]
        return refused(200, {"data": rows, "pagination": {"has_more": True, "next_cursor": str(next(count))}})

    with client_of(stub, NOW) as client:
        stub.answer = circle
        with pytest.raises(PaginationStalledError):
            client.trades(stub.markets[0].slug, to_datetime(START), to_datetime(START + DAY))


@pytest.mark.parametrize("venue", KINDS)
def test_prints_are_followed(tmp_path: Path, venue: str) -> None:
    """Round after round brings the new prints, each once."""
    stub = KINDS[venue](count=2, days=2.2)
    with client_of(stub, NOW) as client:
        archive = md.Archive(tmp_path, frame="polars")
        rounds = archive.follow(client, names_of(stub), views=["trades"], start=to_datetime(NOW - DAY), every="30m")
        for _ in range(5):
            report = next(rounds)
            assert report.error is None
        assert printed(archive.trades()) == prints_of(stub, Range(NOW - DAY, stub.now))


def test_a_service_of_the_interface_has_no_trades(local_client: md.Client, tmp_path: Path) -> None:
    """A pull of trades from it is refused before anything is stored."""
    market = local_client.markets()["market_id"][0]
    with pytest.raises(md.errors.ConfigError, match="has no trades"):
        md.Archive(tmp_path).pull(local_client, market, views="trades", start="2025-12-31", end="2026-01-01")
