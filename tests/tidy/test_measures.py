"""Every registered measure of books against its plain loop, and what users may do with measures."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.engines import ENGINES, Engine, fetched, ordered
from reference.kinds import FRAME_KINDS, close, few, fewest, of_kind, rows
from reference.measures import LOOPS, Levels, looped, taken
from reference.odd_points import rich

import marketdata as md
from marketdata.points.measures import MEASURES
from marketdata.testing.strategies import book_columns
from marketdata.tidy.book_measures import FUNCTIONS
from marketdata.tidy.frames import to_frame
from marketdata.times import to_datetime

EPOCH = to_datetime(0)
CALLS = [(name, arguments) for name, (_, trials) in LOOPS.items() for arguments in trials]
WRONG_ARGUMENTS = [
    ("depth", {"levels": 1, "within": 0.1}, "exclude each other"),
    ("depth", {"within": -0.1}, "finite numbers from 0"),
    *(("depth", {"levels": wrong}, "whole numbers from 1") for wrong in (0, -1, 1.5, True, "3", math.nan)),
    ("depth", {"level": 5}, "its arguments are: levels, within"),
    ("fill_price", {"size": 0}, "above 0"),
    ("fill_price", {"size": np.inf}, "finite numbers"),
    ("sweep", {"size": 1}, "missing a required argument: 'side'"),
    ("sweep", {"side": "both", "size": 1}, "allowed are ask, buy, bid, sell"),
    ("sweep", {"side": "buy"}, "exactly one"),
    ("sweep", {"side": "buy", "size": 1, "notional": 1}, "exactly one"),
    ("sweep", {"side": "buy", "size": -1}, "above 0"),
    ("sweep", {"side": "buy", "notional": math.nan}, "finite numbers"),
]


def evaluated(frame: Any, name: str, arguments: Any) -> Any:
    """The measure of a frame: by its function if it has one, else as a feature."""
    if name in FUNCTIONS:
        return getattr(md, name)(frame, **arguments)
    return md.features(frame, [(name, arguments)])


def test_every_measure_has_a_loop() -> None:
    """A measure without a loop in `measure_loops` is not tested here."""
    assert set(MEASURES) >= set(LOOPS) >= {name for name in MEASURES if name in FUNCTIONS}


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), nested=st.booleans(), books=book_columns(most=8))
def test_measures_equal_their_loops(kind: str, nested: bool, books: Any) -> None:
    """Every kind of frame, in any order of rows, with missing sides, as levels and as lists, gives the same."""
    frame = of_kind(books, kind)
    frame = md.nest(frame) if nested else frame
    top = md.bbo(frame)
    for name, arguments in CALLS:
        want = looped(books, partial(LOOPS[name][0], **arguments))
        for one in (frame, top) if MEASURES[name].needs == "top" else (frame,):
            assert close(rows(evaluated(one, name, arguments)), want, digits=1e-11, least=1e-9), (name, arguments)


@pytest.fixture(scope="module", params=ENGINES)
def running(request: Any, engine: Any) -> Engine:
    return engine(request.param)


def test_measures_on_an_engine(running: Engine) -> None:
    """All measures in one pass, one of a user among them, give the rows of polars in the engine's kind of frame."""

    @md.measure(units={"best_gap": "probability"})
    def best_gap(books: Any, *, levels: int = 1) -> Any:
        return books.bids.best - books.asks.best + 0 * books.bids.head(levels).depth

    books = to_frame(rich("books", 30), "polars")
    asked = [
        ("best_gap", {"levels": 2}),
        *((name, dict(given)) for name, given in CALLS if name not in {"mid", "spread"}),
    ]
    asked = [one for one in asked if not (one[0] in {"fill_price", "sweep"} and "fees" in one[1])]
    for nested in (False, True):
        frame = running.frame(books)
        frame = md.nest(frame) if nested else frame
        got = md.features(frame, asked)
        assert type(got) is type(frame)
        order = ["market_id", "token_id", "ts"]
        table = fetched(got).to_polars().with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))
        assert close(rows(table.sort(order)), rows(md.features(books, asked)), digits=1e-9, least=1e-9)
        assert close(ordered(best_gap(frame, levels=2)), ordered(best_gap(books, levels=2)))


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (3, 4, 0, 1, 2)], ids=str)
def test_a_size_that_the_levels_sum_to_is_filled_in_any_order(order: tuple[int, ...]) -> None:
    """Sums of decimals differ in their last bits with their order; the result does not."""
    sizes = [7.83, 3.48, 7.8, 6.13, 0.93]
    levels = [("ask", i, 0.1 + i / 10, sizes[k]) for i, k in enumerate(order)]
    frame = pl.DataFrame(levels, schema=["side", "level", "price", "size"], orient="row")
    frame = frame.with_columns(market_id=pl.lit("m"), token_id=pl.lit("1"), token_label=pl.lit("Yes"), ts=pl.lit(EPOCH))
    exact = sum(Fraction(sizes[k]) * Fraction(0.1 + i / 10) for i, k in enumerate(order))
    for one in (frame, frame.reverse(), frame.lazy()):
        price = rows(md.fill_price(one, 26.17))[0][-1]
        assert price == pytest.approx(float(exact / Fraction(26.17)), rel=1e-12)
        assert rows(md.sweep(one, "buy", size=26.17))[0][4:7] == (26.17, 0.0, pytest.approx(price, rel=1e-12))
        assert rows(md.sweep(one, "buy", notional=float(exact)))[0][4:6] == (float(exact), 0.0)
        assert rows(md.fill_price(one, 26.1701))[0][-1] is None


