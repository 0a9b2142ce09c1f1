"""What a person sees: frames with short ids, objects as tables of a notebook, and progress bars."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from html import escape
from importlib import import_module
from typing import Any

from marketdata.errors import ConfigError

# Fewer characters do not tell ids apart.
_NARROWEST_ID = 6
_LONGEST_VALUE = 90


class Shown:
    """A frame as `show` displays it."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return repr(self._frame)

    def _repr_html_(self) -> str:
        return str(self._frame._repr_html_())


def described(name: str, values: Iterable[tuple[str, object]]) -> str:
    """An object as text: its name, and a line for each value; long values without their middle."""
    lines = [f"  {key}: {_cut(str(value), _LONGEST_VALUE)}" for key, value in values]
    return "\n".join([name, *lines])


def html_table(values: Iterable[tuple[object, object]]) -> str:
    """Names and values as a table for notebooks; whatever the texts contain is shown as text."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in values
    )
    return f"<table>{rows}</table>"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def show(frame: Any, *, id_width: int | None = 16) -> Shown:
    """A frame to print or to end a cell with, its long ids shortened.

    Returns an object with the text and HTML of the pandas or polars DataFrame. Ids longer than ``id_width`` characters
    (from 6; None: none) are shortened, and different ids stay different.

    Examples
    --------
    >>> prices = md.testing.prices().assign(market_id="0x" + "12" * 32)
    >>> print(md.show(prices[["market_id", "price"]].head(1), id_width=12))
          market_id  price
    0  0x1212…21212    0.4
    """
    if _library(frame) not in ("pandas", "polars") or type(frame).__name__ == "LazyFrame":
        raise ConfigError(
            f"md.show takes a pandas or polars DataFrame, not {type(frame).__name__}; collect or convert it first."
        )
    if id_width is not None and not (type(id_width) is int and id_width >= _NARROWEST_ID):
        problem = f"is refused; allowed are None and whole numbers from {_NARROWEST_ID}."
        raise ConfigError(problem, argument="id_width", value=id_width)
    return Shown(shortened(frame, id_width))


def _library(frame: object) -> str:
    """The library of a DataFrame, also of a class that derives from its own."""
    return next((kind.__module__.partition(".")[0] for kind in type(frame).__mro__ if kind.__name__ == "DataFrame"), "")


def shorten(texts: Iterable[str], width: int | None) -> dict[str, str]:
    """Each text longer than ``width`` and its short form; different texts have different ones."""
    if width is None:
        return {}
    long = [text for text in texts if len(text) > width]
    while long:
        head = width // 2
        short = {text: f"{text[:head]}…{text[len(text) - (width - head - 1) :]}" for text in long if len(text) > width}
        if len({*short.values(), *(text for text in long if text not in short)}) == len(long):
            return short
        width *= 2
    return {}


def shortened(frame: Any, width: int | None) -> Any:
    """The frame with short ids; the same object where none is long."""
    is_pandas = _library(frame) == "pandas"
    replace = _in_pandas if is_pandas else _in_polars
    names = [name for name in frame.columns if isinstance(name, str) and name.endswith(("_id", "_ids"))]
    columns = {name: column for name in names if (column := replace(frame[name], width)) is not None}
    if not columns:
        return frame
    return frame.assign(**columns) if is_pandas else frame.with_columns(**columns)


def _in_pandas(series: Any, width: int | None) -> Any:
    if hasattr(series, "cat"):
        short = shorten(map(str, series.cat.categories), width)
        return series.cat.rename_categories(short) if short else None
    values = series.dropna()
    if len(values) and isinstance(values.iloc[0], list):
        short = shorten({str(value) for ids in values for value in ids}, width)
        return series.map(lambda ids: [short.get(value, value) for value in ids], na_action="ignore") if short else None
    short = shorten((value for value in values.unique() if isinstance(value, str)), width)
    return series.replace(short) if short else None


def _in_polars(series: Any, width: int | None) -> Any:
    import polars as pl

    if isinstance(series.dtype, pl.List) and series.dtype.inner == pl.String:
        short = shorten(series.explode(empty_as_null=False).drop_nulls().unique().to_list(), width)
        return pl.col(series.name).list.eval(pl.element().replace(short)) if short else None
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return None
    # Many rows have few different ids.
    short = shorten(series.unique().drop_nulls().cast(pl.String).to_list(), width)
    return series.cast(pl.String).replace(short) if short else None


def progress_bar(progress: bool | None, **look: Any) -> Any:
    """A bar of tqdm, by default in a terminal or notebook only; as text where the notebook has no widgets."""
    if "tqdm.auto" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that ipywidgets is not installed
            import_module("tqdm.auto")
    return sys.modules["tqdm.auto"].tqdm(disable=None if progress is None else not progress, **look)
