"""Nested books: explode and nest are inverse, and every function returns what it returns for rows of levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narwhals as nw
import polars as pl
import pytest
from hypothesis import given, settings
from reference import foreign, tables
from reference.foreign_cases import as_levels, plain_rows

import marketdata as md
from marketdata.points.schema import LISTS

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")
few = settings(max_examples=4)


@few
@given(drawn=foreign.nested(faults=False))
def test_nested_books_come_back_from_rows_of_levels(drawn: foreign.Foreign) -> None:
    """Exploded and nested again they are the same snapshots in tidy order; an empty side is an empty list."""
    back = md.nest(md.explode(drawn.frame))
    assert type(back) is type(drawn.frame)
    again, once = plain_rows(md.explode(back)), plain_rows(md.explode(drawn.frame))
    if drawn.container == "polars lazy":  # the rows of each part are in order
        again, once = (sorted({str(row): row for row in rows}.values(), key=str) for rows in (again, once))
    assert again == once
    want = plain_rows(tables.nested(drawn.tidy()))
    got = [{c: list(v) if c in LISTS else v for c, v in row.items() if c in want[0]} for row in plain_rows(back)]
    assert got == want


@few
@given(drawn=foreign.books(faults=False))
def test_rows_of_levels_come_back_from_nested_books(drawn: foreign.Foreign) -> None:
    """Nested and exploded again they are the same levels in tidy order, a marker row for each empty side."""
    back = plain_rows(md.explode(md.nest(drawn.frame)))
    want = plain_rows(tables.with_sentinels(drawn.tidy()))
    assert [{c: row[c] for c in want[0]} for row in back] == want


def two() -> pl.DataFrame:
    return md.nest(md.testing.books("polars", buckets=1))


def test_lists_that_differ_in_length_are_refused() -> None:
    """A side with more prices than sizes is no book; the message names the columns, the row and both lengths."""
    polar = two().with_columns(pl.col("ask_size").list.head(1))
    for frame in (polar, polar.to_pandas(), polar.to_arrow()):
        for verb in (md.bbo, md.explode, lambda f: md.resample(f, "1h")):
            with pytest.raises(md.errors.NotTidyError, match="ask_price has 2 entries and ask_size has 1, first 2026"):
                verb(frame)


def test_a_column_that_differs_within_a_snapshot_is_not_nested() -> None:
    """Such a column is refused by name. One that does not differ is kept."""
    books = md.testing.books("polars", buckets=1)
    numbered = books.with_columns(orders=pl.col("level") + 1)
    with pytest.raises(md.errors.NotTidyError, match="orders differs within a snapshot"):
        md.nest(numbered)
    with pytest.raises(md.errors.NotTidyError, match="a book that is filled in repeats one value of it; drop"):
        md.resample(numbered, "1h", fill="null")
    kept = md.nest(books.with_columns(source=pl.lit("feed")))
    assert kept["source"].to_list() == ["feed", "feed"]
    assert md.explode(kept)["source"].to_list() == ["feed"] * books.height


def test_functions_of_values_say_what_to_do_with_nested_books() -> None:
    """Functions of values refuse nested books and name md.explode, which refuses any other frame."""
    for verb in (md.explode, md.nest):
        with pytest.raises(md.errors.NotTidyError, match="price"):
            verb(md.testing.prices())
    with pytest.raises(md.errors.NotTidyError, match="these are rows of levels already"):
        md.explode(md.testing.books())
    with pytest.raises(md.errors.NotTidyError, match=r"md\.explode"):
        md.plot.metrics(two())


def test_rows_of_one_snapshot_stay_one_row() -> None:
    """Functions of one row per token and time pass the lists on and explode nothing."""
    frame = two()
    for got in (
        md.resample(frame, "1h"),
        md.align(frame, "1m"),
        md.available_at(frame, "1m"),
        md.time_to_resolution(frame, md.testing.markets("polars")),
        md.concat([frame, frame]).unique(["token_id", "ts"], maintain_order=True),
        md.around(frame, frame.select("ts", "market_id").unique(), before="1m", after="1m"),
        md.asof_join(frame, frame, width="1m").drop(f"{name}_right" for name in LISTS),
    ):
        assert got.select(LISTS).equals(frame.select(LISTS))


def test_a_lazy_frame_is_worked_on_in_parts() -> None:
    """Streamed in any order, with rows that come again, the result is in order and each row there once."""
    frame = md.nest(md.testing.books("polars", buckets=100))
    mixed = pl.concat([frame.sample(fraction=1, shuffle=True, seed=5), frame.head(20)]).lazy()
    for verb in (md.bbo, md.depth, lambda f: md.to_wide(f, 2), lambda f: md.resample(f, "1h")):
        assert as_levels(verb(mixed).collect(engine="streaming")).equals(as_levels(verb(frame)))
    levels = md.explode(mixed).collect(engine="streaming")
    assert md.resample(levels, "1m").equals(md.resample(md.explode(frame), "1m"))


def test_a_reader_of_batches_is_an_arrow_frame() -> None:
    """Functions take batches of an engine and return a table."""
    table = two().to_arrow()
    for verb in (md.bbo, md.depth, md.nest, md.check, md.explode):
        assert verb(table.to_reader()).equals(verb(table))


WON = {"rain": "11"}
# Functions of books without a plain loop.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "probabilities": md.probabilities,
    "brier": lambda f: md.brier(f, WON),
    "log_score": lambda f: md.log_score(f, WON, of="market"),
    "calibration": lambda f: md.calibration(f, WON, 3),
    "features": lambda f: md.features(f, ["bbo", "imbalance", ("sweep", {"side": "buy", "size": 150.0})]),
    "available_at": lambda f: md.bbo(md.available_at(f, "1m")),
    "around": lambda f: md.mid(md.around(f, moments(), before="1m", after="2m")),
    "time_to_resolution": lambda f: md.depth(md.time_to_resolution(f, md.testing.markets("polars"))),
    "check": md.check,
    "nest": md.nest,
    "align": lambda f: md.explode(md.align(md.nest(f), "1m", fill="null")),
    "execute": lambda f: md.execute(signals(), f, "1m", fees=0, outcomes=WON).fills,
}
CHARTS: dict[str, Callable[[Any], Any]] = {
    "a depth chart": lambda f: md.plot.depth(one_token(f)).get_title(),
    "prices": lambda f: md.plot.prices(md.mid(f)).get_title(),
}


def signals() -> pl.DataFrame:
    mids = md.mid(md.testing.books("polars", buckets=2)).head(1)
    return mids.select("ts", "market_id", "token_id", side=pl.lit("buy"), size=150.0)


def moments() -> pl.DataFrame:
    return md.testing.books("polars", buckets=1).select("ts", "market_id").unique()


def one_token(frame: Any) -> Any:
    return nw.from_native(frame).filter(nw.col("token_id").cast(nw.String) == "11").to_native()


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_function_returns_the_same_for_nested_books_and_levels(kind: str) -> None:
    """Scores, joins, reports, trades, exports and charts do not depend on the shape of the books."""
    levels: Any = md.testing.books("pandas" if kind == "pandas" else "polars", buckets=3)
    levels = levels.to_arrow() if kind == "arrow" else levels
    for name, function in OTHERS.items() if kind != "polars" else [*OTHERS.items(), *CHARTS.items()]:
        got, want = (function(f) for f in (md.nest(levels), levels))
        assert got.equals(want) if hasattr(got, "equals") else got == want, name


def test_to_wide_of_a_lazy_frame_needs_the_number_of_levels() -> None:
    """Without it the columns of a lazy frame are unknown, and the error says what to give."""
    with pytest.raises(md.errors.ConfigError, match="levels=10"):
        md.to_wide(md.testing.books("polars").lazy())
