"""Verbs of frames: functions of the package, methods of df.md, engines and pages of the docs agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pandas as pd
import polars as pl
import pytest
from properties import test_engine_measures, test_engines

import marketdata as md
import marketdata.pandas
import marketdata.polars
from marketdata.accessor import Accessor

ROOT = Path(__file__).resolve().parents[1]
VERBS = [name for name, one in vars(Accessor).items() if inspect.isfunction(one) and not name.startswith("_")]
# They have tests of their own on engines, or refuse them.
APART_ON_ENGINES = {"resample", "complement", "asof_join", "align", "check", "pivot", "show", "outcomes"}


def parameters(function: object) -> list[tuple[str, object, object]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", VERBS)
def test_functions_and_accessors_have_the_same_arguments(verb: str) -> None:
    """Each verb of df.md and lf.md is a function of the package, with the same arguments and defaults."""
    for frame in (pd.DataFrame(), pl.DataFrame(), pl.LazyFrame()):
        assert parameters(getattr(frame.md, verb)) == parameters(getattr(md, verb))[1:]


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "show"])
def test_a_verb_is_documented(verb: str) -> None:
    """A verb is in a table of the analytics page."""
    analytics = (ROOT / "docs" / "analytics.md").read_text(encoding="utf-8")
    assert re.search(rf"(?m)^\|.*`{verb}[`(]|`md\.{verb}\(", analytics)


def test_every_name_has_its_place_in_the_reference() -> None:
    """Each function and class of the package is on a page of the reference."""
    reference = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    objects = {name: getattr(md, name) for name in md.__all__}
    named = {name for name, one in objects.items() if inspect.isfunction(one) or inspect.isclass(one)}
    errors = {name for name in named if hasattr(md.errors, name)}
    assert not {name for name in named - errors if not re.search(rf"auto\w+:: (\w+\.)*{name}\n", reference)}


def test_every_verb_runs_on_the_engines() -> None:
    """No verb is left out of the tests over Dask, Spark and DuckDB."""
    engines = {*test_engine_measures.VERBS, *test_engines.VERBS, *APART_ON_ENGINES}
    assert not set(VERBS) - set(" ".join(engines).split())
