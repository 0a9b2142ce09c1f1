"""Fetches by threads and connections as they are: who comes first is not known, and all rows arrive once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fetch.markets import wide
from reference.faults import FaultServer, ok, refuse
from reference.oracle import START, Oracle, expected, fetch, minutes, rows

from marketdata.client import Client
from marketdata.errors import PlanError
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.markets import Markets


@pytest.mark.parametrize(("workers", "in_order", "buffer"), [(1, True, None), (3, False, None), (16, True, 4)])
def test_every_row_arrives_once(
    server: FaultServer, transport: Transport, workers: int, in_order: bool, buffer: int | None
) -> None:
    """However many requests are side by side, and whichever is answered first."""
    oracle = server.answer = Oracle.of_prices(3000)
    got = list(fetch(transport, oracle.request(3000), workers=workers, buffer=buffer, in_order=in_order))
    assert sorted(rows(got)) == expected(oracle.points)
    assert not in_order or all(a.window.rng.end == b.window.rng.start for a, b in itertools.pairwise(got))
    assert len(server.asks) <= 2 * 30


@pytest.mark.fault("P20")
def test_a_market_of_more_than_200_tokens_comes_whole_or_not_at_all(server: FaultServer) -> None:
    """If a token fails, no range is yielded as if the other tokens were all."""
    oracle, answer = wide(500, lambda k: 7)
    server.answer = lambda ask: refuse(403) if "idt100" in ask.path else answer(ask)
    got: list[Any] = []
    with Client(server.base_url, "k" * 20) as client, pytest.raises(PlanError):
        got += client.iter_columns([("prices", "slug", minutes(500))])
    assert got == []
    server.answer = answer
    with Client(server.base_url, "k" * 20) as client:
        assert len(client.prices("slug", START / 1e6, START / 1e6 + 500 * 60, "1m")) == len(oracle.points)


def test_a_slug_and_an_id_are_looked_up_once(server: FaultServer, transport: Transport) -> None:
    """A market that discovery knows is not requested again."""
    server.answer = lambda ask: ok({"id": "m", "tokens": [{"id": "1"}, {"id": "2"}]})
    markets = Markets(transport)
    assert markets.look_up_all(["a", "b", "a"])["a"].tokens == ("1", "2")
    assert markets.look_up("b").tokens == ("1", "2")
    assert len(server.asks) == 2
