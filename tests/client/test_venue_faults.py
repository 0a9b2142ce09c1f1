"""Whatever fails at a venue, or however it writes its answers: exactly its data, or a typed error that has a part."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.dialects import DIALECTS
from reference.kalshi_stub import START
from reference.venue_loops import VENUES, is_equal, keyed, printed
from reference.venues import FAULTS, NOW, ODD_FAULTS, client_of, refused

from marketdata.errors import (
    BadRequestError,
    ContractError,
    NetworkError,
    NotFoundError,
    PlanError,
    RateLimitError,
    RequestError,
    ServerError,
)
from marketdata.times import DAY, MINUTE, SECOND, Range, to_datetime, to_text

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")
SPAN = st.tuples(st.integers(-100, 2_900), st.integers(1, 900)).map(
    lambda s: Range(START + s[0] * MINUTE, START + (s[0] + s[1]) * MINUTE)
)
ANY_FAULTS = st.lists(st.none() | st.sampled_from([*FAULTS, *ODD_FAULTS]), max_size=30)
TRANSIENT = (NetworkError, ServerError, RateLimitError, ContractError)
WIDTHS = {"1m": MINUTE, "1h": 60 * MINUTE}


def span(rng: Range) -> tuple[Any, Any]:
    return to_datetime(rng.start), to_datetime(rng.end)


@pytest.mark.parametrize("venue", [*VENUES])
@settings(max_examples=15)
@given(st.data(), ANY_FAULTS, SPAN, st.sampled_from([*WIDTHS]))
def test_rows_are_exact_or_the_error_has_a_part_and_the_rest_can_be_resumed(
    venue: str, data: Any, faults: list[str | None], rng: Range, width: str
) -> None:
    """Any faults, or an outage of some minutes: nothing is lost, invented or twice."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), days=2.0)
    markets = [stub.markets[k] for k in data.draw(st.sets(st.integers(0, 5), min_size=1, max_size=3))]
    begin = data.draw(st.integers(0, 20))
    outage = Range(NOW + begin * SECOND // 5, NOW + data.draw(st.integers(0, 400)) * SECOND)
    with client_of(stub) as client:
        stub.faults, stub.outages = iter(faults), (outage,)
        stub.outage = data.draw(st.sampled_from(["503", "500", "refused", "reset", "429", "429 with a wait"]))
        frames = []
        try:
            frames.append(client.prices([case.name(m) for m in markets], *span(rng), width))
        except TRANSIENT as error:
            stub.faults, stub.outages = iter(()), ()
            frames += [error.partial, client.resume(error.resume)]
        got = pl.concat(frames)
        expected = case.prices(stub, markets, rng, WIDTHS[width])
        assert is_equal(keyed(got, "price"), expected)
        assert len(got) == len(expected)


@pytest.mark.parametrize("venue", [*VENUES])
@settings(max_examples=15)
@given(st.data(), ANY_FAULTS, SPAN)
def test_trades_and_records_are_exact_or_a_typed_error(
    venue: str, data: Any, faults: list[str | None], rng: Range
) -> None:
    """An error of trades has those that arrived; one of a listing has none, and the listing can be asked again."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), largest_page=data.draw(st.integers(1, 50)))
    market = stub.markets[data.draw(st.integers(0, 5))]
    with client_of(stub) as client:
        expected = case.trades(stub, market, rng)
        stub.faults = iter(faults)
        try:
            got = printed(client.trades(case.name(market), *span(rng)))
        except TRANSIENT as error:
            part = printed(error.partial)
            got = expected if set(part) <= set(expected) else part
        assert got == expected
        stub.faults = iter(faults)
        try:
            records = client.markets()
        except TRANSIENT:
            stub.faults = iter(())
            records = client.markets()
        paid = dict(zip(records["slug"], records["payoffs"].to_list(), strict=True))
        assert paid == {case.name(one): one.payoffs for one in stub.markets}


@pytest.mark.parametrize("venue", [*VENUES])
@settings(max_examples=25)
@given(st.data(), DIALECTS, SPAN, st.sampled_from([*WIDTHS]))
def test_a_client_depends_on_no_detail_of_an_answer(
    venue: str, data: Any, dialect: Any, rng: Range, width: str
) -> None:
    """Order, further and missing fields, numbers as texts, null, empty pages, points beyond the window, cents."""
    case = VENUES[venue]
    stub = case.stub(traps=data.draw(case.any_traps), dialect=dialect, largest_page=data.draw(st.integers(2, 100)))
    names = [case.name(market) for market in stub.markets]
    with client_of(stub) as client:
        markets = stub.markets[: data.draw(st.integers(1, 6))]
        frame = client.prices(names[: len(markets)], *span(rng), width)
        assert is_equal(keyed(frame, "price"), case.prices(stub, markets, rng, WIDTHS[width]))
        trades = client.trades(names[1], *span(rng))
        assert printed(trades) == case.trades(stub, stub.markets[1], rng)
        assert trades["ts"].equals(trades.sort("token_id", "ts")["ts"])
        records = client.markets()
        paid = dict(zip(records["slug"], records["payoffs"].to_list(), strict=True))
        assert paid == {case.name(one): one.payoffs for one in stub.markets}
        assert client.market(names[2])["tokens"] == [dict(t) for t in records_tokens(records, names[2])]
        ids = {token["id"] for token in client.market(names[0])["tokens"]}
        assert {token.token_id for part in client.live_columns("books", [*ids]) for token in part.tokens} == ids


def records_tokens(records: Any, slug: str) -> list[dict[str, str]]:
    """Tokens of a market in a frame of records."""
    row = records.filter(pl.col("slug") == slug).row(0, named=True)
    return [{"id": i, "label": label} for i, label in zip(row["token_ids"], row["token_labels"], strict=True)]


@pytest.mark.parametrize("venue", [*VENUES])
@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (refused(451, {"error": "unavailable"}), RequestError, "country"),
        (refused(404, {"error": "not found"}), NotFoundError, "found"),
        (refused(403, {"error": "not here"}), PlanError, "not here"),
        (refused(400, {"error": "bad window"}), BadRequestError, "bad window"),
        (refused(200, {"error": "Too Many Requests"}), RateLimitError, "Too Many"),
        (refused(200, {"error": "invalid filters"}), BadRequestError, "invalid filters"),
        (refused(200, {"error": {"code": "internal", "message": "it broke"}}), RequestError, "it broke"),
        (refused(429, {"error": "slow down"}), RateLimitError, "slow down"),
        (refused(502, {"error": "bad gateway"}), ServerError, "bad gateway"),
    ],
)
def test_a_refusal_says_what_it_means(venue: str, act: Any, kind: type[Exception], words: str) -> None:
    """For records, prices, trades and listings alike; what arrived before stays in the error."""
    case = VENUES[venue]
    stub = case.stub()
    names = [case.name(market) for market in stub.markets[:2]]
    rng = to_text(START), to_text(START + DAY)
    with client_of(stub) as client:
        arrived = client.prices(names[0], *rng, "1h")
        answer, stub.answer = stub.answer, lambda ask: act
        for ask in (
            lambda: client.market(names[1]),
            lambda: client.prices(names[1], *rng, "1h"),
            lambda: client.trades(names[1], *rng),
            client.markets,
            client.events,
            client.series,
            client.tags,
            client.health,
        ):
            with pytest.raises(kind, match=words):
                ask()
        stub.answer = lambda ask: answer(ask) if not_of(names[1], stub, ask) else act
        with pytest.raises(kind) as caught:
            client.prices(names, *rng, "1h")
        if kind is not NotFoundError:
            stub.answer = answer
            whole = pl.concat([caught.value.partial, client.resume(caught.value.resume)])
            assert set(arrived["token_id"]) <= set(whole["token_id"])
            assert is_equal(
                keyed(whole, "price"), case.prices(stub, stub.markets[:2], Range(START, START + DAY), 60 * MINUTE)
            )


def not_of(name: str, stub: Any, ask: Any) -> bool:
    """Whether a request is not about a market."""
    tokens = next((m.tokens for m in stub.markets if hasattr(m, "tokens") and m.slug == name), ())
    return not any(one in ask.target for one in (name, *tokens))
