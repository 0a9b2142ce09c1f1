"""Historical prediction-market data as tidy frames.

Tidy pandas or polars frames of order books, prices and metrics; the service's own aggregation rules on them;
a local archive that is filled gap by gap; and a local service that answers the same interface from it.

    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> archive.books(archive.records("markets")[0]["id"], resolution="1h").columns.tolist()
    ['ts', 'market_id', 'token_id', 'token_label', 'side', 'level', 'price', 'size']
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from marketdata import errors
from marketdata.errors import (
    ArchiveBusyError,
    ArchiveCorruptError,
    ArchiveError,
    ArchiveFullError,
    AuthenticationError,
    BadRequestError,
    ConfigError,
    ContractError,
    CursorRejectedError,
    LeftOutWarning,
    LimitTooSmallError,
    MarketDataError,
    MarketDataWarning,
    NetworkError,
    NotArchivedError,
    NotFoundError,
    NotTidyError,
    PaginationStalledError,
    ParameterError,
    PartialCoverageWarning,
    PayloadTooLargeError,
    PlanError,
    RateLimitError,
    RedirectError,
    RequestError,
    ServerError,
    ServiceOddityWarning,
    TooManyTokensError,
    UnweightedMeanWarning,
)
from marketdata.resolution import Resolution

if TYPE_CHECKING:
    from marketdata import testing
    from marketdata.accessor import Accessor
    from marketdata.archive import Archive
    from marketdata.client import Client, read_pages
    from marketdata.service import serve
    from marketdata.simulation import simulate
    from marketdata.tidy.backtest import events, wide
    from marketdata.tidy.book import bbo, mid, spread
    from marketdata.tidy.clock import align, asof_join, available_at, gaps
    from marketdata.tidy.converters import to_hftbacktest, to_nautilus_depth, to_nautilus_quotes
    from marketdata.tidy.execution import sweep, vwap
    from marketdata.tidy.ladders import from_wide, ladder, to_wide
    from marketdata.tidy.measures import crossed, depth, imbalance, locked, microprice, spread_bps
    from marketdata.tidy.quality import check
    from marketdata.tidy.rules import resample
    from marketdata.tidy.sense import arbitrage, brier, calibration, complement, overround, probabilities
    from marketdata.tidy.series import log_odds, ohlc, returns

__version__ = "0.1.0"

# Where each name is loaded from on first use: importing the package loads no frame library and no web framework.
_HOMES = {
    "Accessor": "accessor",
    "Archive": "archive",
    "Client": "client",
    "align": "tidy.clock",
    "arbitrage": "tidy.sense",
    "asof_join": "tidy.clock",
    "available_at": "tidy.clock",
    "bbo": "tidy.book",
    "brier": "tidy.sense",
    "calibration": "tidy.sense",
    "check": "tidy.quality",
    "complement": "tidy.sense",
    "crossed": "tidy.measures",
    "depth": "tidy.measures",
    "events": "tidy.backtest",
    "from_wide": "tidy.ladders",
    "gaps": "tidy.clock",
    "imbalance": "tidy.measures",
    "ladder": "tidy.ladders",
    "locked": "tidy.measures",
    "log_odds": "tidy.series",
    "microprice": "tidy.measures",
    "mid": "tidy.book",
    "ohlc": "tidy.series",
    "overround": "tidy.sense",
    "probabilities": "tidy.sense",
    "read_pages": "client",
    "resample": "tidy.rules",
    "returns": "tidy.series",
    "serve": "service",
    "simulate": "simulation",
    "spread": "tidy.book",
    "spread_bps": "tidy.measures",
    "sweep": "tidy.execution",
    "to_hftbacktest": "tidy.converters",
    "to_nautilus_depth": "tidy.converters",
    "to_nautilus_quotes": "tidy.converters",
    "to_wide": "tidy.ladders",
    "vwap": "tidy.execution",
    "wide": "tidy.backtest",
}

__all__ = [
    "Accessor",
    "Archive",
    "ArchiveBusyError",
    "ArchiveCorruptError",
    "ArchiveError",
    "ArchiveFullError",
    "AuthenticationError",
    "BadRequestError",
    "Client",
    "ConfigError",
    "ContractError",
    "CursorRejectedError",
    "LeftOutWarning",
    "LimitTooSmallError",
    "MarketDataError",
    "MarketDataWarning",
    "NetworkError",
    "NotArchivedError",
    "NotFoundError",
    "NotTidyError",
    "PaginationStalledError",
    "ParameterError",
    "PartialCoverageWarning",
    "PayloadTooLargeError",
    "PlanError",
    "RateLimitError",
    "RedirectError",
    "RequestError",
    "Resolution",
    "ServerError",
    "ServiceOddityWarning",
    "TooManyTokensError",
    "UnweightedMeanWarning",
    "align",
    "arbitrage",
    "asof_join",
    "available_at",
    "bbo",
    "brier",
    "calibration",
    "check",
    "complement",
    "crossed",
    "depth",
    "errors",
    "events",
    "from_wide",
    "gaps",
    "imbalance",
    "ladder",
    "locked",
    "log_odds",
    "microprice",
    "mid",
    "ohlc",
    "overround",
    "probabilities",
    "read_pages",
    "resample",
    "returns",
    "serve",
    "simulate",
    "spread",
    "spread_bps",
    "sweep",
    "testing",
    "to_hftbacktest",
    "to_nautilus_depth",
    "to_nautilus_quotes",
    "to_wide",
    "vwap",
    "wide",
]


# Names that an extra brings, and the package by which it is known to be there.
_EXTRAS = {
    "Archive": ("deltalake", "archive"),
    "simulate": ("deltalake", "archive"),
    "serve": ("fastapi", "service"),
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        package, extra = _EXTRAS.get(name, ("", ""))
        if package and find_spec(package) is None:
            hint = f"md.{name} needs {package}, which is not installed: pip install 'marketdata[{extra}]'"
            raise ModuleNotFoundError(hint, name=package)
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in {"plot", "testing"}:
        value = import_module(f"{__name__}.{name}")
    else:
        from difflib import get_close_matches

        hint = "".join(f"; did you mean {near!r}?" for near in get_close_matches(name, __all__, n=1))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({"plot", "testing", *__all__, *(name for name in globals() if name.startswith("__"))})
