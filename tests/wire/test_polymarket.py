"""Answers of Polymarket: every known form of a record, a history, a trade and a book, and what each means."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ContractError, ServiceOddityWarning
from marketdata.tidy import records
from marketdata.wire import polymarket
from marketdata.wire import records as market_records

CONDITION = "0x" + "ab" * 32
IDS = ["7" * 77, "8" * 77]
V1: dict[str, Any] = {
    "id": "689015", "conditionId": CONDITION, "slug": "rain", "question": "Rain?", "volume": "100.5",
    "closedTime": "2026-06-04 00:34:19+00", "events": [{"id": "9", "slug": "weather"}],
}  # fmt: skip


@given(
    st.sampled_from([True, False, "true", "false", None]),
    st.sampled_from(["resolved", "proposed", "active", None]),
    st.sampled_from([["0", "1"], ["1", "0"], ["0.5", "0.5"], ["0.9995", "0.0005"], ["1", "1"], [], None]),
    st.booleans(),
    st.booleans(),
)
def test_a_winner_needs_a_final_state_and_exact_prices(
    closed: Any, state: str | None, prices: list[str] | None, is_v2: bool, is_text: bool
) -> None:
    """A market is resolved if it is closed, its state says resolved, and prices are 0 and 1, or 0.5 each."""
    lists = {"outcomes": ["Yes", "No"], "outcomePrices": prices, "positionIds" if is_v2 else "clobTokenIds": IDS}
    row = V1 | {name: json.dumps(v) if is_text and v is not None else v for name, v in lists.items()}
    row |= {"closed": closed, "resolutionStatus" if is_v2 else "umaResolutionStatus": state}
    record = polymarket.market({name: value for name, value in row.items() if value is not None})
    is_final = closed in (True, "true") and state == "resolved"
    paid = {"0": 0.0, "1": 1.0, "0.5": 0.5}
    is_exact = prices in (["0", "1"], ["1", "0"], ["0.5", "0.5"])
    expected = [paid[one] for one in prices] if prices and is_final and is_exact else None
    assert record["payoffs"] == expected
    assert record["resolved_token_id"] == (IDS[expected.index(1)] if expected and 1 in expected else None)
    assert [(token["id"], token["label"]) for token in record["tokens"]] == [(IDS[0], "Yes"), (IDS[1], "No")]
    assert (record["id"], record["gamma_id"], record["event_slug"]) == (CONDITION, "689015", "weather")
    assert (record["closed_at"], record["volume"]) == ("2026-06-04T00:34:19Z", 100.5)
    frame = records.to_frame("markets", [record], "polars")
    assert md.outcomes(frame)["payoff"].to_list() == (expected or [None, None])


@given(
    st.sampled_from([{}, {"version": "v1"}, {"version": "v2"}]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_tokens_of_a_market_are_those_of_its_version(
    version: dict[str, str], has_first: bool, has_second: bool, is_swapped: bool, is_short: bool, is_listed: bool
) -> None:
    """``version`` chooses among two lists of tokens, in any order of fields; without it, what is there counts."""
    first, second = ["7" * 77, "8" * 77], ["5" * 76, "6" * 76]
    given_ids = {**({"clobTokenIds": json.dumps(first)} if has_first else {}),
                 **({"positionIds": second if is_listed else json.dumps(second)} if has_second else {})}  # fmt: skip
    if is_swapped:
        given_ids = dict(reversed(given_ids.items()))
    condition = CONDITION[:64] if is_short else CONDITION
    row = {"conditionId": condition, "outcomes": ["Yes", "No"], **version, **given_ids}
    chosen = version.get("version") or ("v2" if has_second and (is_short or not has_first) else "v1")
    wanted = (first if has_first else []) if chosen == "v1" else second if has_second else []
    for record in (polymarket.market(row), market_records.market(row)):
        assert [token["id"] for token in record["tokens"]] == wanted
        assert record["id"] == (CONDITION[:64] + "00" if is_short else CONDITION)


@given(st.integers(0, 2**248 - 1), st.booleans(), st.booleans())
def test_a_market_has_one_id_in_every_view(number: int, is_short: bool, is_upper: bool) -> None:
    """Records, trades, books and resolutions name a market alike, whichever form of its condition id they have."""
    short = f"0x{number:062x}"
    condition, written = f"{short}00", short if is_short else f"{short}00"
    written = written.upper().replace("0X", "0x") if is_upper else written
    trade = {"side": "BUY", "token_id": "7", "condition_id": condition, "size": 1, "price": 0.5, "timestamp": 2e9}
    book = {"market": written, "asset_id": "7", "timestamp": "1700000000000", "bids": [], "asks": []}
    (traded,), (booked, *_) = polymarket.trades([trade]).tokens, polymarket.books([book]).tokens
    record = polymarket.market({"conditionId": written, "positionIds": ["7"], "outcomes": ["Yes"]})
    assert {record["id"], traded.market_id, booked.market_id, polymarket.condition_of(written)} == {condition}
    assert polymarket.forms_of(condition) == [condition, short]


def test_records_of_the_clob_and_of_events_mean_the_same() -> None:
    """tokens[].winner names the winner of a closed market; a market inside an event knows its event and topics."""
    tokens = [{"token_id": i, "outcome": o, "winner": o == "No"} for i, o in zip(IDS, ["Yes", "No"], strict=True)]
    row = {"condition_id": CONDITION, "market_slug": "rain", "closed": True, "tokens": tokens}
    assert polymarket.market(row)["payoffs"] == [0.0, 1.0]
    assert polymarket.market({**row, "closed": False})["payoffs"] is None
    event = {"id": 9, "slug": "weather", "seriesSlug": "daily", "tags": [{"id": "1", "slug": "sun"}], "markets": [V1]}
    (record,) = polymarket.markets_of(event)
    assert (record["event_id"], record["series_slug"], record["tags"]) == ("9", "daily", ["sun"])
    assert polymarket.event(event)["series_slug"] == "daily"
    assert polymarket.resolution({"status": "resolved", "payouts": [500000, 500000]})[0] == [0.5, 0.5]
    assert polymarket.resolution({"status": "proposed", "payouts": [1000000, 0]})[0] is None


def test_histories_have_the_same_points_in_every_form() -> None:
    """A list, an object and an object by token are read alike; settlement points and ticks are no buckets."""
    moments = [{"t": 60, "p": 0.25}, {"t": 120, "p": 0.5}]
    buckets = [{"timestamp": m["t"], "price": m["p"], "resolution_seconds": 60} for m in moments]
    buckets += [{"timestamp": 180, "price": 1, "resolution_seconds": 0}]
    for answer in (moments, {"history": moments}, {"history": {"7": moments}}, {"7": moments}, {"data": buckets}):
        ((token, history),) = polymarket.prices(answer, "7").items()
        assert token == "7"
        assert history.ts.tolist() == [60_000_000, 120_000_000]
        assert history.price.tolist() == [0.25, 0.5]
    assert not len(polymarket.prices({"history": []}, "7")["7"].ts)


def test_trades_and_books_keep_what_the_venue_said() -> None:
    """Equal fills of one transaction stay two, an unknown outcome has no label, and the best level comes first."""
    fill = {"side": "SELL", "token_id": "7", "condition_id": "0x1", "size": "2", "price": 0.5, "outcome": "Yes",
            "transaction_hash": "0xa"}  # fmt: skip
    rows = [fill | {"timestamp": 2_000_000_009, "outcome_index": 999}, *[fill | {"timestamp": 2_000_000_005}] * 2]
    trades = polymarket.trades(rows)
    assert (trades.ts // 10**6 - 2_000_000_000).tolist() == [5, 5, 9]
    assert trades.values["side"].tolist() == ["sell"] * 3
    level = {"price": "0.25", "size": "4"}
    book = {
        "market": "0x1",
        "asset_id": "7",
        "timestamp": "1786483975529",
        "hash": "ff",
        "tick_size": "0.01",
        "bids": [{"price": "0.1", "size": "1"}, level, level | {"price": "0.2", "size": "0"}],
        "asks": [],
    }
    books = polymarket.books([book], {"7": "Yes"})
    assert (books.bids.best.tolist(), books.bids.counts.tolist(), books.asks.counts.tolist()) == ([0.25], [2], [0])
    assert (books.tokens[0].token_label, books.ts.tolist()) == ("Yes", [1786483975529000])
    assert books.values["tick_size"].tolist() == [0.01]
    assert np.isnan(books.asks.best).all()


@pytest.mark.parametrize(
    ("read", "wrong", "path"),
    [
        (polymarket.market, {"slug": "rain"}, "conditionId"),
        (polymarket.market, V1 | {"outcomes": "[Yes"}, "Yes"),
        (polymarket.market, V1 | {"outcomes": '["Yes"]', "clobTokenIds": json.dumps(IDS)}, "2 tokens and 1 outcomes"),
        (polymarket.market, V1 | {"closed": "perhaps"}, r"\$.closed"),
        (polymarket.prices, {"history": [{"t": 1, "p": None}]}, r"\$\[0\].p"),
        (polymarket.trades, [{"side": "BUY"}], r"\$\[0\]"),
    ],
)
def test_a_wrong_value_is_named_with_its_path(read: Any, wrong: Any, path: str) -> None:
    """What is off the form is a ContractError that says where."""
    with pytest.raises(ContractError, match=path):
        read(wrong)


WHOLE = {"id": "7", "conditionId": "0x" + "a" * 64, "clobTokenIds": '["1", "2"]', "outcomes": '["Yes", "No"]',
         "slug": "rain", "question": "Rain?", "events": [{"id": "3", "slug": "weather"}]}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"conditionId": "0 xab"}, "conditionId of a market is '0 xab'"),
        ({"conditionId": "Infinity"}, "conditionId of a market"),
        ({"clobTokenIds": '["1", "0_1"]'}, "token of a market is '0_1'"),
        ({"clobTokenIds": "[1e76, 2]"}, "token of a market"),
        ({"id": "1e9"}, "id of a record of market is '1e9'"),
        ({"events": [{"id": "nan"}]}, "event_id of a record of market"),
        ({"slug": 5}, "slug of a record of market is '5'"),
        ({"question": {"a": 1}}, "question of a record of market"),
        ({"outcomes": "[[1], 2]"}, "An outcome of the market"),
        ({"closedTime": "soon"}, "closed_at of a record is no time"),
    ],
)
def test_what_is_no_id_is_refused_in_an_answer(wrong: dict[str, Any], words: str) -> None:
    """A number that is not of digits alone, a text with blanks and a value of another type name nothing."""
    good = polymarket.market(WHOLE)
    polymarket.refuse_wrong_ids(good, "market")
    with pytest.raises(ContractError, match=words):
        polymarket.refuse_wrong_ids(polymarket.market({**WHOLE, **wrong}), "market")
    polymarket.refuse_wrong_ids(polymarket.market({**WHOLE, "conditionId": "0xab"}), "market")


@pytest.mark.parametrize("kind", ["event", "series"])
def test_an_event_has_an_id(kind: Any) -> None:
    """Without one, or with what is none, it is refused."""
    polymarket.refuse_wrong_ids(polymarket.event({"id": 7, "slug": "a"}), kind)
    for row, words in (({"slug": "a"}, "has no id"), ({"id": "1e9"}, "no id"), ({"id": 7, "title": 5}, "title")):
        with pytest.raises(ContractError, match=words):
            polymarket.refuse_wrong_ids(polymarket.event(row), kind)


def test_a_new_word_for_a_resolution_is_said() -> None:
    """It gives no outcome, and a warning tells the word; capitals change nothing."""
    assert polymarket.resolution({"status": "Resolved", "payouts": [1000000, 0]})[0] == [1.0, 0.0]
    with pytest.warns(ServiceOddityWarning, match="resolution of a market is 'paid'"):
        assert polymarket.resolution({"status": "paid", "payouts": [1000000, 0]})[0] is None


def test_a_number_of_a_record_that_is_none_is_said() -> None:
    """It is null, and sorts as nothing."""
    with pytest.warns(ServiceOddityWarning, match="volume of a record is 'Infinity', which is no number"):
        assert polymarket.market({**WHOLE, "volume": "Infinity"})["volume"] is None
