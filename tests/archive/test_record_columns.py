"""Listings of an archive come from columns, which tell what the texts of the records tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import marketdata as md
from marketdata.archive.record_columns import Listing
from marketdata.points.records import FIELDS, RECORD_KINDS, RecordKind
from marketdata.tidy.records import to_frame

DATES = ("2026-01-01", "2026-01-01T10:00:00Z", "2026-02-01T00:00:00.25+02:00", "tomorrow", "0001-01-01")
ODD = (None, 5, 2**60, 0.5, True, "a text", "", [], ["x"], [1], [None], {"a": 1}, [{"id": None}])
TOKENS = ([], [{"id": "1", "label": "Yes"}], [{"id": "1", "label": None}, {"id": "2", "label": "No", "winner": True}])
USUAL: dict[str, tuple[Any, ...]] = {
    "date": DATES, "number": (1, 0.25, 1e300, None), "numbers": ([0, 1], [0.5, None], None), "texts": (["a", "b"], []),
    "tokens": TOKENS, "id": ("a", "ü", None), "text": ("Will it?", None),
}  # fmt: skip


@st.composite
def records(draw: st.DrawFn, kind: RecordKind) -> list[dict[str, Any]]:
    """Some records of a kind: usual values, a few odd ones, fields that are not there, and further fields."""
    out = []
    for number in range(draw(st.integers(0, 5))):
        row: dict[str, Any] = {"id": f"m{number}"}
        for field in draw(st.permutations(FIELDS[kind])):
            if field.name == "id" or not draw(st.booleans()):
                continue
            odd = ODD if field.type in ("date", "number", "numbers") and draw(st.integers(0, 9)) == 0 else ()
            row[field.name] = draw(st.sampled_from(odd or USUAL[field.type]))
        further = st.sampled_from(("fields", "record", "gamma_id", "volumeNum", "of", "at"))
        out.append(row | draw(st.dictionaries(further, st.sampled_from(ODD), max_size=2)))
    return out


@pytest.mark.parametrize("library", ["polars", "pandas"])
@pytest.mark.parametrize("kind", RECORD_KINDS)
@settings(max_examples=12)
@given(data=st.data())
def test_the_columns_make_the_frame_of_the_records(kind: RecordKind, library: Any, data: st.DataObject) -> None:
    """A frame that is made of the columns has the columns, types and values of the one that is made of the texts."""
    given_records = data.draw(records(kind))
    listing = Listing.of(kind, given_records)
    made, expected = listing.frame(library), to_frame(kind, given_records, library)
    if library == "pandas":
        import pandas as pd

        pd.testing.assert_frame_equal(made, expected)
    else:
        assert_frame_equal(made, expected)
    assert [*listing.parsed()] == given_records


def test_columns_that_differ_from_their_record_are_found_and_made_again(tmp_path: Path) -> None:
    """A question that another program changed in its column alone is named by verify; repair takes the record's."""
    archive = md.Archive(tmp_path, frame="polars")
    archive.add(markets=md.testing.markets("polars", markets=2), prices=md.testing.prices("polars"))
    other = deltalake.DeltaTable(f"{tmp_path}/markets")
    wrong = pl.DataFrame(other.to_pyarrow_dataset().to_table()).with_columns(question=pl.lit("Will it snow?"))
    schema = other.to_pyarrow_dataset().schema
    deltalake.write_deltalake(other, wrong.to_arrow().cast(schema), mode="overwrite")
    archive = md.Archive(tmp_path, frame="polars")
    named = archive.verify().filter(pl.col("view") == "markets")
    assert named["market_id"].to_list() == archive.markets()["market_id"].to_list()
    archive.verify(repair=True)
    assert archive.verify().filter(pl.col("view") == "markets").is_empty()
    assert archive.markets()["question"].to_list() == [one["question"] for one in archive.records("markets")]
