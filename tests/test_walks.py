"""The way of a frame through a verb: how many functions a stranger reads to follow it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import marketdata as md
import marketdata.pandas
import marketdata.polars

ROOT = str(Path(md.__file__).parent)


def entered(verb: str, frame: Any, *arguments: str) -> set[tuple[str, str]]:
    """The functions of the package that a method enters, by file; those inside of a function are part of it."""
    found: set[tuple[str, str]] = set()

    def watch(now: FrameType, event: str, _: object) -> None:
        code = now.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and "<" not in code.co_qualname:
            found.add((code.co_filename.removeprefix(ROOT), code.co_qualname))

    method = getattr(frame.md, verb)
    method(*arguments)  # the first call imports
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        method(*arguments)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("verb", "arguments", "most"),
    [
        ("bbo", (), 22),
        ("mid", (), 22),
        ("depth", (), 24),
        ("resample", ("1h",), 33),
        ("ohlc", ("1h",), 27),
        ("returns", (), 21),
    ],
)
def test_a_verb_is_a_short_walk(
    library: Literal["pandas", "polars"], verb: str, arguments: tuple[str, ...], most: int
) -> None:
    """No verb passes through more functions than its page says."""
    make = md.testing.prices if verb in ("ohlc", "returns") else md.testing.books
    walk = entered(verb, make(library), *arguments)
    assert len(walk) <= most, sorted(walk)
