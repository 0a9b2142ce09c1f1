from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.errors import ContractError
from marketdata.points.columns import Books, Page, joined
from marketdata.testing.strategies import book_pages, encodings
from marketdata.wire import decode
from marketdata.wire.decode import decode_page, decode_pages

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


def equal(a: Books, b: Books) -> bool:
    """Whether both have the same books in the same order."""
    arrays = [(books.bounds, books.ts, books.counts, *books.levels()) for books in (a, b)]
    return a.tokens == b.tokens and all(map(np.array_equal, *arrays))


def same(a: Page | str, b: Page | str) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return equal(a.columns, b.columns) and (
        a.market_id,
        a.resolution,
        a.labels,
        a.count,
        a.limit,
        a.next_cursor,
        a.notes,
    ) == (b.market_id, b.resolution, b.labels, b.count, b.limit, b.next_cursor, b.notes)


def of_one_token(page: dict[str, Any]) -> dict[str, Any]:
    """The page of the first token that a page shows."""
    label, points = next(iter(page["data"].items()))
    own = {"token_id": page["tokens"][label], "token_label": label, "data": points}
    return {key: value for key, value in page.items() if key not in ("tokens", "data")} | own


@given(st.data())
def test_fast_decoder_equals_the_plain_one_on_every_page(data: st.DataObject) -> None:
    """Whatever a page holds and however its JSON is written, both decoders give the same columns and notes."""
    page = data.draw(book_pages())
    body = data.draw(encodings(data.draw(st.sampled_from([page, of_one_token(page)]))))
    assert same(outcome(body, fast=True), outcome(body, fast=False))


@pytest.mark.parametrize("key", ["market_id", "token_id", "token_label", "resolution"])
def test_what_is_written_behind_the_points_of_a_token_is_read(key: str) -> None:
    """The order of keys is that of the service: a label that stands behind the points is that of their token."""
    page: dict[str, Any] = {"market_id": "m", "token_id": "1", "token_label": "Yes", "resolution": "1m"}
    page["data"] = [{"t": "2026-01-01T00:00:00Z", "bids": [[0.5, 1]], "asks": []}]
    page["metadata"] = {"count": 1, "limit": 200}
    page[key] = page.pop(key)
    (token,) = decode_page("books", compact(page)).columns.tokens
    assert token == ("m", "1", "Yes")


@st.composite
def split_pages(draw: st.DrawFn) -> list[bytes]:
    """A page cut in two behind any of its commas: each half looks like a page, and hardly ever is one."""
    page = draw(book_pages())
    head, points = ({k: v for k, v in page.items() if (k == "data") is points} for points in (False, True))
    text = json.dumps(points["data"], separators=(",", ":"))[1:-1]
    places = [i for i, sign in enumerate(text) if sign == ","]
    at = draw(st.sampled_from(places)) if places else len(text)
    frame = json.dumps(head, separators=(",", ":"))[:-1].replace("%", "%%") + ',"data":{%s}}'
    return [(frame % half).encode() for half in (text[:at], text[at + 1 :])]


def compact(page: dict[str, Any]) -> bytes:
    """A page as services write it."""
    return json.dumps(page, separators=(",", ":"), ensure_ascii=False).encode()


bodies = book_pages().map(compact)
several = st.one_of(
    st.lists(bodies, min_size=2, max_size=4),
    split_pages(),
    st.tuples(split_pages(), bodies).map(lambda drawn: [*drawn[0], drawn[1]]),
)


def together(pages: list[bytes]) -> tuple[Books, Counter[str]] | str:
    """Pages decoded as one batch, or the words of their refusal."""
    try:
        return decode_pages("books", pages)
    except ContractError as error:
        return str(error)


@given(several)
def test_pages_read_together_are_what_each_is_by_itself(pages: list[bytes]) -> None:
    """Pages decoded as one text give the columns and notes of each page, or the refusal of the first bad one."""
    alone, batch = [outcome(body, fast=False) for body in pages], together(pages)
    bad = [f"Page {k}: {page}" for k, page in enumerate(alone) if isinstance(page, str)]
    if bad or len({page.resolution for page in alone}) > 1:
        assert batch == bad[0] if bad else "resolutions" in batch
        return
    columns, notes = batch
    expected = joined([page.columns for page in alone]).sort()
    assert equal(columns, expected)
    assert set(notes) >= {name for page in alone for name in page.notes}


@given(bodies, st.data())
def test_a_damaged_page_has_the_same_outcome_in_both_decoders(body: bytes, data: st.DataObject) -> None:
    """Whatever bytes are lost, doubled, moved or written over, neither decoder reads what the other refuses."""
    place = st.integers(body.index(b'"data":'), len(body))
    for _ in range(data.draw(st.integers(1, 3))):
        a, b, c = (min(data.draw(place), len(body)) for _ in range(3))
        a, b = min(a, b), max(a, b)
        kind = data.draw(st.sampled_from(["lost", "doubled", "moved", "written"]))
        if kind == "lost":
            body = body[:a] + body[min(b, a + 3) :]
        elif kind == "written":
            body = (
                body[:a] + data.draw(st.sampled_from([b"[", b"]", b",", b"{", b"}", b'"', b"7", b" "])) + body[a + 1 :]
            )
        else:
            rest = body if kind == "doubled" else body[:a] + body[b:]
            body = rest[:c] + body[a:b] + rest[c:]
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
    body = compact(page)
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
    monkeypatch.setattr(decode.reference_decoder, "read_points", lambda *_: pytest.fail("the slow decoder was asked"))
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
