"""``df.md``: a thin door to the functions on tidy frames. It keeps nothing and checks in each verb."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from marketdata.tidy import book, frames, rules
from marketdata.wire.columns import AnyColumns

F = TypeVar("F")


class Accessor(Generic[F]):
    """What ``df.md`` offers; every verb is also a function of ``marketdata``.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> books = archive.books(archive.records("markets")[0]["id"])
    >>> bool((books.md.resample("1h").md.bbo()["best_bid"].dropna() < 1).all())
    True
    """

    def __init__(self, frame: F) -> None:
        self._frame = frame

    def resample(self, resolution: str) -> F:
        """Aggregate to coarser buckets by the service's rule; see `marketdata.resample`."""
        return rules.resample(self._frame, resolution)

    def bbo(self) -> F:
        """Best bid and offer of every book; see `marketdata.bbo`."""
        return book.bbo(self._frame)

    def mid(self) -> F:
        """Mid price of every book; see `marketdata.mid`."""
        return book.mid(self._frame)

    def spread(self) -> F:
        """Spread of every book; see `marketdata.spread`."""
        return book.spread(self._frame)


def register_pandas() -> None:
    """Give every pandas DataFrame its ``.md``."""
    import pandas as pd

    if getattr(pd.DataFrame, "md", None) is not Accessor:
        pd.api.extensions.register_dataframe_accessor("md")(Accessor)


def register_polars() -> None:
    """Give every polars DataFrame and LazyFrame its ``.md``."""
    import polars as pl

    for kind, register in (
        (pl.DataFrame, pl.api.register_dataframe_namespace),
        (pl.LazyFrame, pl.api.register_lazyframe_namespace),
    ):
        if not hasattr(kind, "md"):
            register("md")(Accessor)


def to_frame(columns: AnyColumns, frame: frames.FrameKind) -> Any:
    """A tidy frame of columns that has ``.md``, whether or not the door was imported."""
    (register_pandas if frame == "pandas" else register_polars)()
    return frames.to_frame(columns, frame)
