"""The way of a frame through a verb: how many functions a stranger reads to follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Literal

import pytest

import marketdata as md
import marketdata.pandas
import marketdata.polars
from marketdata.wire.decode import decode_page

ROOT = str(Path(md.__file__).parent)


def entered(call: Callable[[], object]) -> set[tuple[str, str]]:
    """The functions of the package that a call enters, by file; those inside of a function are part of it."""
    found: set[tuple[str, str]] = set()

    def watch(now: FrameType, event: str, _: object) -> None:
        code = now.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and "<" not in code.co_qualname:
            found.add((code.co_filename.removeprefix(ROOT), code.co_qualname))

    call()  # the first one imports
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("verb", "arguments", "most"),
    [
        ("bbo", (), 21),
        ("mid", (), 21),
        ("depth", (), 23),
        ("resample", ("1h",), 31),
        ("ohlc", ("1h",), 27),
        ("returns", (), 21),
    ],
)
def test_a_verb_is_a_short_walk(
    library: Literal["pandas", "polars"], verb: str, arguments: tuple[str, ...], most: int
) -> None:
    """No verb passes through more functions than its page says."""
    make = md.testing.prices if verb in ("ohlc", "returns") else md.testing.books
    walk = entered(partial(getattr(make(library).md, verb), *arguments))
    assert len(walk) <= most, sorted(walk)


def test_a_page_is_a_short_walk() -> None:
    """From the bytes of a page of books to its columns there are no more functions than its page says."""
    books = b'[{"t":"2026-01-01T12:00:00Z","bids":[[0.52,100]],"asks":[[0.54,75]]}]'
    head = b'{"market_id":"m","resolution":"1m","tokens":{"Yes":"1"},"data":{"Yes":%b},'
    page = head % books + b'"metadata":{"count":1,"limit":200,"next_cursor":null}}'
    walk = entered(partial(decode_page, "books", page))
    assert len(walk) <= 11, sorted(walk)
