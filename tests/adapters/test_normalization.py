"""Columns of any type become the columns of a tidy frame, or are refused by name."""

from __future__ import annotations

import polars as pl
import pytest

import marketdata as md
from marketdata.adapters import normalization


def test_levels_of_any_number_type_are_read() -> None:
    """Whole numbers of every width are levels, and the sentinel's null stays null."""
    for dtype in (pl.UInt8, pl.Int8, pl.UInt16, pl.Int16, pl.UInt32, pl.Int64, pl.UInt64, pl.Float32):
        assert normalization.levels(pl.Series("level", [0, 1, None], dtype=dtype)).to_list() == [0, 1, None]


def test_a_level_that_is_no_place_in_a_book_is_refused() -> None:
    """A level below 0, beyond 32 bits or between two whole numbers is named."""
    for wrong in (pl.Series([0, -1], dtype=pl.Int8), pl.Series([2**40]), pl.Series([0.5]), pl.Series([1e300])):
        with pytest.raises(md.errors.NotTidyError, match="levels are 0, 1, 2"):
            normalization.levels(wrong, "level")
