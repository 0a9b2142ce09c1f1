"""The venue's own client reads a mirror: its address is all that changes (make vendors)."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import marketdata as md

polymarket = pytest.importorskip("polymarket", reason="needs the venue's client, in an environment of its own")


def test_the_client_of_the_venue_reads_a_mirror() -> None:
    """Every message is one that it knows, and the books that it has after them are those of the archive."""
    from polymarket._internal.environment import PRODUCTION_CONFIG, create_environment
    from polymarket.streams import MarketSpec

    archive = md.simulate(events=1, days=1, seed=2)
    market = archive.records("markets")[0]
    tokens = [str(token["id"]) for token in market["tokens"]]
    hour = "2025-12-31T06:30", "2025-12-31T06:50"

    async def read(address: str) -> tuple[Counter[str], dict[str, Any]]:
        kinds, books = Counter[str](), dict[str, Any]()
        config = replace(PRODUCTION_CONFIG, clob_market_ws_url=address)
        client = polymarket.AsyncPublicClient(environment=create_environment(name="mirror", config=config))
        async with client, await client.subscribe(MarketSpec(asset_ids=tokens, custom_feature_enabled=True)) as stream:
            async for event in stream:
                kinds[event.type] += 1
                apply(books, event)
                if event.type == "best_bid_ask" and kinds["best_bid_ask"] == 2:  # at the end
                    break
        return kinds, books

    with md.replay_server(archive, market["id"], *hour, speed=None) as mirror:
        kinds, books = asyncio.run(asyncio.wait_for(read(mirror.address), 30))
    assert kinds["book"] == len(tokens)
    assert kinds["price_change"] > 20
    assert kinds["last_trade_price"] == len(archive.trades(market["id"], *hour, on_missing="partial"))
    last = archive.books(market["id"], *hour, "1m", on_missing="partial")
    last = last[last["ts"] == last["ts"].max()].dropna()
    for token in tokens:
        rows = last[last["token_id"] == token]
        levels = zip(rows["side"], rows["price"], rows["size"], strict=True)
        assert books[token] == {(side, price): size for side, price, size in levels}


def apply(books: dict[str, Any], event: Any) -> None:
    """The books of the client after an event."""
    if event.type == "book":
        books[event.payload.token_id] = {
            (side, float(level.price)): float(level.size)
            for side, levels in (("bid", event.payload.bids), ("ask", event.payload.asks))
            for level in levels
        }
    for change in event.payload.price_changes if event.type == "price_change" else ():
        level = "bid" if change.side == "BUY" else "ask", float(change.price)
        if change.size:
            books[change.token_id][level] = float(change.size)
        else:
            books[change.token_id].pop(level, None)
