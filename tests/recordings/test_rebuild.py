"""`rebuild` and `diff` on frames of each library, and on messages of a market channel."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings.shapes import MARKET, START, book, change

import marketdata as md

BOOK = book(0, "7", [(".4", "10"), (".48", "30")], [(".9", "1"), (".52", "25")])


def changed(after: int, price: str, size: str, side: str = "BUY", **best: str) -> dict[str, Any]:
    """A changed level so many milliseconds later."""
    return change(after / 1000, "7", side, price, size, **best)


def older(after: int, price: str, size: str, side: str) -> dict[str, Any]:
    """The shape of price_change until September 2025."""
    message = {**changed(after, price, size, side), "asset_id": "7"}
    del message["price_changes"]
    return {**message, "changes": [{"price": price, "size": size, "side": side}]}


def tops(messages: Any, **more: Any) -> list[tuple[float, float]]:
    books = md.rebuild(messages, frame="polars", **more)
    return md.bbo(books).select("best_bid", "best_ask").rows()  # type: ignore[no-any-return]


def test_levels_are_best_first_and_zero_sizes_are_gone() -> None:
    """Messages list the worst price first; a size of 0 removes a level."""
    books = md.rebuild([BOOK, changed(100, ".48", "0"), changed(200, "0.45", "3")], frame="polars")
    bids = books.filter(pl.col("side") == "bid").select("level", "price", "size").rows()
    assert bids == [(0, 0.45, 3.0), (1, 0.4, 10.0)]
    assert books["market_id"].unique().to_list() == [MARKET]


WRAPPED: dict[str, Any] = {
    "bare": lambda m: m,
    "list": lambda m: [m],
    "lists": lambda m: [[one] for one in m],
    "texts": lambda m: [json.dumps(one) for one in m],
    "raw text": lambda m: [{"recv_ts": (START + 50) / 1000, "raw": json.dumps(one)} for one in m],
    "data list": lambda m: [{"received_at": "2026-01-01T00:00:00.05Z", "data": [one]} for one in m],
    "record": lambda m: [
        {"market": {"condition_id": MARKET, "token_id": "7"}, "collection": {"collected_at_utc": START}, "raw": one}
        for one in m
    ],
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_messages_are_found_in_lists_and_envelopes(wrap: Any) -> None:
    """Bare, in lists, as text, and in envelopes with a time of arrival."""
    assert tops(wrap([BOOK, changed(1000, ".5", "3"), older(2000, ".51", "4", "SELL")])) == [
        (0.48, 0.52),
        (0.5, 0.52),
        (0.5, 0.51),
    ]


def test_unreadable_messages_are_named() -> None:
    """A message that cannot be read is counted in a warning, and the others are taken."""
    with pytest.warns(md.errors.RecordingWarning, match="1 of 2 messages cannot be read"):
        md.rebuild([BOOK, changed(0, "x", "1")])


def test_best_prices_of_messages_are_compared() -> None:
    """The warning names the first book that differs from the stated prices."""
    with pytest.warns(
        md.errors.RecordingWarning, match=r"1 of 1 books do not .* '7' at .*: stated 0.49 / 0.52, rebuilt 0.5"
    ):
        md.rebuild([BOOK, changed(100, ".5", "3", best_bid="0.49", best_ask="0.52")])
    assert tops([BOOK, changed(100, ".5", "3", best_bid="0.5", best_ask="0.52")]) == [(0.5, 0.52)]


def test_after_a_reconnect_a_book_is_unknown_until_its_next_snapshot() -> None:
    """Changes before the snapshot are not applied."""
    lost = {"type": "reconnected", "timestamp": str(START + 1500)}
    again = {**BOOK, "timestamp": str(START + 4000)}
    found = md.rebuild([BOOK, lost, changed(2000, ".5", "3"), again], frame="polars")
    assert found["ts"].dt.epoch("ms").unique(maintain_order=True).to_list() == [START, START + 1000, START + 4000]
    assert found.filter(pl.col("price") == 0.5).is_empty()


def test_times_are_those_of_the_venue_or_of_arrival() -> None:
    """``clock`` chooses one for all messages, also where the recorder's clock is seven seconds ahead."""
    messages = [{"recv_ts": START + at + 7000, "raw": m} for at, m in ((0, BOOK), (1000, changed(1000, ".5", "3")))]
    for clock, ahead in (("timestamp", 0), ("received", 7)):
        times = md.bbo(md.rebuild(messages, clock=clock))["ts"]
        assert [t.timestamp() for t in times] == [START / 1000 + ahead, START / 1000 + ahead + 1]


