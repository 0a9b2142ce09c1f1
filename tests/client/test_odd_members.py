"""A batch is as good as its members: one odd record, or one id that a venue refuses, costs no other."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.polymarket_stub import START
from reference.venue_loops import VENUES, is_equal, keyed
from reference.venues import client_of, refused

import marketdata as md
from marketdata.errors import BadRequestError, ContractError, ServiceOddityWarning
from marketdata.times import DAY, HOUR, Range, to_datetime, to_text

ODD = st.sampled_from([None, "null", "", 7, -1.5, True, [], ["x"], {}, {"a": 1}, "[1, 2", '["x"]', ["y", None], "0x"])
FIELDS = {
    "polymarket": ("conditionId", "clobTokenIds", "positionIds", "outcomes", "outcomePrices", "closed", "active",
                   "slug", "umaResolutionStatus", "events", "endDate", "closedTime", "volume", "tags", "version"),
    "kalshi": ("status", "result", "settlement_value_dollars", "close_time", "volume_fp", "event_ticker", "title"),
}  # fmt: skip
ROUTES = ("polymarket", "kalshi")


def name_of(market: Any) -> str:
    return str(getattr(market, "slug", None) or market.ticker)


@contextmanager
def silent() -> Iterator[list[Any]]:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield warned


@settings(max_examples=30)
@given(
    st.sampled_from(ROUTES),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 14), ODD), min_size=1, max_size=4),
)
def test_the_good_records_of_a_listing_are_given(venue: str, drawn: list[tuple[int, int, Any]]) -> None:
    """An odd record is read, or left out by a warning with its reason; in strict mode that is an error."""
    stub = VENUES[venue].stub(count=12)
    tell, odd = stub.record, {}
    for k, field, value in drawn:
        odd.setdefault(k, {})[FIELDS[venue][field % len(FIELDS[venue])]] = value
    stub.record = lambda market: tell(market) | odd.get(market.k, {})
    good = {name_of(market) for market in stub.markets if market.k not in odd}
    with client_of(stub) as client, silent() as warned:
        listed = set(client.markets()["slug"])
        assert good <= listed
        left_out = client.last_report.left_out
        assert bool(left_out) == any("left out" in str(one.message) for one in warned)
        names = {name for some in left_out.values() for name in some}
        assert not names & listed
        # What is neither listed nor left out was not on a page of the venue, such as a market without its state.
        assert len(names) <= len(odd)
    with client_of(stub, strict=True) as client, silent():
        if left_out:
            with pytest.raises(ContractError, match="left out"):
                client.markets()
        else:
            assert set(client.markets()["slug"]) == listed


NO_IDS = ["Infinity", "0_1", "1e400", "null", "a b", "x" * 201, 7, -1, True, 0.5, ["0xab"]]


@pytest.mark.parametrize("value", NO_IDS)
@pytest.mark.parametrize("field", ["conditionId", "id"])
def test_what_is_no_id_of_the_venue_names_no_market(field: str, value: Any) -> None:
    """A number is no condition, and one of Gamma has digits alone; a record with another is left out by every door."""
    if field == "id" and value == 7:
        pytest.skip("a number")
    stub = VENUES["polymarket"].stub(count=4)
    tell, odd = stub.record, stub.markets[1]
    stub.record = lambda market: tell(market) | ({field: value} if market is odd else {})
    with client_of(stub) as client:
        with pytest.warns(ServiceOddityWarning, match="left out"):
            assert set(client.markets()["slug"]) == {market.slug for market in stub.markets if market is not odd}
        with pytest.raises(ContractError):
            client.market(odd.slug)


@pytest.mark.parametrize("ticker", ["Infinity", "0_1", "", "1e400", "kx rain", "KXRAIN:yes", "None"])
def test_what_is_no_ticker_names_no_market(ticker: str) -> None:
    """A number, a text with blanks and one with the mark of an outcome are left out."""
    stub = VENUES["kalshi"].stub(count=4)
    tell, odd = stub.record, stub.markets[1]
    stub.record = lambda market: tell(market) | ({"ticker": ticker} if market is odd else {})
    with client_of(stub) as client, pytest.warns(ServiceOddityWarning, match="left out"):
        assert ticker not in set(client.markets()["market_id"])


def refusing(stub: Any, is_bad: Callable[[str], bool]) -> None:
    """Let a venue refuse every question that names something bad."""
    answer = stub.answer

    def refuse(ask: Any) -> Any:
        asked = f"{ask.target} {ask.body.decode()}"
        return refused(400, {"error": "a bad id", "code": "invalid_request"}) if is_bad(asked) else answer(ask)

    stub.answer = refuse


@pytest.mark.parametrize("venue", ROUTES)
def test_an_id_that_the_venue_refuses_costs_no_other(venue: str, tmp_path: Path) -> None:
    """Batches are asked by halves: records and prices of the others arrive, an archive has them, the error names it."""
    case = VENUES[venue]
    stub, rng = case.stub(count=60, days=0.5), Range(START, START + DAY // 4)
    bad = stub.markets[17]
    tokens = getattr(bad, "tokens", ())
    names = [case.name(market) for market in stub.markets]
    refusing(stub, lambda asked: any(f"{one}" in asked for one in (name_of(bad) + '"', *tokens)) or is_in(bad, asked))
    good = [market for market in stub.markets if market is not bad]
    expected = case.prices(stub, good, rng, HOUR)
    with client_of(stub) as client:
        with pytest.warns(ServiceOddityWarning, match="a bad id"):
            records = client.feed.market_records([case.name(market) for market in good[:30]] + [name_of(bad)])
        assert [one["slug"] for one in records] == [case.name(market) for market in good[:30]]
        with pytest.raises(BadRequestError, match=name_of(bad)) as caught:
            client.prices(names, to_datetime(rng.start), to_datetime(rng.end), "1h")
        assert is_equal(keyed(caught.value.partial, "price"), expected)
        archive = md.Archive(tmp_path, frame="polars", base="1h")
        with silent(), pytest.raises(md.MarketDataError):
            archive.pull(client, names, start=to_text(rng.start), end=to_text(rng.end), views="prices", progress=False)
        assert is_equal(keyed(archive.prices(), "price"), expected)


def is_in(market: Any, asked: str) -> bool:
    """Whether a question names a market by its name, whole."""
    return any(part == name_of(market) for part in asked.replace("?", "&").replace("=", "&").replace("/", "&")
               .replace("%2C", "&").replace(" ", "&").split("&"))  # fmt: skip


@pytest.mark.parametrize("venue", ROUTES)
def test_an_odd_record_costs_no_prices_of_others(venue: str, tmp_path: Path) -> None:
    """Prices of a list and a pull hold those of all others; the error names the odd one."""
    case = VENUES[venue]
    stub, rng = case.stub(count=8, days=0.5), Range(START, START + DAY // 4)
    odd = {"outcomes": None} if venue == "polymarket" else {"ticker": 5}
    tell, bad = stub.record, stub.markets[3]
    stub.record = lambda market: tell(market) | (odd if market.k == 3 else {})
    names = [case.name(market) for market in stub.markets]
    expected = case.prices(stub, [m for m in stub.markets if m is not bad], rng, HOUR)
    with client_of(stub) as client, silent():
        archive = md.Archive(tmp_path, frame="polars", base="1h")
        with pytest.raises(md.MarketDataError):
            archive.pull(client, names, start=to_text(rng.start), end=to_text(rng.end), views="prices", progress=False)
        assert is_equal(keyed(archive.prices(), "price"), expected)
        if venue == "polymarket":  # candles of Kalshi need no record
            with pytest.raises(ContractError, match=case.name(bad)) as caught:
                client.prices(names, to_datetime(rng.start), to_datetime(rng.end), "1h")
            assert is_equal(keyed(caught.value.partial, "price"), expected)


def test_an_odd_book_costs_no_other() -> None:
    """The books of the others of an answer are given, and a warning says why one was left out."""
    stub = VENUES["polymarket"].stub(count=7)
    books, live = stub.books, stub.markets[0]

    def odd(wanted: Any) -> Any:
        act = books(wanted)
        rows = json.loads(act.body)
        rows[0]["bids"] = [{"price": "much", "size": "1"}]
        return refused(200, rows)

    stub.books = odd
    with client_of(stub) as client:
        with pytest.warns(ServiceOddityWarning, match="Books .* left out"):
            parts = [*client.feed.live_columns("books", [*live.tokens, *stub.markets[6].tokens])]
        assert {token.token_id for part in parts for token in part.tokens} == {
            live.tokens[1],
            *stub.markets[6].tokens,
        }
