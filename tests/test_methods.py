"""Functions of the package, methods of df.md, engines and pages of the docs agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import marketdata as md
from marketdata.accessor import Accessor, Plots

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONS = [name for name in md.__all__ if inspect.isfunction(getattr(md, name))]
METHODS = [name for name, one in vars(Accessor).items() if inspect.isfunction(one) and not name.startswith("_")]
FRAMES = (pd.DataFrame(), pl.DataFrame(), pl.LazyFrame())


def parameters(function: object) -> list[tuple[str, object, object]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


def test_functions_and_methods_have_the_same_arguments() -> None:
    """Each method of df.md and lf.md is a function of the package, with the same arguments and defaults."""
    for frame in FRAMES:
        for name in METHODS:
            assert parameters(getattr(frame.md, name)) == parameters(getattr(md, name))[1:], name


def test_the_functions_whose_first_argument_is_a_frame_are_methods() -> None:
    """One rule says what is a method: of all functions, those that are given a frame first."""
    first = ("frame", "books", "trades", "orders", "fills", "markets", "left", "messages_or_frame")
    given = {name: next(iter(inspect.signature(getattr(md, name)).parameters.values())) for name in FUNCTIONS}
    frames = {name for name, one in given.items() if one.name in first and one.kind is not one.KEYWORD_ONLY}
    assert frames == {*METHODS}
    charts = {name for name in vars(Plots) if not name.startswith("_")}
    assert charts == {*md.plot.__all__}


def test_durations_widths_and_fees_mean_the_same_everywhere() -> None:
    """A duration is a text or a timedelta, a width follows by position and may be left out, net needs its fees."""
    durations = {"horizon", "horizons", "latency", "exit_after", "tolerance", "before", "after", "max_gap", "max_age"}
    found = set()
    for name in FUNCTIONS:
        takes = inspect.signature(getattr(md, name)).parameters
        found |= durations & takes.keys()
        assert all("Duration" in str(takes[one].annotation) for one in durations & takes.keys()), name
        widths = [one for one in takes if name != "show" and one.endswith("width")]
        assert [takes[one].default for one in widths] == [None] * len(widths), name
        assert name == "replay" or all(
            (takes[w].kind is inspect.Parameter.KEYWORD_ONLY) == (w != "width") for w in widths
        )
        assert "interval" not in takes or takes["interval"].default == 0.95, name
    assert found == durations
    for name in ("execute", "forward_returns", "study"):
        assert inspect.signature(getattr(md, name)).parameters["fees"].default is inspect.Parameter.empty, name


def test_completion_lists_what_fits_the_columns() -> None:
    """`df.md.<tab>` offers measures on books, none of them on prices, and nothing private."""
    books, prices, metrics = (
        set(dir(frame.md)) for frame in (md.testing.books(), md.testing.prices("polars"), md.testing.metrics("polars"))
    )
    assert books >= {"bbo", "depth", "resample", "overround", "plot"}
    assert prices >= {"returns", "probabilities", "brier", "resample"}
    assert not {"bbo", "depth", "overround"} & (prices | metrics)
    assert not {"brier", "probabilities"} & metrics
    assert {"bbo", "spread", "returns"} <= set(dir(md.testing.books("polars").md.bbo().lazy().md))
    assert set(dir(md.testing.markets().md)) >= {"outcomes", "without_answers"}
    assert "rebuild" in dir(md.diff(md.testing.books()).md)
    assert all(not name.startswith("_") for name in books | prices)


def test_a_shell_completes_methods_and_charts(local_archive: md.Archive) -> None:
    """IPython as installed completes the methods and charts of a frame of an archive, of polars, and of a lazy one."""
    core = pytest.importorskip("IPython.core.completer", reason="IPython comes with make docs")
    books = local_archive.prices(local_archive.records("markets")[0]["id"])
    frame = md.testing.books("polars")
    frames = {"books": books, "frame": frame, "lazy": frame.lazy(), "md": md}
    wanted = {"books.md.res": "resample", "books.md.plot.can": "candles", "md.sim": "simulate"}
    wanted |= {"frame.md.": "depth", "frame.md.plot.": "ladder", "lazy.md.dep": "depth", "lazy.md.plot.": "depth"}
    completer = core.IPCompleter(namespace=frames)
    with core.provisionalcompleter():
        for text, name in wanted.items():
            assert any(name in offered.text for offered in completer.completions(text, len(text))), text


def test_every_name_has_its_place_in_the_docs() -> None:
    """Each function, class, chart and method has its page of the reference."""
    reference = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    objects = {name: getattr(md, name) for name in md.__all__}
    named = {name for name, one in objects.items() if inspect.isfunction(one) or inspect.isclass(one)}
    named -= {name for name in named if hasattr(md.errors, name)}
    for owner in (md.Client, md.Archive):
        named |= {f"{owner.__name__}.{name}" for name in vars(owner) if not name.startswith("_")}
    listed = set(re.findall(r"(?m)^(?:   |\.\. auto\w+:: )([\w.]+)$", reference))
    listed |= {name.rpartition(".")[2] for name in listed if name.startswith("marketdata.")}
    assert named - listed == set()
    assert set(md.plot.__all__) <= listed


def test_what_follows_a_function_in_a_lazy_query_is_done_after_it() -> None:
    """Rows and columns that are chosen of a lazy result are not missing where the function computes it."""
    prices = md.testing.prices("polars")
    expected, lazy = md.returns(prices), md.returns(prices.lazy())
    last = pl.col("ts") == prices["ts"].max()
    assert lazy.filter(last).collect().rows() == expected.filter(last).rows()
    assert lazy.slice(2, 1).collect().rows() == expected.slice(2, 1).rows()
    assert lazy.select("returns").collect().rows() == expected.select("returns").rows()


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_a_function_that_adds_a_column_leaves_rows_where_they_are(kind: str) -> None:
    """The new column can be put beside the frame that was given, in whatever order that is."""
    prices = md.testing.prices("polars").sort("price", descending=True)[1:]
    convert = {"pandas": prices.to_pandas, "polars": lambda: prices, "lazy": prices.lazy, "arrow": prices.to_arrow}
    frame = convert[kind]()
    for out in (md.available_at(frame, "1m"), md.time_to_resolution(frame, md.testing.markets())):
        rows = out.collect() if kind == "lazy" else pl.DataFrame(out)
        assert rows["price"].to_list() == prices["price"].to_list()


def test_a_function_that_adds_a_column_keeps_the_index_of_pandas() -> None:
    """A column is assigned by the index: with another one each row would get the value of a different row."""
    prices = md.testing.prices().query("price > 0.41")[::-1]
    assert prices.index.tolist() == [5, 4, 3, 2]
    prices["available"] = md.available_at(prices, "1m")["available_at"]
    assert (prices["available"] - prices["ts"]).dt.seconds.tolist() == [60] * 4
    assert md.time_to_resolution(prices, md.testing.markets()).index.equals(prices.index)


def test_the_example_of_help_is_a_function_that_fits() -> None:
    """What a frame prints of its functions explains one of these."""
    for frame in (md.testing.prices(), md.testing.books(), md.testing.metrics()):
        shown = repr(frame.md)
        [name] = re.findall(r"help\(df\.md\.(\w+)\)", shown)
        assert name in re.findall(r"\w+", shown.partition(". help")[0])


def test_what_a_frame_offers_says_which_names_are_called() -> None:
    """Properties are listed apart from functions: calling one is a TypeError."""
    functions, properties = repr(md.testing.books().md).split("\n")
    assert properties == "Without brackets: plot, report."
    assert not {"plot", "report"} & {*re.findall(r"\w+", functions)}
    assert all(callable(getattr(Accessor, name)) for name in re.findall(r"\w+", functions.split(":")[1].split(".")[0]))
