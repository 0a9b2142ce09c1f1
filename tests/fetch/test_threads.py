"""Fetches by threads and connections as they are: who comes first is not known, and all rows arrive once."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from fetch.markets import wide
from reference.clocks import SOON
from reference.faults import ok, refuse
from reference.oracle import Oracle, expected, fetch, minutes, rows

from marketdata.client import Client
from marketdata.errors import PlanError
from marketdata.fetch.markets import Markets
from marketdata.fetch.sources.interface import Interface


@pytest.mark.parametrize(("workers", "in_order", "buffer"), [(3, False, None), (16, True, 4)])
def test_every_row_arrives_once(server, transport, workers, in_order, buffer) -> None:
    """However many requests are side by side, and whichever is answered first."""
    oracle = server.answer = Oracle.of_prices(1500)
    got = list(fetch(transport, oracle.request(1500), workers=workers, buffer=buffer, in_order=in_order))
    assert sorted(rows(got)) == expected(oracle.points)
    assert not in_order or all(a.window.rng.end == b.window.rng.start for a, b in itertools.pairwise(got))
    assert len(server.asks) <= 2 * 15


@pytest.mark.fault("P20")
def test_a_market_of_more_than_200_tokens_arrives_whole_or_not_at_all(server) -> None:
    """If a token fails, no range is yielded as if the other tokens were all."""
    _, answer = wide(500, lambda k: 250)
    server.answer = lambda ask: refuse(403) if "idt020" in ask.path else answer(ask)
    received: list[Any] = []
    with Client(server.base_url, "k" * 20) as client, pytest.raises(PlanError):
        received += client.feed.iter_columns([("prices", "slug", minutes(500))])
    assert received == []


def test_a_slug_and_an_id_are_looked_up_once(server, transport) -> None:
    """A market that discovery knows is not requested again."""
    server.answer = lambda ask: ok({"id": ask.path[-1], "tokens": [{"id": "1"}, {"id": "2"}]})
    markets = Markets(Interface(transport))
    assert markets.look_up_all(["a", "b", "a"])["a"].tokens == ("1", "2")
    assert markets.look_up("b").tokens == ("1", "2")
    assert len(server.asks) == 2


def test_progress_is_told_page_by_page(server) -> None:
    """While a part of one market arrives, each page counts; in the end all buckets are counted once."""
    oracle = Oracle.of_prices(600)
    told: list[int] = []
    changed = threading.Condition()
    answered = 0

    def tell(buckets: int) -> None:
        with changed:
            told.append(buckets)
            changed.notify_all()

    def answer(ask: Any) -> Any:
        nonlocal answered
        if "/prices" in ask.path:
            with changed:  # the second page waits until the first is told
                assert answered != 1 or changed.wait_for(lambda: any(told), SOON)
                answered += 1
        return oracle(ask)

    server.answer = answer
    with Client(server.base_url, "k" * 20) as client:
        parts = list(client.feed.iter_columns([("prices", "slug", minutes(600))], progress=tell))
    assert sum(len(columns) for _, _, columns, _ in parts) == len(expected(oracle.points))
    assert sum(told) == 600
    assert max(told) < 600