@few
@given(
    kind=st.sampled_from(FRAME_KINDS),
    books=book_columns(),
    asked=st.lists(st.sampled_from([c for c in CALLS if "fees" not in c[1]]), min_size=1, max_size=4, unique_by=str),
)
def test_features_are_the_columns_of_the_functions(kind: str, books: Any, asked: list[Any]) -> None:
    """One pass gives each measure as its own function does, in the order asked for."""
    names = [name for name, _ in asked]
    if "bbo" in names and {"mid", "spread"} & {*names}:
        asked = [one for one in asked if one[0] != "bbo"]
    frame = of_kind(books, kind)
    parts = [rows(evaluated(frame, name, arguments)) for name, arguments in asked]
    want = [(*part[0][:4], *itertools.chain(*(row[4:] for row in part))) for part in zip(*parts, strict=True)]
    assert rows(md.features(frame, asked)) == want


def test_the_name_of_a_feature_does_not_depend_on_the_others() -> None:
    """Columns of a measure with arguments have these in their names, alone or with others."""
    frame = md.testing.books("polars")
    near = ("imbalance", {"levels": 1})
    assert md.features(frame, [near]).columns[4:] == ["imbalance_levels_1"]
    asked = ["mid", ("depth", {"levels": 1}), "imbalance", near, "best_ask"]
    names = ["mid", "bid_depth_levels_1", "ask_depth_levels_1", "imbalance", "imbalance_levels_1", "best_ask"]
    assert frame.md.features(asked).columns[4:] == names


def test_features_that_do_not_exist_are_refused() -> None:
    """The error says what is allowed."""
    for asked, message in (
        ("mid", "a list of names"),
        ([], "allowed are"),
        (["imbalence"], "did you mean 'imbalance'"),
        ([("depth", 5)], "pair such as"),
        ([5], "pair such as"),
        (["mid", "bbo"], "twice"),
        (["mid", "mid"], "twice"),
    ):
        with pytest.raises(md.MarketDataError, match=message):
            md.features(md.testing.books("polars"), asked)  # type: ignore[arg-type]


def test_arguments_that_make_no_sense_are_refused() -> None:
    """As a function and as a feature, also of a frame without rows."""
    frame = md.testing.books("polars").head(0)
    for name, arguments, message in WRONG_ARGUMENTS:
        for call in (partial(getattr(md, name), **arguments), partial(md.features, measures=[(name, arguments)])):
            with pytest.raises(md.errors.ConfigError, match=message):
                call(frame)


def test_a_measure_says_what_it_needs_and_returns() -> None:
    """It refuses metrics, has units for exactly its columns, and its docstring has rows, units and an example."""
    for name, measure in MEASURES.items():
        arguments = LOOPS[name][1][-1] if name in LOOPS else {}
        with pytest.raises(
            md.errors.NotTidyError,
            match=f"This is a frame of metrics; {name if name in FUNCTIONS else 'features'} takes",
        ):
            evaluated(md.testing.metrics(), name, arguments)
        out = evaluated(md.testing.books("polars"), name, arguments)
        assert {c.split("_levels")[0].split("_within")[0] for c in out.columns[4:]} <= {*measure.units}, name
        if name in FUNCTIONS:
            text = getattr(md, name).__doc__
            assert "One row per (token, ts)" in text, name
            assert ">>> " in text, name
            assert name in dir(md)
            assert getattr(md.Accessor, name).__doc__.endswith(f"see `marketdata.{name}`.")


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), books=book_columns(), levels=st.integers(1, 3))
def test_a_measure_of_a_user_works_as_ours_do(kind: str, books: Any, levels: int) -> None:
    """A formula with an argument is a function, and `features` takes it or its name, for levels and nested books."""

    @md.measure(needs="levels", units={"cost": "USD"}, null="never")
    def cost(books: Any, *, levels: int) -> Any:
        """USD that the best asks cost."""
        return books.asks.total(books.asks.price * books.asks.size) - books.asks.head(levels).depth * 0

    def by_hand(_: Levels, asks: Levels) -> dict[str, Any]:
        return {"cost": taken(asks, Fraction(10**12), money=False)[1]}

    want = looped(books, by_hand)
    for frame in (of_kind(books, kind), md.nest(of_kind(books, kind))):
        assert close(rows(cost(frame, levels=levels)), want)
        for item in ((cost, {"levels": levels}), ("cost", {"levels": levels})):
            out = md.features(frame, [item, "mid"])
            assert close([row[:-1] for row in rows(out)], want)
    assert "USD that the best asks cost." in cost.__doc__
    assert "``cost`` [USD]" in cost.__doc__


def test_a_measure_that_returns_something_else_is_refused() -> None:
    """The error names the measure and what to return."""
    for values, message in (
        (lambda books: 1.0, r"returned \(\) values"),
        (lambda books: {"a": books.mid[:1]}, "return a numpy array with one number per book"),
        (lambda books: np.array(["x"] * len(books)), "return a numpy array"),
    ):
        values.__name__ = "odd"
        with pytest.raises(md.errors.ConfigError, match=message):
            md.measure(values)(md.testing.books())


def test_a_measure_cannot_replace_one_of_ours() -> None:
    """A user's own may be defined again, as when a cell runs twice."""

    def mid(books: Any) -> Any:
        return books.mid

    with pytest.raises(md.errors.ConfigError, match="give the function another name"):
        md.measure(mid)
    mid.__name__ = "mid_of_mine"
    for _ in range(2):
        assert md.measure(mid)(md.testing.books("polars")).columns[4:] == ["mid_of_mine"]
    with pytest.raises(md.errors.ConfigError, match=r"^needs="):
        md.measure(needs="best")