@given(
    st.sampled_from([0, 1, 10, 600, 7200]) | st.integers(0, 100_000),
    st.sampled_from(["timestamp", "received"]),
    st.sampled_from([0, 7000, 3_600_000, -18_000_000]),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_a_quiet_book_is_known_from_its_arrival_until_the_recording_ends(
    age: int, clock: Any, ahead: int, others: bool
) -> None:
    """The venue's time of a book is that of its last change, which may be hours old, and no time of the message."""
    quiet = {**BOOK, "asset_id": "9", "timestamp": str(START - 1000 * age)}
    sent = [(0, quiet), *((1000 * k, {"event_type": "best_bid_ask", "asset_id": "9"}) for k in range(1, 19))]
    if others:
        sent = [*sent[:1], (0, BOOK), *((1000 * k, changed(1000 * k, f"0.{30 + k}", "3")) for k in range(1, 19))]
    ahead = ahead if others or clock == "received" else 0  # no message says what the venue's clock shows
    envelopes = [{"recv_ts": START + at + ahead + 50, "raw": message} for at, message in sent]
    books = md.rebuild(envelopes, clock=clock, frame="polars").filter(pl.col("token_id") == "9")
    start = START + (ahead if clock == "received" else 0)
    assert books["ts"].dt.epoch("ms").unique().sort().to_list() == [start + 1000 * k for k in range(19)]


@pytest.mark.parametrize(("clock", "late"), [("timestamp", 0), ("received", 2)])
def test_kalshi_has_two_clocks_too(clock: Any, late: int) -> None:
    """Changes have the venue's time, or with ``clock="received"`` that of their arrival."""
    said = {"market_ticker": "KXRAIN-26", "market_id": "1"}
    level = {**said, "price": 41, "delta": 3, "side": "yes"}
    messages = [{"type": "orderbook_snapshot", "sid": 1, "seq": 1, "msg": {**said, "yes": [[40, 10]], "no": [[50, 5]]}}]
    messages += [
        {"type": "orderbook_delta", "sid": 1, "seq": n, "msg": {**level, "ts": f"2026-01-01T00:00:0{n}Z"}}
        for n in (2, 6)
    ]
    messages[-1]["seq"] = 3
    envelopes = [{"received_at": START + 1000 * at, "raw": m} for at, m in zip((0, 4, 8), messages, strict=True)]
    best = md.bbo(md.rebuild(envelopes, clock=clock, frame="polars")).filter(pl.col("token_id") == "KXRAIN-26:yes")
    changed = best.filter(pl.col("best_bid") == 0.41)["ts"].dt.epoch("ms")
    assert [changed.min(), changed.max()] == [START + 1000 * (2 + late), START + 1000 * (6 + late)]


@pytest.mark.parametrize("kind", ["polars", "lazy", "arrow", "pandas", "nested", "texts"])
def test_books_come_back_from_their_changes(kind: str) -> None:
    """rebuild(diff(books)) is the books, for each library; the kind of frame stays."""
    books, texts = md.testing.books("polars"), {"market_id": str, "token_id": str, "side": str}
    given: Any = {
        "polars": books, "lazy": books.lazy(), "arrow": books.to_arrow(), "pandas": md.testing.books(),
        "nested": md.nest(books), "texts": md.testing.books().astype(texts),
    }[kind]  # fmt: skip
    changes = md.diff(given, width="1m")
    again = md.rebuild(changes, "1m")
    assert type(again) is type(given.collect() if kind == "lazy" else given)
    assert kind != "pandas" or again["level"].dtype == given["level"].dtype
    as_polars = pl.from_pandas(again) if isinstance(again, pd.DataFrame) else pl.DataFrame(again)
    want = md.testing.books("polars")
    ids = pl.col("market_id", "token_id", "token_label", "side").cast(pl.String)
    assert as_polars.with_columns(ids).cast({"level": pl.Int32}).equals(want.with_columns(ids))


def test_a_frame_says_which_rows_are_of_a_snapshot() -> None:
    """``is_snapshot`` or ``event``; without either it is not known where a book begins."""
    rows = {
        "ts": pd.to_datetime([0, 0, 1, 2, 2], unit="s", utc=True),
        "token_id": ["7"] * 5,
        "side": ["bid", "ask", "bid", "bid", "ask"],
        "price": [0.4, 0.5, 0.41, 0.3, 0.6],
        "size": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    flags = [True, True, False, True, True]
    found = md.rebuild(pd.DataFrame({**rows, "is_snapshot": flags}))
    assert md.bbo(found)[["best_bid", "best_ask"]].to_numpy().tolist() == [[0.4, 0.5], [0.41, 0.5], [0.3, 0.6]]
    events = ["snapshot" if flag else "change" for flag in flags]
    assert found.equals(md.rebuild(pd.DataFrame({**rows, "event": events})))
    for texts in (["True", "true", "False", "1", "yes"], [1, 1, 0, 1, 1]):
        assert found.equals(md.rebuild(pd.DataFrame({**rows, "is_snapshot": texts})))
    with pytest.raises(md.errors.NotTidyError, match="is_snapshot is 'maybe'"):
        md.rebuild(pd.DataFrame({**rows, "is_snapshot": ["maybe"] * 5}))
    with pytest.raises(md.errors.NotTidyError, match="lacks a column 'event'"):
        md.rebuild(pd.DataFrame(rows))
    with pytest.raises(md.errors.NotTidyError, match="is one of change, snapshot, gap"):
        md.rebuild(pd.DataFrame({**rows, "event": "update"}))


def test_levels_that_cannot_be_are_left_out() -> None:
    """Prices outside of 0 to 1 and sizes below 0 are counted."""
    with pytest.warns(
        md.errors.RecordingWarning, match="1 of 6 changes have a price outside of 0 to 1, or a size below 0"
    ):
        assert tops([BOOK, changed(100, ".5", "-3"), changed(100, ".47", "1")]) == [(0.48, 0.52)]


def test_unchanged_buckets_are_left_out_on_request() -> None:
    """A valid book fills each bucket, or only buckets with a message."""
    some = [BOOK, changed(3000, ".5", "3")]
    assert len(tops(some)) == 4
    assert tops(some, unchanged=False) == [(0.48, 0.52), (0.5, 0.52)]
