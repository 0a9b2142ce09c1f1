"""Answers of Polymarket as another author would write them: order, repeats, texts for numbers, fields more or fewer."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.faults import Act, Ask
from reference.polymarket_stub import PolymarketStub, Traps
from reference.venues import client_of, refused

import marketdata as md
from marketdata.errors import ContractError, EmptyRangeWarning, NotFoundError, RequestError
from marketdata.times import DAY, MINUTE, parse_iso, to_datetime

START = parse_iso("2026-01-05T00:00:00Z")
CHANGES = ("shuffled", "repeated", "texts", "scientific", "further fields", "floats", "nulls")


def changed(body: Any, changes: set[str], draw: random.Random) -> Any:
    """JSON that means the same."""
    if isinstance(body, dict):
        out = {name: changed(value, changes, draw) for name, value in body.items()}
        if "further fields" in changes:
            out["zz"] = {"new": [1, None]}
        if "nulls" in changes and "conditionId" in out:
            out |= dict.fromkeys(("description", "liquidity", "line", "gameStartTime"))
        return dict(draw.sample(sorted(out.items()), len(out)))
    if isinstance(body, list):
        out = [changed(value, changes, draw) for value in body]
        if (
            body
            and isinstance(body[0], dict)
            and body[0].keys() & {"p", "price", "timestamp"}
            and "side" not in body[0]
        ):
            out += draw.sample(out, min(3, len(out))) if "repeated" in changes else []
            out = draw.sample(out, len(out)) if "shuffled" in changes else out
        return out
    if isinstance(body, float):
        return f"{body:e}" if "scientific" in changes else str(body) if "texts" in changes else body
    if isinstance(body, int) and not isinstance(body, bool):
        return str(body) if "texts" in changes else float(body) if "floats" in changes and body > 10 else body
    return body


class Other(PolymarketStub):
    """Another author's stub."""

    changes: frozenset[str] = frozenset()

    def answer(self, ask: Ask) -> Act:
        act = super().answer(ask)
        body = changed(json.loads(act.body), set(self.changes), random.Random(ask.target))
        return Act(status=act.status, body=json.dumps(body).encode())


def everything(client: Any, stub: PolymarketStub) -> list[Any]:
    """All that a client gives of two markets."""
    span = to_datetime(START - 60 * MINUTE), to_datetime(START + DAY)
    markets = client.markets().sort("market_id")
    return [
        markets.select("market_id", "slug", "status", "payoffs", "token_ids", "token_labels").rows(),
        *(client.prices([m.slug for m in stub.markets[1:4]], *span, width).rows() for width in ("1m", "1h")),
        client.trades(stub.markets[1].slug, *span).select("ts", "token_id", "side", "price", "size").rows(),
        md.outcomes(markets).sort("market_id", "token_id").rows(),
    ]


@settings(max_examples=5)
@given(st.sets(st.sampled_from(CHANGES)), st.sampled_from(["clob", "data"]), st.booleans())
def test_other_spellings_of_the_same_answers_give_the_same(changes: set[str], route: str, are_texts: bool) -> None:
    """The client depends on no detail of one author's stub."""
    how = {"count": 6, "days": 0.5, "traps": Traps(lists_as_text=are_texts, numbers_as_text=are_texts)}
    plain, other = PolymarketStub(**how), Other(**how)
    other.changes = frozenset(changes)
    with client_of(plain, START + 2 * DAY, route=route) as client:
        expected = everything(client, plain)
    with client_of(other, START + 2 * DAY, route=route) as client:
        assert everything(client, other) == expected


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (refused(451, {"error": "no"}), RequestError, "country"),
        (refused(404, {"error": "no"}), NotFoundError, "no"),
        (refused(200, {}), ContractError, "histor"),
        (refused(200, {"error": "bad token"}), RequestError, "bad token"),
        (refused(200, {"history": "none"}), ContractError, "histor"),
        (refused(200, {"history": [{"t": 1, "p": "x"}]}), ContractError, "histor"),
    ],
)
def test_what_is_no_history_is_an_error(act: Act, error: Any, words: str) -> None:
    """Refusals inside of any status and texts that are no numbers never become an empty frame."""
    stub = PolymarketStub(days=0.5)
    answer = stub.answer
    stub.answer = lambda ask: act if "history" in ask.path else answer(ask)
    with client_of(stub, START + 2 * DAY) as client, pytest.raises(error, match=words):
        client.prices(stub.markets[1].slug, to_datetime(START), to_datetime(START + DAY))


@pytest.mark.parametrize("body", [{"history": []}, {"history": None}])
def test_an_empty_history_is_an_empty_frame_with_columns(body: dict[str, Any]) -> None:
    """No points or null: no rows, and the columns of prices."""
    stub = PolymarketStub(days=0.5)
    answer = stub.answer
    stub.answer = lambda ask: refused(200, body) if "history" in ask.path else answer(ask)
    with client_of(stub, START + 2 * DAY) as client, pytest.warns(EmptyRangeWarning, match="may lack its history"):
        frame = client.prices(stub.markets[1].slug, to_datetime(START), to_datetime(START + DAY))
    assert frame.columns == ["ts", "market_id", "token_id", "token_label", "price"]
    assert frame.is_empty()
