"""Known facts about the services that answer the interface; everything else is learned from their answers."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from marketdata.errors import BadRequestError, ConfigError, PlanError
from marketdata.filters import PARENTS, SORTS, STATES, filters_of, query_text
from marketdata.resolution import BucketWidth
from marketdata.times import parse_iso, to_datetime

BASE_URL, API_KEY = "MARKETDATA_BASE_URL", "MARKETDATA_API_KEY"


class Service(NamedTuple):
    """One service: ``resolutions`` that it has, records of a listing page, filters of its listings, its ``views``.

    None: nothing is known, so it is asked. A ``key_variable`` of None means that it takes no key. ``prefix`` is the
    path before every other one. ``short`` is the name that `Client` takes. ``live`` are the views that it has of the
    present alone, which `Archive.follow` records. ``names_filter`` is the filter of markets that takes many of their
    names at once. ``is_sparse``: it has no point of a bucket in which nothing changed. The client sets
    ``own_parameters`` of listings itself.
    """

    name: str
    base_url: str | None
    key_variable: str | None
    resolutions: tuple[str, ...] | None
    listing_page: int
    filters: tuple[str, ...] | None = None
    hides_closed: bool = False
    prefix: str = "/v1"
    views: tuple[str, ...] = ("books", "prices", "metrics")
    short: str = ""
    live: tuple[str, ...] = ()
    names_filter: str | None = None
    has_trades: bool = False
    is_sparse: bool = False
    own_parameters: tuple[str, ...] = ("limit", "cursor")

    def lacks(self, what: str) -> ConfigError:
        """The error about a kind of data that it does not have, with what it has."""
        has = ", ".join([*self.views, *(["trades"] if self.has_trades else [])])
        if what not in self.live:
            return ConfigError(f"{self.name} has no {what}; it has {has}.")
        hint = f"archive.follow(client, market, views=[{what!r}]) records them from now on."
        return ConfigError(f"{self.name} has no {what} of the past; it has {has}, and the {what} of now.", hint=hint)


# Choices where a venue has several answers: the host of prices, and the price of a candle.
PolymarketRoute = Literal["clob", "data"]
KalshiPrice = Literal["mid", "last", "mean"]
# The resolutions of the interface (2.1).
INTERFACE = ("1m", "10m", "1h", "6h", "1d")
VENDORS = (
    Service(
        name="polymarketdata.co",
        base_url="https://api.polymarketdata.co",
        key_variable="POLYMARKETDATA_API_KEY",
        resolutions=INTERFACE,
        listing_page=1000,
        filters=filters_of("polymarketdata"),
        short="polymarketdata",
    ),
    Service(
        name="polyorderbooks.com",
        base_url="https://api.polyorderbooks.com",
        key_variable="POLYORDERBOOKS_API_KEY",
        resolutions=("250ms", "1s", "5s", "15s", "1m", "5m", "10m", "15m", "1h", "6h", "1d"),
        listing_page=100,
        filters=filters_of("polyorderbooks"),
        hides_closed=True,
        short="polyorderbooks",
    ),
)
ADDRESSES = {vendor.short: vendor.base_url for vendor in VENDORS}
# Venues with a public interface of their own. Each is a module of `fetch.sources` with HOSTS and `connect`.
VENUES = ("polymarket", "kalshi")
# Any other address, such as a service of this package.
OTHER = Service("another service", None, API_KEY, None, 1000)
# Records of a page of any listing.
LARGEST_LISTING = 1000
# States of markets in the words of the interface, and sorts by its fields.
_STATUSES = {"open": "active", "closed": "closed", "resolved": "resolved"}
_FIELDS_SORTED = {"newest": ("start_date", "desc"), "end_date": ("end_date", "asc")}

_MINIMUM_LIMIT = re.compile(r"limit too small.*?minimum[^\d-]*(\d{1,9})\b", re.IGNORECASE | re.DOTALL | re.ASCII)
_MAXIMUM_LIMIT = re.compile(
    r"limit too large.*?maximum\D*(\d{1,9})\b|"
    r"limit must be (?:<=|at most|no more than|less than or equal to)\s*(\d{1,9})\b|"
    r"limit\b[^.;]*less than or equal to (\d{1,9})\b",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_FINEST = re.compile(r"\b(?:minimum|finest|min)\b\W*(?:is\s+)?(\d{1,6})\s?(ms|[smhd])\b", re.IGNORECASE | re.ASCII)
_DAYS = re.compile(r"\b(\d{1,6}(?:\.\d+)?)[ -]days?\b", re.IGNORECASE | re.ASCII)
_EARLIEST = re.compile(r"\bearliest\b[^\d]*([\dT:.+Z-]{10,35})", re.IGNORECASE | re.ASCII)
_NO_VIEW = re.compile(r"not (?:allow|include)\s+(?:historical\s+)?(order ?books?|books|prices|metrics)", re.IGNORECASE)


def service_at(base_url: str) -> Service:
    """The service at an address: a vendor only at its own host, over https."""
    parts = urlsplit(base_url)
    for vendor in VENDORS:
        address = urlsplit(vendor.base_url or "")
        if (parts.scheme, parts.hostname, parts.port or 443) == (address.scheme, address.hostname, 443):
            return vendor
    return OTHER


def default_address(environ: Mapping[str, str]) -> str | None:
    """The address by the environment: MARKETDATA_BASE_URL, else the address of the one vendor whose key is set."""
    if environ.get(BASE_URL) or environ.get(API_KEY):
        return environ.get(BASE_URL)
    vendors = [vendor for vendor in VENDORS if environ.get(str(vendor.key_variable))]
    if len(vendors) > 1:
        names = " and ".join(str(vendor.key_variable) for vendor in vendors)
        addresses = " or ".join(f"base_url={vendor.base_url!r}" for vendor in vendors)
        raise ConfigError("is missing.", argument="base_url", hint=f"{names} are set: say which by {addresses}.")
    return vendors[0].base_url if vendors else None


def check_filters(service: Service, given: Mapping[str, Any]) -> dict[str, str]:
    """The filters of a listing as query parameters; ConfigError for a value, or a filter that the service lacks."""
    out = {}
    given = _in_own_words(service, {name: value for name, value in given.items() if value is not None})
    for name, value in given.items():
        if service.filters is not None and name not in (*PARENTS, *service.filters):
            hint = f"Its filters are {', '.join(service.filters)}."
            raise ConfigError(f"is no filter of {service.name}.", argument=name, value=value, hint=hint)
        out[name] = query_text(name, value)
    return out


def _in_own_words(service: Service, given: dict[str, Any]) -> dict[str, Any]:
    """Filters with a state and a sort as the service has them; ConfigError for another one."""
    is_venue, state, sort = service.short in VENUES, given.get("state"), given.get("sort")
    if state is not None:
        if given.get("include_closed") is not None and not service.hides_closed:
            raise ConfigError("says the state too; give one of them.", argument="include_closed")
        states = [state] if isinstance(state, str) else list(state) if isinstance(state, Iterable) else [state]
        if not states or not set(states) <= set(STATES):
            hint = "'active' is 'open' here." if "active" in states else "Settled markets are 'resolved'."
            problem = f"does not exist; allowed are {', '.join(STATES)}, or a list of them."
            raise ConfigError(problem, argument="state", value=state, hint=hint)
        if is_venue:
            given["state"] = ",".join(dict.fromkeys(states))
        elif service.filters is None and len(states) == 1:
            given["status"] = _STATUSES[given.pop("state") if isinstance(state, str) else given.pop("state")[0]]
        elif service.filters is None:
            raise ConfigError("are several; a service takes one at a time.", argument="state", value=state)
        elif states == ["open"] and "include_closed" in (service.filters or ()):
            del given["state"]
            given["include_closed"] = False
    if sort is not None and is_venue:
        if sort not in SORTS:
            raise ConfigError(f"does not exist; allowed are {', '.join(SORTS)}.", argument="sort", value=sort)
    elif sort in _FIELDS_SORTED:
        given["sort"], order = _FIELDS_SORTED[sort]
        given.setdefault("order", order)
    return given


def check_params(service: Service, given: Mapping[str, str], filters: Mapping[str, Any]) -> dict[str, str]:
    """Further query parameters of a listing; ConfigError for one that the client sets itself, or an argument set."""
    for name in given:
        argument = f"params[{name!r}]"
        if name in service.own_parameters:
            hint = "max_rows=, page_size= and the filters of this method say what is listed."
            raise ConfigError("is refused: the client sets this parameter itself.", argument=argument, hint=hint)
        if filters.get(name) is not None:
            raise ConfigError(f"is refused: {name}= was given too; say it once.", argument=argument)
    return dict(given)


def widths_in(said: object) -> list[BucketWidth]:
    """The widths that a text or a list names, the finest first."""
    text = " ".join(map(str, said)) if isinstance(said, list | tuple) else str(said or "")
    widths = set()
    for name in re.findall(r"(?<![\w.])\d{1,6}\s?(?:ms|[smhd])\b", text, re.ASCII):
        with suppress(ConfigError):
            widths.add(BucketWidth.of(name.replace(" ", "")))
    return sorted(widths, key=lambda width: width.micros)


def read_limits(error: BadRequestError, text: str) -> None:
    """Set ``minimum`` and ``maximum`` of an error about a page limit, by its text."""
    if (match := _MINIMUM_LIMIT.search(text)) is not None:
        error.minimum = int(match[1])
    error.maximum = largest_limit(text)


def largest_limit(text: str) -> int | None:
    """The largest page limit that the text of a refusal names."""
    match = _MAXIMUM_LIMIT.search(text)
    return None if match is None else int(next(filter(None, match.groups())))


def read_plan(error: PlanError, text: str, now: float) -> None:
    """Set what a 403 says about the plan; ``now`` is the time of the answer [Unix s]."""
    if (match := _NO_VIEW.search(text)) is not None:
        name = match[1].lower()
        error.view = "books" if "book" in name else name
    if (match := _FINEST.search(text)) is not None:
        with suppress(ConfigError):
            error.minimum_resolution = str(BucketWidth.of(match[1] + match[2].lower()))
    if (match := _DAYS.search(text)) is not None:
        error.history_days = float(match[1])
    if (match := _EARLIEST.search(text)) is not None:
        with suppress(ValueError, OverflowError):
            error.earliest = to_datetime(parse_iso(match[1].rstrip(".")))
    if error.earliest is None and error.history_days is not None:
        with suppress(ValueError, OverflowError):
            error.earliest = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(days=error.history_days)
