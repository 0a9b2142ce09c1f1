"""Old names of the API are refused, and the error says what to write."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import marketdata as md
from marketdata.renamed import ARGUMENTS, NAMES

FRAME: Any = md.testing.prices("polars")
CLIENT = md.Client("http://127.0.0.1:9", "a-key-of-nobody-1")


@pytest.mark.parametrize("function", ARGUMENTS)
def test_an_old_argument_names_the_new_one(function: str) -> None:
    """Functions, methods of frames and methods of clients refuse it alike, and the new argument exists."""
    owner: Any = md.plot if function == "outcomes" else md if hasattr(md, function) else CLIENT
    methods = FRAME.md.plot if owner is md.plot else FRAME.md
    for old, new in ARGUMENTS[function].items():
        current = getattr(owner, function)
        assert " " in new or new in inspect.signature(current).parameters
        for call in (current, getattr(methods, function, current)):
            with pytest.raises(md.errors.ConfigError, match=re.escape(f"is now {new}")) as refused:
                call(**{old: "1m"})
            assert refused.value.argument == old


def test_an_old_name_says_what_to_write() -> None:
    """Names that are gone are no longer listed, at the top or on frames."""
    for old, instead in NAMES.items():
        assert old not in dir(md)
        for owner in (md, FRAME.md):
            with pytest.raises(AttributeError) as missing:
                getattr(owner, old)
            assert instead in str(missing.value)


def test_errors_are_in_their_module() -> None:
    """Only the base class is at the top; the others say where they are."""
    assert md.MarketDataError is md.errors.MarketDataError
    with pytest.raises(AttributeError, match=r"write md\.errors\.ConfigError"):
        getattr(md, "ConfigError")  # noqa: B009 what type checkers know
