"""Names for annotations: frames that have ``.md`` for type checkers, so that ``books.md.bbo()`` is completed.

At run time they are ``pandas.DataFrame``, ``polars.DataFrame`` and ``polars.LazyFrame``. Methods of pandas and polars
return frames of another static type: pass these to ``md.bbo(frame)`` or ``md.Accessor(frame)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypeVar

if TYPE_CHECKING:
    from typing import Self

    import pandas as pd
    import polars as pl

    from marketdata.accessor import Accessor
    from marketdata.tidy.frames import FrameKind

    class _WithMethods:
        @property
        def md(self) -> Accessor[Self]:
            raise NotImplementedError

    class PandasFrame(pd.DataFrame, _WithMethods):
        """A pandas DataFrame that has ``.md``."""

    class PolarsFrame(pl.DataFrame, _WithMethods):
        """A polars DataFrame that has ``.md``."""

    class PolarsLazyFrame(pl.LazyFrame, _WithMethods):
        """A polars LazyFrame that has ``.md``."""


__all__ = ["Frame", "FrameKind", "PandasFrame", "PolarsFrame", "PolarsLazyFrame"]

# With the default, a bare ``md.Client`` in an annotation allows any kind of frame.
Frame = TypeVar("Frame", default=Any)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    homes = {
        "FrameKind": ("marketdata.tidy.frames", "FrameKind"),
        "PandasFrame": ("pandas", "DataFrame"),
        "PolarsFrame": ("polars", "DataFrame"),
        "PolarsLazyFrame": ("polars", "LazyFrame"),
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, kind = homes[name]
    return getattr(import_module(module), kind)
