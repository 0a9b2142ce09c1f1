"""Values and times of points: rows D and T of the fault matrix."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from reference.columns import levels_of

from marketdata.errors import ContractError
from marketdata.points.columns import Page
from marketdata.tidy.frames import to_frame
from marketdata.times import Range, to_micros, to_text
from marketdata.wire.decode import decode_page

T0 = "2026-01-01T00:00:00Z"
RANGE = Range(to_micros("2026-01-01", "start"), to_micros("2026-01-02", "end"))


def book(bids: Any = (), asks: Any = (), t: Any = T0, **more: Any) -> dict[str, Any]:
    return {"t": t, "bids": bids, "asks": asks, **more}


def body(view: str, *points: Any) -> bytes:
    """A page that holds these points, written as Python writes JSON."""
    page: dict[str, Any] = {"market_id": "0xm", "resolution": "1m", "metadata": {"count": len(points), "limit": 200}}
    page |= {"data": list(points)} if view == "metrics" else {"tokens": {"Yes": "1"}, "data": {"Yes": list(points)}}
    return json.dumps(page).encode()


def read(view: Any, *points: Any) -> Page:
    return decode_page(view, body(view, *points))


def levels(page: Page) -> list[list[float]]:
    return levels_of(page.columns).tolist()  # type: ignore[union-attr,no-any-return]


@pytest.mark.fault("D1")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("view", ["books", "prices"])
def test_numbers_that_are_not_json_are_refused(number, view) -> None:
    """NaN, Infinity and what overflows to it are no numbers of an answer."""
    point = book([[0.5, 7.25]]) if view == "books" else {"t": T0, "p": 7.25}
    with pytest.raises(ContractError):
        decode_page(view, body(view, point).replace(b"7.25", number.encode()))


@pytest.mark.fault("D2")
def test_a_null_price_or_metric_stays_null_and_is_counted() -> None:
    """Null is null in the frame, never 0 and never the value before."""
    page = read("prices", {"t": T0, "p": 0.5}, {"t": "2026-01-01T00:01:00Z", "p": None})
    assert page.notes["null_value"] == 1
    assert to_frame(page.columns, "polars")["price"].to_list() == [0.5, None]
    page = read("metrics", {"t": T0, "volume": None, "liquidity": 1, "spread": 0.1})
    assert to_frame(page.columns, "polars")["volume"].to_list() == [None]


@pytest.mark.fault("D4")
@pytest.mark.parametrize("view", ["books", "prices", "metrics"])
def test_a_truth_value_is_no_number(view) -> None:
    """True is refused, though Python counts it as 1."""
    point = {
        "books": book([[0.5, True]]),
        "prices": {"t": T0, "p": True},
        "metrics": {"t": T0, "volume": True, "liquidity": 1, "spread": 1},
    }
    with pytest.raises(ContractError, match="got `bool`"):
        read(view, point[view])


@pytest.mark.fault("D5")
def test_integers_first_and_floats_later_keep_every_value() -> None:
    """A column is float64 from its first row, whatever type JSON wrote there."""
    points = [{"t": to_text(RANGE.start + i * 60_000_000), "p": 1 if i < 200 else 0.5} for i in range(201)]
    for kind in ("pandas", "polars"):
        frame = to_frame(read("prices", *points).columns, kind)  # type: ignore[arg-type]
        assert list(frame["price"])[-1] == 0.5


def counted(row: str, view: str, points: list[Any], name: str, count: int = 1) -> Any:
    """A case of points that are kept as they are, and counted under a name."""
    return pytest.param(view, points, {name: count}, marks=pytest.mark.fault(row), id=f"{row} {view} {name}")


@pytest.mark.parametrize(
    ("view", "points", "notes"),
    [
        counted("D6", "prices", [{"t": T0, "p": 1.2}], "price_outside_0_1"),
        counted("D6", "books", [book([[-0.1, 5]])], "price_outside_0_1"),
        counted("D7", "books", [book([[0.5, 0], [0.4, -1]])], "size_not_positive", 2),
        counted("D8", "books", [book([[0.6, 1]], [[0.5, 1]])], "crossed_book"),
        counted("D8", "books", [book([[0.5, 1]], [[0.5, 1]])], "locked_book"),
        counted("D10", "books", [book([[0.5, 1], [0.5, 2]])], "same_price_twice"),
        counted("T1", "prices", [{"t": "2026-01-01T00:00:00", "p": 0.5}], "time_without_zone"),
        counted("T8", "prices", [{"t": "2026-01-01T00:00:30Z", "p": 0.5}], "time_not_on_a_bucket"),
    ],
)
def test_unusual_values_are_kept_and_counted(view, points, notes) -> None:
    """Nothing is clamped, moved or dropped; a time without a zone is UTC."""
    page = read(view, *points)
    assert dict(+page.notes) == notes
    assert page.columns.ts.tolist() == [to_micros(point["t"], "t") for point in points]
    if view == "prices":
        assert page.columns.price.tolist() == [point["p"] for point in points]  # type: ignore[union-attr]
    else:
        assert levels(page) == [level for point in points for level in (*point["bids"], *point["asks"])]


@pytest.mark.fault("D9")
def test_unsorted_levels_are_put_best_first() -> None:
    """Bids fall, asks rise, and each side that was repaired is counted."""
    page = read("books", book([[0.1, 1], [0.3, 3], [0.2, 2]], [[0.9, 1], [0.8, 2]]))
    assert levels(page) == [[0.3, 3], [0.2, 2], [0.1, 1], [0.8, 2], [0.9, 1]]
    assert page.notes["levels_sorted"] == 2


@pytest.mark.fault("D13")
def test_an_empty_side_is_normal_a_null_one_mended_a_missing_one_refused() -> None:
    """[] is an empty side, null is read as one, and an absent side cannot be read."""
    assert not read("books", book([], [])).notes
    assert read("books", book(None, [])).notes["null_side"] == 1
    with pytest.raises(ContractError, match="`asks`"):
        read("books", {"t": T0, "bids": []})


@pytest.mark.fault("D14")
@pytest.mark.parametrize("number", ["1" + "0" * 400, "9" * 5000, "18446744073709551616"])
def test_numbers_beyond_64_bits_never_escape_as_a_plain_error(number) -> None:
    """A number that no float holds is a ContractError; 2 to the 64 is a float."""
    text = body("books", book([[0.5, 7.25]])).replace(b"7.25", number.encode())
    if len(number) < 100:
        assert levels(decode_page("books", text)) == [[0.5, float(number)]]
    else:
        with pytest.raises(ContractError):
            decode_page("books", text)


@pytest.mark.fault("D15")
def test_bits_of_numbers_are_kept() -> None:
    """Negative zero and 0.30000000000000004 come through as they are."""
    page = read("books", book([[0.30000000000000004, 1], [-0.0, 1]]))
    assert levels(page)[0][0] == 0.30000000000000004
    assert math.copysign(1, levels(page)[1][0]) == -1


@pytest.mark.fault("D16")
def test_a_book_of_ten_thousand_levels_is_a_book() -> None:
    """Depth has no limit but the size of the answer."""
    side = [[1 - i / 20_000, 1] for i in range(10_000)]
    frame = to_frame(read("books", book(side)).columns, "polars")
    assert frame["level"].max() == 9_999


@pytest.mark.fault("D17")
def test_a_byte_order_mark_is_accepted_and_broken_text_refused() -> None:
    """UTF-8 is the only text."""
    plain = body("prices", {"t": T0, "p": 0.5})
    assert decode_page("prices", b"\xef\xbb\xbf" + plain).points == 1
    with pytest.raises(ContractError, match="UTF-8"):
        decode_page("prices", plain.replace(b"Yes", b"Y\xffs"))
    with pytest.raises(ContractError, match="not JSON"):
        decode_page("prices", plain.replace(b"Yes", rb"Y\ud800s"))


@pytest.mark.fault("T2")
@pytest.mark.parametrize(
    ("text", "utc"),
    [("2026-01-01T05:30:00+05:30", T0), ("2026-01-01T00:00:00-00:00", T0), ("2025-12-31T19:00:00-05", T0)],
)
def test_offsets_are_converted(text, utc) -> None:
    """Every offset names the same instant in UTC."""
    assert read("books", book([[0.5, 1]], t=text)).columns.ts.tolist() == [to_micros(utc, "t")]


@pytest.mark.fault("T5")
def test_fractions_are_kept_to_the_microsecond() -> None:
    """Smaller parts are cut and counted."""
    page = read("prices", {"t": "2026-01-01T00:00:00.5Z", "p": 0.5}, {"t": "2026-01-01T00:00:01.0000001Z", "p": 0.5})
    assert (page.columns.ts - RANGE.start).tolist() == [500_000, 1_000_000]
    assert page.notes["time_below_a_microsecond"] == 1


@pytest.mark.fault("T6")
def test_far_years_work_to_9999() -> None:
    """Microseconds reach them where nanoseconds do not."""
    for kind in ("pandas", "polars"):
        frame = to_frame(read("prices", {"t": "9999-12-31T23:59:00Z", "p": 0.5}).columns, kind)  # type: ignore[arg-type]
        assert {t.year for t in frame["ts"]} == {9999}
    with pytest.raises(ContractError):
        read("prices", {"t": "10000-01-01T00:00:00Z", "p": 0.5})


IMPOSSIBLE = ["2026-01-01T23:59:60Z", "2026-01-01T24:00:00Z", "2026-13-01T00:00:00Z"]


@pytest.mark.fault("T3", "T7")
@pytest.mark.parametrize("value", [*IMPOSSIBLE, None, "", "NaT", "٢٠٢٦-٠١-٠١T00:00:00Z", "yesterday", True, []])
def test_what_is_no_time_is_refused(value) -> None:
    """The error names the point."""
    with pytest.raises(ContractError, match=r"\$\.data\[\.\.\.\]\[0\]\.t"):
        read("books", book(t=value))
