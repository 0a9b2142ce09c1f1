"""The vendors' own clients against our service: they read every endpoint, in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from reference.memory import MINUTE, MemoryArchive
from reference.web import START

from marketdata.service import serve
from marketdata.service.server import Service
from marketdata.times import to_text

NEEDED = "needs the vendors' clients, in an environment of their own (make vendors)"
polymarketdata = pytest.importorskip("polymarketdata", reason=NEEDED)
polyorderbooks = pytest.importorskip("polyorderbooks", reason=NEEDED)
backtest = pytest.importorskip("polyorderbooks_backtest", reason=NEEDED)

SLUG = "btc-updown-5m-1767571200"
HOUR = {"start_ts": "2026-01-05T00:00:00Z", "end_ts": "2026-01-05T01:00:00Z", "resolution": "1m"}
RECORD = {
    "slug": SLUG,
    "event_id": "e1",
    "event_slug": "btc",
    "start_date": "2026-01-05T00:00:00Z",
    "end_date": "2026-01-05T01:00:00Z",
    "status": "resolved",
    "closed_at": "2026-01-05T01:00:00Z",
    "resolved_token_id": "1",
    "tags": ["crypto"],
}


@pytest.fixture(scope="module")
def archive() -> MemoryArchive:
    """An up or down market of an hour, whose price rises to 1, and one that is open."""
    out = MemoryArchive()
    out.add_record("series", id="s1", slug="coins", title="Coins", tags=["crypto"], start_date="2026-01-01T00:00:00Z")
    out.add_record("events", id="e1", slug="btc", title="Bitcoin", series_id="s1", series_slug="coins", tags=["crypto"])
    out.add_market("100", {"Up": "1", "Down": "2"}, **RECORD)
    out.add_market("200", {"Up": "3", "Down": "4"}, slug="open", event_id="e1", event_slug="btc")
    for minute in range(60):
        ts, price = START + minute * MINUTE, 0.4 + minute / 100
        for token, mid in (("1", price), ("2", 1 - price)):
            out.put("prices", "100", token, ts, mid)
            out.put("books", "100", token, ts, ([(mid - 0.005, 1000.0)], [(mid + 0.005, 1000.0)]))
        out.put("metrics", "100", None, ts, {"volume": 1.0 * minute, "liquidity": 10.0, "spread": 0.01})
    return out


@pytest.fixture(scope="module")
def service(archive: MemoryArchive) -> Iterator[Service]:
    with serve(archive) as running:
        yield running


def expected_prices(archive: MemoryArchive, token: str) -> list[tuple[str, float]]:
    points = archive.points["prices", "100"]
    return [(to_text(ts), price) for (owner, ts), price in sorted(points.items()) if owner == token]


def test_the_client_of_vendor_a_reads_every_endpoint(service: Service, archive: MemoryArchive) -> None:
    """Listings with each of its filters, one market, tags, all of the history in pages, health, usage and errors."""
    with polymarketdata.PolymarketDataClient(service.api_key, base_url=f"{service.base_url}/v1") as client:
        found = client.discovery
        dates = {name: datetime(2026, 1, 1, tzinfo=UTC) for name in ("start_date_min", "start_date_max")}
        assert [s.slug for s in found.iter_series(search="coins", tags=["crypto", "x"], page_size=1000, **dates)] == [
            "coins"
        ]
        assert [e.slug for e in found.iter_events(series_slug="coins", sort="start_date")] == ["btc"]
        assert {m.id for m in found.iter_markets(event_slug="btc", page_size=1)} == {"100", "200"}
        assert found.list_tags().data == ["crypto"]
        assert found.get_market(SLUG).market.tokens[0].label == "Up"
        history = client.history
        pages = list(history.iter_market_books_pages(SLUG, page_size=40, **HOUR))
        assert sum(len(page.data["Up"]) for page in pages) == 60
        prices = [(p.t, p.p) for page in history.iter_market_prices_pages(SLUG, **HOUR) for p in page.data["Down"]]
        assert prices == expected_prices(archive, "2")
        assert [p.p for p in history.iter_token_prices("1", **HOUR)] == [p for _, p in expected_prices(archive, "1")]
        assert len(list(history.iter_token_books("1", **HOUR))) == 60
        assert [p.volume for p in history.iter_market_metrics(SLUG, **HOUR)] == [float(n) for n in range(60)]
        assert client.utility.health().status == "ok"
        assert client.utility.usage().limits.granularity_allowed == "1m,10m,1h,6h,1d"
        with pytest.raises(polymarketdata.NotFoundError, match="Market not found: none"):
            found.get_market("none")


def pages_of(call: Any, *args: str, **params: Any) -> list[dict[str, Any]]:
    """All pages of a method of the client."""
    pages = [call(*args, **params)]
    while cursor := pages[-1]["metadata"]["next_cursor"]:
        pages.append(call(*args, cursor=cursor, **params))
    return pages


def test_the_client_of_vendor_b_reads_every_endpoint(service: Service, archive: MemoryArchive) -> None:
    """The same; it leaves closed markets out by default, and sends that to us."""
    with polyorderbooks.PolyOrderbooksClient(service.api_key, base_url=service.base_url) as client:
        dates = {"start_date_min": "2026-01-01", "start_date_max": "2026-01-01"}
        assert client.list_series(tags=["crypto"], tags_match="all", **dates)["data"][0]["slug"] == "coins"
        assert client.list_events(series_id="s1", sort="title")["data"][0]["slug"] == "btc"
        assert [m["id"] for page in client.iter_markets(sort="created_at", limit=100) for m in page["data"]] == ["200"]
        both = [m["id"] for page in client.iter_markets(include_closed=True, limit=1) for m in page["data"]]
        assert sorted(both) == ["100", "200"]
        assert client.list_tags()["data"] == ["crypto"]
        assert client.get_market(SLUG)["winner"] == "Up"
        books = list(client.iter_market_books(SLUG, limit=50, **HOUR))
        assert sum(len(page["data"]["Down"]) for page in books) == 60
        for page in (
            pages_of(client.get_market_prices, SLUG, limit=50, **HOUR),
            pages_of(client.get_token_prices, "1", **HOUR),
        ):
            points = [
                p for body in page for p in (body["data"]["Up"] if isinstance(body["data"], dict) else body["data"])
            ]
            assert [(p["t"], p["p"]) for p in points] == expected_prices(archive, "1")
        assert sum(len(page["data"]) for page in pages_of(client.get_token_books, "1", **HOUR)) == 60
        assert sum(len(page["data"]) for page in pages_of(client.get_market_metrics, SLUG, **HOUR)) == 60
        assert client.get_usage()["plan"] == "local"
        with pytest.raises(polyorderbooks.NotFoundError, match="Market not found: none"):
            client.get_market("none")


def test_the_mcp_server_of_vendor_b_reads_our_service(service: Service) -> None:
    """Its tools find records, one market, books, prices, metrics and the plan; a wrong slug is its own error."""
    script = Path(sys.prefix, "node_modules/@polyorderbooks/mcp-server/dist/index.js")
    if not script.exists():
        pytest.skip("the MCP server of the vendor is not installed: make vendors, with npm")
    history = {"id_or_slug": SLUG, **HOUR}
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("search_markets", {"search": "BTC", "include_closed": True, "end_date_min": "2026-01-05T00:00:00Z"}, SLUG),
        ("search_series", {"search": "coins"}, "Coins"),
        ("search_events", {"search": "btc"}, "Bitcoin"),
        ("get_market", {"id_or_slug": SLUG}, '"winner": "Up"'),
        ("get_order_book_history", history, '"bids"'),
        ("get_price_history", history, '"p": 0.4'),
        ("get_market_metrics", history, '"liquidity": 10'),
        ("get_usage", {}, '"plan": "local"'),
        ("get_market", {"id_or_slug": "none"}, "Not found"),
    ]
    who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    asked = [{"id": 0, "method": "initialize", "params": who}, {"method": "notifications/initialized"}]
    for number, (name, arguments, _) in enumerate(calls, 1):
        asked.append({"id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    environment = {**os.environ, "POLYORDERBOOKS_API_KEY": str(service.api_key)}
    environment["POLYORDERBOOKS_BASE_URL"] = service.base_url
    command, pipe = ["node", str(script)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked))
        process.stdin.flush()
        answers = {answer["id"]: answer for answer in (json.loads(process.stdout.readline()) for _ in range(10))}
        process.stdin.close()
        process.terminate()
    for number, (name, _, said) in enumerate(calls, 1):
        result = answers[number]["result"]
        assert said in result["content"][0]["text"], name
        assert bool(result.get("isError")) == (said == "Not found"), name


def test_the_backtester_of_vendor_b_trades_our_history(service: Service) -> None:
    """It finds the resolved market, buys below 0.5 and is paid 1 at the end."""
    strategy = backtest.Strategy(
        market=backtest.MarketSelector(backtest.Coin.BTC, "5m"),
        side=backtest.Side.UP,
        entry=backtest.Entry([backtest.PriceCondition(backtest.Side.UP, backtest.Comparator.LT, 0.5)]),
        exit=backtest.Exit(hold_to_expiry=True),
        budget_per_trade=10.0,
        sample_size=1,
    )
    with polyorderbooks.PolyOrderbooksClient(service.api_key, base_url=service.base_url) as client:
        (market,) = backtest.discover_markets(client, strategy)
        assert market["slug"] == SLUG
        result = backtest.MarketBacktester(client, resolution="1m").run(SLUG, strategy)
    assert result.skip_reason is None
    assert result.traded_any
