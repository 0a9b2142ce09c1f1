"""Verbs of frames: functions of the package, methods of df.md, completion, engines and pages of the docs agree."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from properties import test_engine_measures, test_engines

import marketdata as md
import marketdata.pandas
import marketdata.polars
from marketdata.accessor import Accessor, Plots
from marketdata.points.book import OF_LEVELS, OF_TOP, TOP

ROOT = Path(__file__).resolve().parents[1]
VERBS = [name for name, one in vars(Accessor).items() if inspect.isfunction(one) and not name.startswith("_")]
CHARTS = [name for name, one in vars(Plots).items() if inspect.isfunction(one) and not name.startswith("_")]
FRAMES = {"pandas": pd.DataFrame(), "polars": pl.DataFrame(), "lazy": pl.LazyFrame()}
# They have tests of their own on engines, or refuse them.
APART_ON_ENGINES = {
    "resample",
    "complement",
    "asof_join",
    "align",
    "check",
    "pivot",
    "rebuild",
    "diff",
    "show",
    "outcomes",
    "without_answers",
}


def parameters(function: object) -> list[tuple[str, object, object]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", VERBS)
def test_functions_and_accessors_have_the_same_arguments(verb: str) -> None:
    """Each verb of df.md and lf.md is a function of the package, with the same arguments and defaults."""
    for frame in FRAMES.values():
        assert parameters(getattr(frame.md, verb)) == parameters(getattr(md, verb))[1:]


@pytest.mark.parametrize("chart", CHARTS)
def test_charts_of_a_frame_have_the_arguments_of_the_function(chart: str) -> None:
    """A chart of df.md.plot takes first what its function takes, and passes the rest on."""
    *taken, (rest, _, kind) = parameters(getattr(pd.DataFrame().md.plot, chart))
    assert (rest, kind) == ("more", inspect.Parameter.VAR_KEYWORD)
    assert taken == parameters(getattr(md.plot, chart))[1 : len(taken) + 1]


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_tab_after_md_offers_every_verb_and_nothing_private(frame) -> None:
    """`df.md.<tab>` lists the verbs."""
    offered = [name for name in dir(frame.md) if not name.startswith("_")]
    assert set(offered) == {*VERBS, "plot"}
    assert "md" in dir(frame)


def test_a_shell_completes_frames_of_the_client() -> None:
    """IPython, as notebooks use it, completes the verbs of a frame that came from an archive."""
    core = pytest.importorskip("IPython.core.completer", reason="IPython comes with ipykernel")
    archive = md.simulate(events=1, days=0.1, markets=1)
    books = archive.books(archive.records("markets")[0]["id"], on_missing="partial")
    completer = core.IPCompleter(namespace={"books": books, "md": md}, use_jedi=False)
    completer.use_jedi = False
    with core.provisionalcompleter():
        offered = {c.text for text in ("books.md.res", "md.sim") for c in completer.completions(text, len(text))}
    assert any("resample" in text for text in offered), offered
    assert any("simulate" in text for text in offered), offered


@pytest.mark.parametrize("frame", ["pandas", "polars"])
def test_every_frame_that_comes_out_has_the_verbs(frame: str) -> None:
    """Frames of listings, coverage and verification have `.md` in a process that registered nothing."""
    code = f"""
import marketdata as md
archive = md.simulate(events=1, days=0.1, markets=1, frame={frame!r})
archive.coverage().md
archive.verify().md
with md.serve(archive) as service:
    md.Client(service.base_url, service.api_key, frame={frame!r}).markets().md
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "show"])
def test_a_verb_is_documented(verb: str) -> None:
    """A verb is in a table of the analytics page."""
    analytics = (ROOT / "docs" / "analytics.md").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^\|.*`{verb}[`(]|`md\.{verb}\(", analytics)


def test_a_measure_is_a_function_and_a_method() -> None:
    """Each measure of a book is exported by its name and a method of `df.md`; prices and sizes are columns of bbo."""
    measures = {*OF_TOP, *OF_LEVELS} - set(TOP[:4])
    assert measures - set(md.__all__) == set()
    assert measures - set(VERBS) == set()


def test_every_name_has_its_place_in_the_reference() -> None:
    """Each function, class and chart, and each method of clients and archives, is on a page of the reference."""
    reference = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    objects = {name: getattr(md, name) for name in md.__all__}
    named = {name for name, one in objects.items() if inspect.isfunction(one) or inspect.isclass(one)}
    errors = {name for name in named if hasattr(md.errors, name)}
    for owner in (md.Client, md.Archive):
        named |= {f"{owner.__name__}.{name}" for name in vars(owner) if not name.startswith("_")}
    listed = set(re.findall(r"(?m)^(?:   |\.\. auto\w+:: )([\w.]+)$", reference))
    listed |= {name.rpartition(".")[2] for name in listed if name.startswith("marketdata.")}
    assert named - errors - listed == set()
    assert set(md.plot.__all__) <= listed


def test_every_verb_runs_on_the_engines() -> None:
    """No verb is left out of the tests over Dask, Spark and DuckDB."""
    engines = {*test_engine_measures.VERBS, *test_engines.VERBS, *APART_ON_ENGINES}
    assert not set(VERBS) - set(" ".join(engines).split())


def test_what_follows_a_verb_in_a_lazy_query_is_done_after_it() -> None:
    """Rows and columns that are chosen of a lazy result are not missing where the verb computes it."""
    prices = md.testing.prices("polars")
    want, lazy = md.returns(prices), md.returns(prices.lazy())
    last = pl.col("ts") == prices["ts"].max()
    assert lazy.filter(last).collect().rows() == want.filter(last).rows()
    assert lazy.slice(2, 1).collect().rows() == want.slice(2, 1).rows()
    assert lazy.select("returns").collect().rows() == want.select("returns").rows()


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_a_verb_that_adds_a_column_leaves_rows_where_they_are(kind: str) -> None:
    """So that the new column can be put beside the frame that was given, in whatever order that is."""
    prices = md.testing.prices("polars").sort("price", descending=True)[1:]
    given = {"pandas": prices.to_pandas, "polars": lambda: prices, "lazy": prices.lazy, "arrow": prices.to_arrow}[
        kind
    ]()
    for out in (md.available_at(given, "1m"), md.time_to_resolution(given, md.testing.markets())):
        same = out.collect() if kind == "lazy" else pl.DataFrame(out)
        assert same["price"].to_list() == prices["price"].to_list()


def test_a_verb_that_adds_a_column_keeps_the_index_of_pandas() -> None:
    """A column is assigned by the index: with another one each row would get the value of a different row."""
    prices = md.testing.prices().query("price > 0.41")[::-1]
    assert prices.index.tolist() == [5, 4, 3, 2]
    prices["known"] = md.available_at(prices, "1m")["available_at"]
    assert (prices["known"] - prices["ts"]).dt.seconds.tolist() == [60] * 4
    assert md.time_to_resolution(prices, md.testing.markets()).index.equals(prices.index)
