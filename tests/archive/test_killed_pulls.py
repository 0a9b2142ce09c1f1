"""Pulls of both venues that are killed, through pages of proxies and odd records, in two ranges that touch."""

from __future__ import annotations

import warnings
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reference.venue_loops import VENUES, Rows, is_equal, kalshi_views, keyed
from reference.venues import FAULTS, client_of

import marketdata as md
from marketdata.errors import NotArchivedError
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, Range, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
COLUMNS = {"prices": ["price"], "quotes": ["best_bid", "best_ask"], "metrics": ["volume", "open_interest", "spread"]}


def truth(venue: str, stub: Any, markets: list[Any], rng: Range, width: int) -> dict[str, Rows]:
    """All views of markets by plain loops."""
    if venue == "kalshi":
        return kalshi_views(stub, markets, rng, width)
    return {"prices": VENUES[venue].prices(stub, markets, rng, width)}


def stored(archive: Any, view: str) -> Rows:
    """All rows of a view that an archive has."""
    try:
        return keyed(getattr(archive, view)(on_missing="partial"), *COLUMNS[view])
    except NotArchivedError:
        return {}


def final_rows(archive: Any, view: str, rows: Rows, market_of: dict[str, str]) -> Rows:
    """Those rows that coverage calls complete."""
    coverage = archive.coverage().filter(pl.col("state") == "final", pl.col("view") == view)
    ranges = [
        (row["market_id"], row["start"].timestamp() * 1e6, row["end"].timestamp() * 1e6)
        for row in coverage.rows(named=True)
    ]
    return {
        (token, ts): values
        for (token, ts), values in rows.items()
        if any(market == market_of[token] and first <= ts < end for market, first, end in ranges)
    }


@settings(max_examples=4, phases=[Phase.generate])
@given(
    st.data(),
    st.sampled_from(["polymarket", "kalshi"]),
    st.sampled_from(["1m", "1h", "1d"]),
    st.integers(1, 4),
    st.integers(200, 1_500),
    st.lists(st.none() | st.sampled_from(FAULTS), max_size=10),
)
def test_a_killed_pull_in_two_parts_equals_plain_loops(
    data: st.DataObject, venue: str, base: str, killed_at: int, cut: int, faults: list[str | None]
) -> None:
    """What is final after the kill, and all that is there in the end, is what plain loops over the venue's data say."""
    case, width, rng = VENUES[venue], BucketWidth.of(base).micros, Range(START, START + 2 * DAY)
    stub = case.stub(count=11, days=0.8, traps=data.draw(case.any_traps))
    tell, odd = stub.record, stub.markets[4]
    if venue == "polymarket":
        stub.record = lambda market: tell(market) | ({"outcomes": None} if market is odd else {})
    good = [market for market in stub.markets if venue == "kalshi" or market is not odd]
    names, answer, asked = [case.name(market) for market in stub.markets], stub.answer, [0]
    market_of = {
        key: getattr(market, "condition", None) or market.ticker
        for market in stub.markets
        for key in (
            *getattr(market, "tokens", ()),
            case.name(market),
            *(f"{case.name(market)}:{s}" for s in ("yes", "no")),
        )
    }

    def dying(ask: Any) -> Any:
        asked[0] += "history" in ask.path or "candlesticks" in ask.path
        if asked[0] == killed_at:
            raise KeyboardInterrupt
        return answer(ask)

    with client_of(stub, START + 6 * DAY) as client, TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive = md.Archive(Path(folder), frame="polars", base=base)
        middle = to_datetime(START + cut * MINUTE)
        span: dict[str, Any] = {"progress": False, "views": [*client.views]}
        stub.answer = dying
        with suppress(KeyboardInterrupt, md.MarketDataError):
            archive.pull(client, names, start=to_datetime(rng.start), end=middle, **span)
        stub.answer = answer
        expected = truth(venue, stub, good, rng, width)
        for view in client.views:
            held = stored(archive, view)
            final = final_rows(archive, view, expected[view], market_of)
            assert is_equal({key: held.get(key, ()) for key in final}, final)
        stub.faults = iter([one if faults[:k].count(None) >= k - 3 else None for k, one in enumerate(faults)])
        for start, end in ((to_datetime(rng.start), middle), (middle, to_datetime(rng.end))):
            with suppress(md.errors.ContractError) if venue == "polymarket" else nullcontext():
                archive.pull(client, names, start=start, end=end, **span)
        for view in client.views:
            assert is_equal(stored(archive, view), expected[view])
