"""Historical prediction-market data: order books, prices and metrics as tidy pandas or polars frames.

A client, the aggregation rules of the service, a local archive that is filled gap by gap, and a local service over it.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from marketdata.adapters.registration import install

__version__ = "0.1.0"

# Type checkers and this module read the names from the stub, so each is listed only once. A name is loaded on first
# use, so importing the package loads no frame library and no web framework.
_MODULES = {
    name: module
    for module, name in re.findall(
        r"^from (\S+) import (\w+) as", Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"), re.MULTILINE
    )
}
# "import *" must not load a chart library.
__all__ = sorted(_MODULES.keys() - {"plot"})  # noqa: PLE0605  a list all the same

# Names that need an extra, and its packages.
_EXTRAS = {
    "Archive": ("archive", ("deltalake", "pyarrow")),
    "simulate": ("archive", ("deltalake", "pyarrow")),
    "replay_server": ("stream", ("websockets", "deltalake", "pyarrow")),
    "serve": ("service", ("fastapi", "uvicorn", "deltalake", "pyarrow")),
}


# What people type, and what it is here.
_MEANT = {
    **dict.fromkeys(("fetch", "get", "download", "connect"), "md.Client(...).prices(...)"),
    **{name: f"md.Client(...).{name}(...)" for name in ("prices", "trades", "quotes", "metrics", "market", "events")},
    "search": "md.Client(...).markets('words')", "Polymarket": "md.Client('polymarket')",
    "polymarket_client": "md.Client('polymarket')", "Kalshi": "md.Client('kalshi')", "kalshi": "md.Client('kalshi')",
    "polymarket": "md.Client('polymarket')", "DataFrame": "df.md", "backtest": "md.execute and md.account",
    "pull": "md.Archive(path).pull(client, ...)", "follow": "md.Archive(path).follow(client, ...)",
    "open": "md.Archive(path)", "load": "md.Archive(path)", "read": "md.Archive(path)", "store": "md.Archive(path)",
    "import_files": "md.Archive(path).add_files(paths)", "add_files": "md.Archive(path).add_files(paths)",
    "replay": "md.replay_server(archive)", "PandasFrame": "marketdata.typing.PandasFrame",
}  # fmt: skip


class _NotInstalled:
    """A public name whose libraries are absent: it can be looked at, and any use says what to install."""

    def __init__(self, name: str, package: str, extra: str) -> None:
        self.__name__ = name
        self.__doc__ = str(self._error(name, package, extra))
        self._needs = name, package, extra

    @staticmethod
    def _error(name: str, package: str, extra: str) -> ModuleNotFoundError:
        from marketdata.errors import not_installed

        return not_installed(f"md.{name}", package, extra)

    def __call__(self, *_: object, **__: object) -> object:
        raise self._error(*self._needs)

    def __getattr__(self, attribute: str) -> object:
        if attribute.startswith("_"):  # inspection asks for many, and takes an AttributeError for a no
            raise AttributeError(attribute)
        raise self._error(*self._needs)

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"


install(lambda: import_module("marketdata.accessor").Accessor)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        from difflib import get_close_matches

        if hasattr(import_module("marketdata.errors"), name):
            hint = f"; write md.errors.{name}"
        elif re.fullmatch(r"read_(csv|parquet|excel|json|feather|table|sql)", name):
            hint = f"; read tables with pandas.{name} or polars: their frames have .md, and md.Archive.add takes them"
        elif name in _MEANT:
            hint = f"; did you mean {_MEANT[name]}?"
        else:
            hint = "".join(f"; did you mean {one!r}?" for one in get_close_matches(name, _MODULES, 1, 0.75))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    module = _MODULES[name]
    extra, packages = _EXTRAS.get(name, ("", ()))
    if missing := [package for package in packages if find_spec(package) is None]:
        return _NotInstalled(name, missing[0], extra)
    attribute = None if module == __name__ else getattr(import_module(module), name, None)
    value = import_module(f"{module}.{name}") if attribute is None else attribute
    # A package that is also a function, which its import has put here.
    value = sys.modules.get(f"{__name__}.{name}", value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*_MODULES, *(name for name in globals() if name.startswith("__"))})
