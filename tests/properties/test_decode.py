from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.errors import ContractError
from marketdata.testing.strategies import book_pages, encodings
from marketdata.wire import decode
from marketdata.wire.columns import Page
from marketdata.wire.decode import decode_page

WRONG = [
    [0.4],
    [],
    [0.5, 1, 2],
    ["0.45", 1],
    [True, 1],
    [None, 1],
    [[0.4, 1]],
    {"p": 1},
    0.5,
    None,
    [[0.1, 2], [0.3, 4]],
    [10**400, 1],
]


def outcome(body: bytes, *, fast: bool) -> Page | str:
    """The page, or the words of its refusal."""
    try:
        return decode_page("books", body, fast=fast)
    except ContractError as error:
        return str(error)


def same(a: Page | str, b: Page | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    fields = ("token", "ts", "counts", "levels")
    return (
        all(np.array_equal(getattr(a.columns, f), getattr(b.columns, f)) for f in fields)
        and a.columns.tokens == b.columns.tokens
        and (a.market_id, a.resolution, a.labels, a.count, a.limit, a.next_cursor, a.notes)
        == (b.market_id, b.resolution, b.labels, b.count, b.limit, b.next_cursor, b.notes)
    )


@given(st.data())
def test_fast_decoder_equals_the_plain_one_on_every_page(data: st.DataObject) -> None:
    """Whatever a page holds and however its JSON is written, both decoders give the same columns and notes."""
    body = data.draw(encodings(data.draw(book_pages())))
    assert same(outcome(body, fast=True), outcome(body, fast=False))


@given(st.data())
def test_fast_decoder_accepts_no_malformed_level_that_the_plain_one_refuses(data: st.DataObject) -> None:
    """A page with malformed levels has the same outcome in both decoders."""
    page = copy.deepcopy(data.draw(book_pages()))
    spots = [
        levels for points in page["data"].values() for point in points for levels in (point["bids"], point["asks"])
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        if spots:
            levels = data.draw(st.sampled_from(spots))
            levels.insert(data.draw(st.integers(0, len(levels))), data.draw(st.sampled_from(WRONG)))
    body = json.dumps(page).encode()
    assert same(outcome(body, fast=True), outcome(body, fast=False))


@pytest.mark.parametrize("wrong", [w for w in WRONG if w not in ([0.5, 1, 2], ["0.45", 1])], ids=repr)
def test_a_malformed_level_is_refused_with_its_path(wrong: object) -> None:
    """The error names where the malformed level stands."""
    page = {
        "market_id": "m",
        "resolution": "1m",
        "tokens": {"Yes": "1"},
        "data": {"Yes": [{"t": "2026-01-01T00:00:00Z", "bids": [[0.5, 1], wrong, [0.3, 1]], "asks": []}]},
        "metadata": {"count": 1, "limit": 200},
    }
    with pytest.raises(ContractError, match=r"data\.Yes\[0\]\.bids\[1\]"):
        decode_page("books", json.dumps(page).encode())


@pytest.mark.parametrize(
    ("bids", "asks"),
    [
        # As many brackets, pairs and numbers as three levels have.
        ([[[0.1, 2], [0.3, 4]]], [0.5, 0.5]),
        ([0.5, 0.5], [[[0.1, 2], [0.3, 4]]]),
        ([0.5, 1], [0.6, 1]),
        ([[0.5, 1, 2], [0.4]], []),
        ([[[0.5, 1]], [0.4, 1]], []),
    ],
)
def test_pairs_in_the_wrong_place_are_refused(bids: list[object], asks: list[object]) -> None:
    """Numbers and brackets that add up to whole levels, but are none, are refused by both decoders."""
    page = {
        "market_id": "m",
        "resolution": "1m",
        "tokens": {"Yes": "1"},
        "data": {"Yes": [{"t": "2026-01-01T00:00:00Z", "bids": bids, "asks": asks}]},
        "metadata": {"count": 1, "limit": 200},
    }
    body = json.dumps(page).encode()
    assert isinstance(outcome(body, fast=True), str)
    assert outcome(body, fast=True) == outcome(body, fast=False)


def test_ordinary_pages_take_the_fast_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page with nothing unusual never reaches the reference decoder."""
    monkeypatch.setattr(decode.reference_decoder, "load", lambda body: pytest.fail("the reference decoder was asked"))
    snapshot = {"t": "2026-01-01T00:00:00Z", "bids": [[0.5, 1], [0.4, 2]], "asks": []}
    page = {
        "market_id": "m",
        "resolution": "1m",
        "tokens": {"Yes": "1", "No": "2"},
        "data": {"Yes": [snapshot], "No": []},
        "metadata": {"count": 1, "limit": 200, "next_cursor": None},
    }
    assert decode_page("books", json.dumps(page).encode()).points == 1
    single = {
        "market_id": "m",
        "token_id": "1",
        "token_label": "Yes",
        "resolution": "1m",
        "data": [snapshot],
        "metadata": {"count": 1, "limit": 200},
    }
    assert decode_page("books", json.dumps(single).encode()).labels == {"Yes": "1"}
