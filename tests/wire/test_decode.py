from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.errors import ContractError
from marketdata.points.columns import METRICS, Books, Page
from marketdata.testing.strategies import book_pages, encodings
from marketdata.times import parse_iso
from marketdata.wire.decode import decode_page, decode_pages

T0 = "2026-01-01T00:00:00Z"
NOT_A_LEVEL = [[0.4], [0.5, 1, 2], ["0.45", 1], [True, 1], [None, 1], {"p": 1}, 0.5, None, "0.5", [10**400, 1]]


def compact(page: object) -> bytes:
    return json.dumps(page, separators=(",", ":"), ensure_ascii=False).encode()


def token_page(page: dict[str, Any]) -> dict[str, Any]:
    """The page of the first token that a market page shows."""
    label, points = next(iter(page["data"].items()))
    token = {"token_id": page["tokens"][label], "token_label": label, "data": points}
    return {key: value for key, value in page.items() if key not in ("tokens", "data")} | token


def rows_by_loop(body: bytes) -> list[tuple[Any, ...]]:
    """One row per snapshot by json.loads and plain loops: token, time, sides with the best level first."""
    page = json.loads(body)
    groups = page["data"] if "tokens" in page else {page["token_label"]: page["data"]}
    ids = page["tokens"] if "tokens" in page else {page["token_label"]: page["token_id"]}
    rows = []
    for label, points in groups.items():
        for point in points:
            bids = sorted(map(tuple, point["bids"] or []), key=lambda level: -level[0])
            asks = sorted(map(tuple, point["asks"] or []), key=lambda level: level[0])
            rows.append((ids.get(label), label, parse_iso(point["t"]), bids, asks))
    return rows


def rows_of(page: Page) -> list[tuple[Any, ...]]:
    books = page.columns
    assert isinstance(books, Books)
    price, size = books.levels()
    levels = list(zip(price.tolist(), size.tolist(), strict=True))
    ends = np.cumsum(books.counts).tolist()
    sides = [levels[end - count : end] for end, count in zip(ends, books.counts.tolist(), strict=True)]
    tokens = [books.tokens[code] for code in books.token.tolist()]
    rows = zip(tokens, books.ts.tolist(), sides[::2], sides[1::2], strict=True)
    return [(token.token_id, token.token_label, ts, bids, asks) for token, ts, bids, asks in rows]


@given(st.data())
def test_a_page_of_books_equals_a_plain_json_loop(data) -> None:
    """Any page, of a market or a token, in any valid spelling of JSON, has the rows that json.loads gives."""
    page = data.draw(book_pages())
    if data.draw(st.booleans()):
        page = token_page(page)
    page["further_field"] = {"anything": [1, None, "x"]}
    body = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + data.draw(encodings(page))
    decoded = decode_page("books", body)
    assert rows_of(decoded) == rows_by_loop(body.removeprefix(b"\xef\xbb\xbf"))
    assert decoded.next_cursor == page["metadata"]["next_cursor"]
    assert decoded.count == page["metadata"]["count"]


numbers = st.one_of(st.none(), st.integers(-3, 3), st.floats(-1e9, 1e9))
metric_points = st.lists(
    st.dictionaries(st.sampled_from([*METRICS, "open_interest", "trades"]), numbers).map(
        lambda point: {"t": T0, **point}
    ),
    max_size=5,
)


@pytest.mark.fault("P28")
@given(metric_points, st.booleans(), st.sampled_from([None, "text", True, [1]]))
def test_metrics_equal_a_plain_json_loop(points, is_map, other) -> None:
    """A list or a map of one list; missing metrics are null, further numbers are columns, other fields pass."""
    if points and other is not None:
        points = [{**point, "other": other} for point in points]
    head = {"market_id": "m", "resolution": "1m", "metadata": {"count": len(points), "limit": 200}}
    columns = decode_page("metrics", compact({**head, "data": {"m": points} if is_map else points})).columns
    names = dict.fromkeys([*METRICS, *(name for point in points for name in point if name not in ("t", "other"))])
    assert list(columns.values) == list(names)
    for name in names:
        values = [np.nan if point.get(name) is None else point[name] for point in points]
        np.testing.assert_array_equal(columns.values[name], np.array(values, float))


@given(st.lists(book_pages().map(compact), min_size=1, max_size=4))
def test_pages_read_together_are_the_rows_of_each(pages) -> None:
    """Pages decoded as one batch have the rows of all, in tidy order."""
    rows = [row for body in pages for row in rows_by_loop(body)]
    columns, _, _ = decode_pages("books", pages)
    decoded = rows_of(Page(columns, "m", "1m", {}, 0, 0, None))
    assert sorted(decoded, key=repr) == sorted(rows, key=repr)
    assert columns.is_sorted


@pytest.mark.fault("D11")
@given(st.data())
def test_a_level_that_is_no_pair_of_numbers_is_refused_with_its_path(data) -> None:
    """The error names the snapshot, the side and the level."""
    page = copy.deepcopy(data.draw(book_pages()))
    spots = [
        (k, side, point[side])
        for points in page["data"].values()
        for k, point in enumerate(points)
        for side in ("bids", "asks")
    ]
    if spots:
        k, side, levels = data.draw(st.sampled_from(spots))
        place = data.draw(st.integers(0, len(levels)))
        levels.insert(place, data.draw(st.sampled_from(NOT_A_LEVEL)))
        with pytest.raises(ContractError) as refused:
            decode_page("books", compact(page))
        assert f"$.data[...][{k}].{side}[{place}]" in str(refused.value)


@given(st.data())
def test_a_damaged_page_is_refused_or_reads_as_json_reads_it(data) -> None:
    """Whatever bytes are lost or written over, the result is that of json.loads, or a ContractError."""
    body = compact(data.draw(book_pages()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        written = data.draw(st.sampled_from([b"[", b"]", b",", b"{", b"}", b'"', b"7", b" ", b"\\", b"\xff", b""]))
        body = body[:at] + written + body[at + 1 :]
    try:
        decoded = rows_of(decode_page("books", body))
    except ContractError:
        return
    assert decoded == rows_by_loop(body)


@pytest.mark.fault("P14", "P28")
@pytest.mark.parametrize("lacks", ["market_id", "resolution", "metadata", "tokens"])
def test_a_page_without_a_required_field_is_refused(lacks) -> None:
    """The error names the field."""
    page = {"market_id": "m", "resolution": "1m", "tokens": {}, "data": {}, "metadata": {"count": 0, "limit": 1}}
    del page[lacks]
    with pytest.raises(ContractError, match=f"`{lacks}`"):
        decode_page("books", compact(page))


@pytest.mark.fault("P28")
@pytest.mark.parametrize("view", ["books", "prices", "metrics"])
def test_a_body_of_another_shape_is_refused(view) -> None:
    """A list, a text or null instead of a page, or data that is no map of lists, is no data."""
    page = {"market_id": "m", "resolution": "1m", "tokens": {}, "metadata": {"count": 0, "limit": 1}}
    point = {"t": T0, "p": 0.5, "bids": [], "asks": []}
    bodies = [[], None, "text", 5, {"market_id": "m"}, page, page | {"data": "x"}, page | {"data": {"Yes": point}}]
    for body in bodies if view == "metrics" else [*bodies, page | {"data": [point]}]:
        with pytest.raises(ContractError):
            decode_page(view, compact(body))
