"""The public names and signatures that others call; a name that goes missing breaks them."""

from __future__ import annotations

import inspect
import re

import pandas as pd
import polars as pl

import marketdata as md
from marketdata import typing as names
from marketdata.cli.commands import archive, client
from marketdata.points.views import VIEWS

CLIENT = {
    "__init__": ["base_url", "api_key", "frame"],
    "books": ["market", "start", "end", "resolution", "*levels"],
    "prices": ["market", "start", "end", "resolution"],
    "metrics": ["market", "start", "end", "resolution"],
    "token_books": ["token_id", "start", "end", "resolution"],
    "token_prices": ["token_id", "start", "end", "resolution"],
    "iter_books": ["market", "start", "end", "resolution"],
    "iter_prices": ["market", "start", "end", "resolution"],
    "iter_metrics": ["market", "start", "end", "resolution"],
    "series": [],
    "events": [],
    "markets": ["search", "*event_slug", "*state", "*sort", "*tags", "*max_rows", "*page_size"],
    "market": ["id_or_slug"],
    "tokens": ["id_or_slug"],
    "tags": [],
    "health": [],
    "usage": [],
    "plan": ["view", "market", "start", "end", "resolution"],
    "resume": ["resume"],
}
ARCHIVE = {
    "__init__": ["path_or_url"],
    "pull": ["client"],
    "add": ["*markets", "*series", "*events", "*books", "*prices", "*metrics"],
    "books": ["market"],
    "prices": ["market"],
    "metrics": ["market"],
    "scan": ["view"],
    "coverage": [],
    "verify": [],
    "compact": [],
}
FUNCTIONS = {
    "resample": ["frame", "resolution"],
    "bbo": ["frame"],
    "mid": ["frame"],
    "spread": ["frame"],
    "concat": ["frames"],
    "read_pages": ["view", "pages", "frame"],
    "simulate": ["path", "*events", "*days", "*seed"],
    "serve": ["archive"],
}


def assert_accepts(function: object, names: list[str]) -> None:
    """Positional names come first and in this order; those with a star may be keyword-only."""
    parameters = [name for name in inspect.signature(function).parameters if name != "self"]  # type: ignore[arg-type]
    positional = [name for name in names if not name.startswith("*")]
    assert parameters[: len(positional)] == positional, function
    assert {name.removeprefix("*") for name in names} <= set(parameters), function


def test_public_functions_and_methods_take_the_documented_arguments() -> None:
    """Each name of the contract exists and takes its arguments by these names."""
    for owner, methods in ((md.Client, CLIENT), (md.Archive, ARCHIVE), (md, FUNCTIONS)):
        for name, parameters in methods.items():
            assert_accepts(getattr(owner, name), parameters)


def test_the_default_resolution_is_one_everywhere() -> None:
    """Archive and command line read 1m, or what a plan allows, where nothing else is said."""
    calls = [getattr(md.Archive, n) for n in (*VIEWS, "scan", "export")]
    calls += [client.fetch, client.plan, archive.export]
    assert {str(inspect.signature(call).parameters["resolution"].default) for call in calls} <= {"1m", "None"}


def drawn_tree() -> list[tuple[str, str]]:
    """Each error and warning that the docstring of `errors` draws, and the one it is drawn below."""
    pairs, above = [], {0: "Exception"}
    for indent, name in re.findall(
        r"^( +)(MarketData\w+|\w+Error|\w+Warning)\b", md.errors.__doc__ or "", re.MULTILINE
    ):
        depth = len(indent)
        above = {at: base for at, base in above.items() if at < depth}
        pairs.append((name, above[max(above)]))
        above[depth] = name
    return pairs


def test_the_error_tree_is_the_one_drawn() -> None:
    """Every error and warning of md.errors is drawn below its base."""
    classes = {
        name: one
        for name, one in vars(md.errors).items()
        if isinstance(one, type) and one.__module__ == "marketdata.errors"
    }
    drawn = dict(drawn_tree())
    assert drawn.keys() == classes.keys()
    assert md.MarketDataError is md.errors.MarketDataError
    for name, base in drawn.items():
        bases = {"Exception": {"Exception", "UserWarning"}}.get(base, {base})
        assert classes[name].__bases__[0].__name__ in bases, name


def test_a_name_is_loaded_from_where_type_checkers_find_it() -> None:
    """The module that the stub names defines it, or a module below it."""
    for name, home in md._MODULES.items():
        value = getattr(md, name)
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", home)
        # A package that is also a function has its name from where it is.
        assert module.startswith(home) or (inspect.ismodule(value) and home.startswith(module)), name


def test_tab_after_the_package_offers_what_it_exports() -> None:
    """`md.<tab>` lists the public names."""
    assert set(md.__all__) <= set(dir(md))


def test_names_for_annotations_are_the_frames_themselves() -> None:
    """At run time a frame name of `marketdata.typing` is the class of the frame library."""
    assert (names.PandasFrame, names.PolarsFrame) == (pd.DataFrame, pl.DataFrame)
