"""Names that the API had before, and what to write instead; using one is an error that says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from marketdata import errors
from marketdata.errors import ConfigError

T = TypeVar("T")
P = ParamSpec("P")

NAMES = {
    "crossed": 'md.features(frame, ["crossed"])',
    "from_wide": "nested books: one list of prices and one of sizes per side, as md.nest(books) has them",
    "kelly": "(probability - cost) / (1 - cost), cost = price + fee",
    "ladder": "md.to_wide(books)",
    "locked": 'md.features(frame, ["locked"])',
    "log_odds": "numpy.log(p / (1 - p))",
    "pivot": 'frame.pivot(index="ts", columns="token_id", values="price") of pandas',
}
_HISTORY = ("books", "prices", "metrics", "token_books", "token_prices", "iter_books", "iter_prices", "iter_metrics")
ARGUMENTS = {
    **{name: {"report": "frame.md.report of the result"} for name in (*_HISTORY, "resume")},
    "overround": dict.fromkeys(("by", "events"), "md.event_overround(frame, markets)"),
    "arbitrage": dict.fromkeys(("by", "events", "size"), "md.event_arbitrage(frame, markets)"),
    "probabilities": dict.fromkeys(("by", "events"), "md.event_probabilities(frame, markets)"),
    "account": {"resolution": "width", "events": "markets"},
    "align": {"resolution_of": "width"},
    "around": {"resolution": "width"},
    "asof_join": {"right_resolution": "width"},
    "available_at": {"resolution": "width"},
    "check": {"resolution": "width"},
    "diff": {"resolution_of": "width"},
    "execute": {"resolution": "width"},
    "gaps": {"resolution": "width"},
    "ohlc": {"resolution_of": "width"},
    "outcomes": {"events": "markets"},  # of plot
    "rebuild": {"every": "resolution"},
    "replay": {"resolution": "width"},
    "resample": {"resolution_of": "width"},
    "returns": {"resolution": "width"},
}


def instead_of(name: str) -> str:
    """The end of an error about a name that is elsewhere or gone; empty for any other name."""
    instead = f"md.errors.{name}" if hasattr(errors, name) else NAMES.get(name)
    return f"; write {instead}" if instead else ""


def renamed(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which refuses its old arguments and names the new ones."""
    new_names = ARGUMENTS[function.__name__]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for old in new_names.keys() & kwargs.keys():
            new = new_names[old]
            raise ConfigError(f"is now {new if ' ' in new else new + '='}.", argument=old)
        return function(*args, **kwargs)

    return checked
