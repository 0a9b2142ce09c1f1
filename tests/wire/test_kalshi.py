"""Answers of Kalshi: dollars and cents, names with and without suffix, live and archived."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ContractError, ServiceOddityWarning
from marketdata.tidy import records
from marketdata.wire import kalshi
from marketdata.wire.records import market

PRICES = st.integers(0, 100)


def priced(name: str, cents: int, form: str) -> dict[str, Any]:
    """A price under its name, in one of the forms of the venue."""
    dollars = f"{cents / 100:.4f}"
    return {"live": {f"{name}_dollars": dollars}, "archived": {name: dollars}, "cents": {name: cents}}[form]


@given(
    st.lists(st.tuples(PRICES, PRICES, PRICES | st.none()), max_size=5), st.sampled_from(["live", "archived", "cents"])
)
def test_candles_mean_the_same_in_every_form(drawn: list[tuple[int, int, int | None]], form: str) -> None:
    """A time is the start of a period, a bid of 0 and an ask of 1 or 0 are empty sides, and No mirrors Yes."""
    rows = [
        {
            "end_period_ts": 60 * (k + 1),
            "yes_bid": priced("close", bid, form),
            "yes_ask": priced("close", ask, form),
            "price": {} if traded is None else priced("close", traded, form),
            "volume_fp" if form == "live" else "volume": "2.50",
        }
        for k, (bid, ask, traded) in enumerate(drawn)
    ]
    candles = kalshi.candles(rows[::-1])
    quotes = candles.quotes("T", 60_000_000)
    bids = [bid / 100 if bid else np.nan for bid, _, _ in drawn]
    asks = [ask / 100 if 0 < ask < 100 else np.nan for _, ask, _ in drawn]
    n = len(drawn)
    assert [token.token_id for token in quotes.tokens] == (["T:yes", "T:no"] if n else [])
    assert quotes.ts.tolist() == [60_000_000 * k for k in range(n)] * 2
    same = {"rtol": 0, "atol": 1e-9, "equal_nan": True}
    assert np.allclose(quotes.values["best_bid"], [*bids, *(1 - np.array(asks))], **same)
    assert np.allclose(quotes.values["best_ask"], [*asks, *(1 - np.array(bids))], **same)
    mids = (np.array(bids) + asks) / 2
    assert np.allclose(candles.prices("T", 60_000_000).price[:n], mids, **same)
    last = [np.nan if traded is None else traded / 100 for _, _, traded in drawn]
    assert np.allclose(candles.prices("T", 60_000_000, "last").price[:n], last, **same)
    metrics = candles.metrics("T", 60_000_000)
    assert metrics.values["volume"].tolist() == [2.5] * n
    assert np.allclose(metrics.values["spread"], np.array(asks) - bids, **same)


@pytest.mark.parametrize(
    ("row", "payoffs"),
    [
        ({"status": "finalized", "result": "yes"}, [1.0, 0.0]),
        ({"status": "settled", "result": "no"}, [0.0, 1.0]),
        ({"status": "finalized", "result": "scalar", "settlement_value_dollars": "0.3000"}, [0.3, 0.7]),
        ({"status": "finalized", "result": "scalar"}, None),
        ({"status": "determined", "result": "yes"}, None),
        ({"status": "active", "result": ""}, None),
    ],
)
def test_only_a_final_market_has_payoffs(row: dict[str, Any], payoffs: list[float] | None) -> None:
    """The result counts once the market is final, and `outcomes` reads it; fees come from the series."""
    event = {"event_ticker": "E", "series_ticker": "S", "mutually_exclusive": True}
    series = {"ticker": "S", "fee_type": "quadratic", "fee_multiplier": 1}
    record = kalshi.market(
        {"ticker": "T", "event_ticker": "E", "close_time": "2026-01-01T00:00:00Z", **row}, event, series
    )
    assert record["payoffs"] == payoffs
    assert record["closed_at"] == (None if row["status"] == "active" else "2026-01-01T00:00:00Z")
    assert (record["event_id"], record["series_slug"], record["exclusive"], record["fee_multiplier"]) == (
        "E",
        "S",
        True,
        1,
    )
    frame = records.to_frame("markets", [record], "polars")
    assert md.outcomes(frame)["payoff"].to_list() == (payoffs or [None, None])


CLOSE = "2026-01-01T00:00:00Z"
EPOCHS = [1_767_225_600, 1_767_225_600_000, "1767225600", "1767225600000", "2026-01-01", "2026-01-01 00:00:00+00"]


@pytest.mark.parametrize("close", EPOCHS, ids=repr)
@pytest.mark.parametrize(("status", "result"), [("Finalized", "Yes"), (" SETTLED", "YES"), ("finalized", "yes ")])
@pytest.mark.parametrize("read", [kalshi.market, market], ids=["live", "in a file"])
def test_words_and_times_of_a_record_are_read_in_any_form(read: Any, status: str, result: str, close: Any) -> None:
    """Capitals and spaces change no word, and a time may be a Unix time in any unit, live or in a file."""
    row = {"ticker": "KXA-1-2", "event_ticker": "KXA-1", "status": status, "result": result, "close_time": close}
    record = read(row)
    assert (record["status"], record["payoffs"], record["closed_at"]) == ("resolved", [1.0, 0.0], CLOSE)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"status": "finalized", "result": "maybe"}, "result of a market is 'maybe'.*known are yes, no"),
        ({"status": "paid out", "result": "yes"}, "status of a market is 'paid out'.*known are initialized"),
    ],
)
def test_a_word_that_is_not_known_is_said(row: dict[str, Any], words: str) -> None:
    """A market whose outcome hangs on a new word has none, and a warning says which word that is."""
    with pytest.warns(ServiceOddityWarning, match=words):
        assert kalshi.market({"ticker": "T", **row})["payoffs"] is None


def test_a_result_that_its_settlement_denies_is_refused() -> None:
    """A market that says Yes and paid 0 says nothing."""
    with pytest.raises(ContractError, match="result of T is yes, and its settlement value 0"):
        kalshi.market({"ticker": "T", "status": "finalized", "result": "yes", "settlement_value_dollars": "0.00"})


@pytest.mark.parametrize("name", ["close_time", "open_time", "settlement_ts"])
@pytest.mark.parametrize("time", ["soon", -1, 10**30, True, [], "Infinity"])
def test_what_is_no_time_is_no_time_of_a_record(name: str, time: Any) -> None:
    """The error names the field; null, in any form, is a time that is not known."""
    with pytest.raises(ContractError, match="is no time"):
        kalshi.market({"ticker": "T", name: time})
    for nothing in (None, "", "null", float("nan")):
        assert kalshi.market({"ticker": "T", name: nothing})["status"] == "active"


def test_trades_and_books_are_of_yes_and_no() -> None:
    """A print is what its taker bought, by the newer field; an ask of Yes is a bid of No at one less."""
    old = {"trade_id": "a", "ticker": "T", "count": 3, "yes_price": 61, "no_price": 39, "taker_side": "NO",
           "created_time": "2026-01-01T00:00:05Z"}  # fmt: skip
    new = {
        "trade_id": "b",
        "ticker": "T",
        "count_fp": "3.50",
        "yes_price_dollars": "0.6100",
        "taker_side": "no",
        "no_price_dollars": "0.3900",
        "taker_outcome_side": "yes",
        "created_time": "2026-01-01T00:00:09Z",
    }
    trades = kalshi.trades([new, old])
    assert [token.token_id for token in trades.tokens] == ["T:no", "T:yes"]
    assert trades.values["price"].tolist() == [0.39, 0.61]
    assert trades.values["size"].tolist() == [3.0, 3.5]
    for answer in (
        {"orderbook_fp": {"yes_dollars": [["0.2600", "9"], ["0.5400", "7"]], "no_dollars": [["0.4000", "1"]]}},
        {"orderbook": {"yes": [[26, 9], [54, 7]], "no": [[40, 1]]}},
    ):
        books = kalshi.books(answer, "T", 5)
        assert [token.token_id for token in books.tokens] == ["T:no", "T:yes"]
        assert books.bids.best.tolist() == [0.4, 0.54]
        assert books.asks.best.tolist() == [0.46, 0.6]
        assert books.bids.counts.tolist() == [1, 2]


FILL = {"trade_id": "a", "ticker": "T", "created_time": CLOSE, "count": 1, "yes_price": 61, "side": "Yes"}


def test_what_an_account_did_is_read_in_any_form() -> None:
    """A fill is of the outcome that it names, bought or sold, whatever the case; another word is refused."""
    fills = kalshi.trades([{**FILL, "action": "Buy"}, {**FILL, "action": "SELL", "side": "NO", "is_taker": True}])
    assert fills.values["side"].tolist() == ["sell", "buy"]
    assert [token.token_id for token in fills.tokens] == ["T:no", "T:yes"]
    for wrong, words in (({"action": "hold"}, "action of a fill is 'hold'"), ({"action": "buy", "side": "up"}, "'up'")):
        with pytest.raises(ContractError, match=words):
            kalshi.trades([{**FILL, **wrong}])
    change = {"market_ticker": "T", "price": 61, "delta": 5}
    assert kalshi.change_of({**change, "side": "YES"})[0] == "yes"
    for side, words in (("", "no side"), ("up", "known are yes and no")):
        with pytest.raises(ContractError, match=words):
            kalshi.change_of({**change, "side": side})


def test_a_wrong_value_of_kalshi_is_named() -> None:
    """What is off the form is a ContractError that says where."""
    with pytest.raises(ContractError, match="end_period_ts"):
        kalshi.candles([{"end_period_ts": "soon"}])
    with pytest.raises(ContractError, match="cents"):
        kalshi.candles([{"end_period_ts": 60, "yes_bid": {"close": "much"}}])
    with pytest.raises(ContractError, match=r"side of a trade.*known are yes and no"):
        kalshi.trades([{"trade_id": "a", "ticker": "T", "created_time": 1_767_225_600, "taker_side": "LONG"}])
    with pytest.raises(ContractError, match="time"):
        kalshi.trades([{"trade_id": "a", "ticker": "T", "created_time": "today"}])
