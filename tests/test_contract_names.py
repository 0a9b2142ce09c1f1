"""The public names and signatures that others call; a name that goes missing breaks them."""

from __future__ import annotations

import importlib
import inspect

import pandas as pd
import polars as pl
import pytest

import marketdata as md

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
    "markets": ["event_slug", "search", "max_rows", "page_size"],
    "market": ["id_or_slug"],
    "tokens": ["id_or_slug"],
    "tags": [],
    "health": [],
    "usage": [],
    "plan": ["view", "market", "start", "end", "resolution"],
    "resume": ["resume"],
    "abooks": ["market", "start", "end", "resolution"],
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
VERBS = {
    "resample": ["frame", "resolution", "*fill"],
    "bbo": ["frame"],
    "mid": ["frame"],
    "spread": ["frame"],
    "depth": ["frame", "*levels", "*within"],
    "imbalance": ["frame", "*levels", "*within"],
    "microprice": ["frame"],
    "spread_bps": ["frame"],
    "locked": ["frame"],
    "crossed": ["frame"],
    "features": ["frame", "measures"],
    "fill_price": ["frame", "size"],
    "sweep": ["frame", "side", "*size", "*notional"],
    "ladder": ["frame", "ts"],
    "to_wide": ["frame", "levels"],
    "from_wide": ["frame"],
    "complement": ["frame"],
    "overround": ["frame"],
    "arbitrage": ["frame"],
    "probabilities": ["frame"],
    "brier": ["frame", "outcomes"],
    "calibration": ["frame", "outcomes", "bins"],
    "available_at": ["frame", "resolution"],
    "asof_join": ["left", "right", "*resolution", "*on", "*strict", "*suffix"],
    "gaps": ["frame", "resolution"],
    "align": ["frame", "resolution", "*start", "*end", "*fill"],
    "ohlc": ["frame", "resolution", "value"],
    "returns": ["frame", "value", "*how", "*resolution"],
    "log_odds": ["frame", "value"],
    "check": ["frame", "resolution"],
    "wide": ["frame", "value", "*columns"],
}
ERRORS = {
    "ConfigError": "MarketDataError",
    "RequestError": "MarketDataError",
    "BadRequestError": "RequestError",
    "LimitTooSmallError": "BadRequestError",
    "TooManyTokensError": "BadRequestError",
    "CursorRejectedError": "BadRequestError",
    "AuthenticationError": "RequestError",
    "PlanError": "RequestError",
    "NotFoundError": "RequestError",
    "ParameterError": "RequestError",
    "RateLimitError": "RequestError",
    "ServerError": "RequestError",
    "NetworkError": "MarketDataError",
    "RedirectError": "NetworkError",
    "PayloadTooLargeError": "NetworkError",
    "ContractError": "MarketDataError",
    "PaginationStalledError": "ContractError",
    "NotTidyError": "MarketDataError",
    "ArchiveError": "MarketDataError",
    "NotArchivedError": "ArchiveError",
    "ArchiveCorruptError": "ArchiveError",
    "ArchiveBusyError": "ArchiveError",
    "ArchiveFullError": "ArchiveError",
}


def accepts(function: object, names: list[str]) -> None:
    """Positional names stand first and in this order; starred ones may be keyword-only."""
    parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    own = [n for n in parameters if n != "self"]
    assert own[: len([n for n in names if not n.startswith("*")])] == [n for n in names if not n.startswith("*")]
    assert {n.removeprefix("*") for n in names} <= set(own)


@pytest.mark.parametrize(("name", "parameters"), CLIENT.items())
def test_the_client_has_this_method(name: str, parameters: list[str]) -> None:
    """Each method of the contract exists and takes its arguments by these names."""
    accepts(getattr(md.Client, name), parameters)


@pytest.mark.parametrize(("name", "parameters"), ARCHIVE.items())
def test_the_archive_has_this_method(name: str, parameters: list[str]) -> None:
    """Each method of the contract exists and takes its arguments by these names."""
    accepts(getattr(md.Archive, name), parameters)


@pytest.mark.parametrize(("name", "base"), ERRORS.items())
def test_the_error_tree_is_the_one_drawn(name: str, base: str) -> None:
    """md.X and md.errors.X are one class, below the base that the tree names, and stand in the drawing."""
    assert getattr(md, name) is getattr(md.errors, name)
    assert getattr(md, name).__bases__[0] is getattr(md, base)
    assert name in (md.errors.__doc__ or "")


@pytest.mark.parametrize(("verb", "parameters"), VERBS.items())
def test_functions_and_accessors_have_the_same_verbs(verb: str, parameters: list[str]) -> None:
    """Each verb is a function of the package and of df.md and lf.md, with the same arguments and defaults."""
    for door in ("marketdata.pandas", "marketdata.polars"):
        importlib.import_module(door)
    accepts(getattr(md, verb), parameters)
    of_function = [(p.name, p.default, p.kind) for p in inspect.signature(getattr(md, verb)).parameters.values()]
    for frame in (pd.DataFrame(), pl.DataFrame(), pl.LazyFrame()):
        of_verb = [(p.name, p.default, p.kind) for p in inspect.signature(getattr(frame.md, verb)).parameters.values()]
        assert of_verb == of_function[1:]


def test_the_remaining_functions_take_their_arguments() -> None:
    """simulate, serve and read_pages are called as the contract says."""
    accepts(md.simulate, ["path", "*events", "*days", "*seed"])
    accepts(md.serve, ["archive"])
    accepts(md.read_pages, ["view", "pages", "frame"])
    assert set(md.__all__) <= set(dir(md))
