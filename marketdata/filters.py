"""The filters of listings: each has one row, which says what a value is, and which vendors have it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, cast, get_args, get_type_hints

from marketdata.addresses import group_in
from marketdata.errors import ConfigError
from marketdata.times import TimeLike, to_micros, to_text

F = TypeVar("F", bound=Callable[..., Any])
State = Literal["open", "closed", "resolved"]
Sort = Literal["volume_24h", "volume", "newest", "end_date"]
STATES, SORTS = get_args(State), get_args(Sort)
_BOTH = ("polymarketdata", "polyorderbooks")
_ONE = ("polyorderbooks",)


class Filter(NamedTuple):
    """A filter of listings: the ``kind`` of its values, and the ``vendors`` that have it.

    A "parent" is an event or a series. The interface itself has these (4.5), so no service says that it has them.
    """

    kind: Literal["text", "date", "number", "flag", "order", "parent"]
    vendors: tuple[str, ...] = ()


_TEXT, _PARENT = Filter("text", _BOTH), Filter("parent")


class SeriesFilters(TypedDict, total=False):
    """Filters of `Client.series`, beside ``search``."""

    tags: Annotated[str | Sequence[str] | None, _TEXT]
    category: Annotated[str | None, Filter("text", _ONE)]
    sort: Annotated[str | None, _TEXT]
    order: Annotated[str | None, Filter("order", _BOTH)]


class _DatedFilters(SeriesFilters, total=False):
    """Filters of events and markets."""

    series_slug: Annotated[str | None, _PARENT]
    start_date_min: Annotated[TimeLike | None, Filter("date", _BOTH)]
    start_date_max: Annotated[TimeLike | None, Filter("date")]
    end_date_min: Annotated[TimeLike | None, Filter("date", _BOTH)]
    end_date_max: Annotated[TimeLike | None, Filter("date", _BOTH)]


class EventFilters(_DatedFilters, total=False):
    """Filters of `Client.events`, beside ``search``."""

    series_id: Annotated[str | None, _PARENT]


class MarketFilters(_DatedFilters, total=False):
    """Filters of `Client.markets`, beside ``search``."""

    event_slug: Annotated[str | None, _PARENT]
    event_id: Annotated[str | None, _PARENT]
    state: Annotated[State | Sequence[State] | None, Filter("text")]
    tags_match: Annotated[str | None, _TEXT]
    resolved_at_min: Annotated[TimeLike | None, Filter("date")]
    resolved_at_max: Annotated[TimeLike | None, Filter("date")]
    min_liquidity: Annotated[float | None, Filter("number", _BOTH)]
    include_closed: Annotated[bool | None, Filter("flag", _ONE)]


class Selected(MarketFilters, total=False):
    """The filters by which `Archive.pull`, `follow` and `record` choose markets."""

    search: Annotated[str | None, _TEXT]


def _rows(of: type) -> dict[str, Filter]:
    hints = get_type_hints(of, localns={"TimeLike": object}, include_extras=True)
    own_first = sorted(hints, key=SeriesFilters.__annotations__.__contains__)
    return {name: hints[name].__metadata__[0] for name in own_first}


LISTINGS = {kind: ("search", *_rows(of)) for kind, of in (
    ("series", SeriesFilters), ("events", EventFilters), ("markets", MarketFilters),
)}  # fmt: skip
FILTERS = {"search": _TEXT, **_rows(EventFilters), **_rows(Selected)}
PARENTS = tuple(name for name, row in FILTERS.items() if row.kind == "parent")
_FLAGS, _ORDERS = (False, True), ("asc", "desc")


def filters_of(vendor: str) -> tuple[str, ...]:
    """The filters that a vendor has beside those of the interface."""
    return tuple(name for name, row in FILTERS.items() if vendor in row.vendors)


def takes(filters: type) -> Callable[[F], F]:
    """A decorator for a function with ``**filters``: its help names them, and another keyword is a ConfigError."""

    def decorate(function: F) -> F:
        own = signature(function)
        others = [one for one in own.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        named = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in _rows(filters)]
        shown = own.replace(parameters=[*others, *named])

        @wraps(function)
        def checked(*args: Any, **keywords: Any) -> Any:
            refuse_unknown(function.__name__, keywords, shown.parameters)
            return function(*args, **keywords)

        checked.__signature__ = shown  # type: ignore[attr-defined]
        return cast("F", checked)

    return decorate


def query_text(name: str, value: Any) -> str:
    """The value of a filter as a query parameter; else a ConfigError."""
    kind = FILTERS[name].kind if name in FILTERS else "text"
    if kind == "date":
        return to_text(to_micros(value, name))
    if kind in ("flag", "order"):
        allowed: tuple[object, ...] = _FLAGS if kind == "flag" else _ORDERS
        if value not in allowed:
            raise ConfigError(f"is refused; allowed are {', '.join(map(str, allowed))}.", argument=name, value=value)
        return str(value).lower() if kind == "order" else str(bool(value)).lower()
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigError("is refused; allowed are numbers from 0.", argument=name, value=value)
        return f"{value:g}" if isinstance(value, float) else str(value)
    if name == "tags" and not isinstance(value, str) and isinstance(value, Iterable):
        value = ",".join(map(str, value))
    if not isinstance(value, str) or not value:
        raise ConfigError("is refused; allowed is a text that is not empty.", argument=name, value=value)
    if name == "search" and not value.strip():
        raise ConfigError("has no word; leave it out for all.", argument=name, value=value)
    return group_in(value) if kind == "parent" else value


# What people type, and the argument that they mean.
_MEANT = {
    "limit": "max_rows", "n": "max_rows", "rows": "max_rows", "top": "max_rows", "count": "max_rows",
    "size": "page_size", "status": "state", "active": "state", "closed": "state", "open": "state",
    "resolved": "state", "query": "search", "q": "search", "text": "search", "words": "search", "keyword": "search",
    "event": "event_slug", "event_ticker": "event_slug", "series": "series_slug", "series_ticker": "series_slug",
    "tag": "tags", "tag_slug": "tags", "sort_by": "sort", "order_by": "sort", "ascending": "order",
    "min_volume": "sort", "start": "start_date_min", "end": "end_date_max", "since": "start_date_min",
}  # fmt: skip


def refuse_unknown(method: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """ConfigError for a keyword that a method does not have, with the name that it resembles."""
    allowed = [*allowed]
    for name in (one for one in given if one not in allowed):
        near = [_MEANT[name]] if _MEANT.get(name) in allowed else difflib.get_close_matches(name, allowed, 1, 0.75)
        hint = f"Did you mean {near[0]}=? " if near else ""
        hint += f"Pass a filter of the service itself as params={{{name!r}: ...}}." if "params" in allowed else ""
        raise ConfigError(f"is no argument of {method}().", argument=name, hint=hint)
