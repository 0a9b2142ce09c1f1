"""Display of frames: notebooks (by IPython) and `show` shorten long ids; values are untouched."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

from marketdata.errors import ConfigError

# Characters that tell a shortened id from others.
_LEAST = 6


class Options:
    """Display options: the attributes of ``md.options``, the only instance.

    ``id_width`` is the longest id displayed in full, from 6, default 16; of longer ones the middle is left out; None:
    all in full. Returns, if called, a context manager that sets them for its block.

    Examples
    --------
    >>> with md.options(id_width=None):
    ...     print(md.options)
    Options(id_width=None)
    """

    __slots__ = ("_id_width",)

    def __init__(self) -> None:
        self._id_width: int | None = 16

    @property
    def id_width(self) -> int | None:
        """Longest id displayed in full."""
        return self._id_width

    @id_width.setter
    def id_width(self, value: int | None) -> None:
        self._id_width = _checked(value)

    @contextlib.contextmanager
    def __call__(self, *, id_width: int | None) -> Iterator[None]:
        """Options for the length of a ``with`` block."""
        before, self.id_width = self._id_width, id_width
        try:
            yield
        finally:
            self._id_width = before

    def __repr__(self) -> str:
        return f"Options(id_width={self._id_width})"


options = Options()


class Shown:
    """A frame as ``show`` displays it."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return repr(self._frame)

    def _repr_html_(self) -> str:
        return str(self._frame._repr_html_())


def show(frame: Any, *, id_width: int | None = 16) -> Shown:
    """A frame to print or to end a cell with, its long ids shortened, as notebooks display frames by themselves.

    Returns an object with the text and HTML of the pandas or polars DataFrame; ids longer than ``id_width`` (None:
    none) are shortened, and different ids stay different.

    Examples
    --------
    >>> prices = md.testing.prices().assign(market_id="0x" + "12" * 32)
    >>> print(md.show(prices[["market_id", "price"]].head(1), id_width=12))
          market_id  price
    0  0x1212…21212    0.4
    """
    from narwhals.stable.v2.dependencies import is_pandas_dataframe, is_polars_dataframe

    if not (is_pandas_dataframe(frame) or is_polars_dataframe(frame)):
        raise ConfigError(
            f"md.show takes a pandas or polars DataFrame, not {type(frame).__name__}; collect or convert it first."
        )
    return Shown(shortened(frame, _checked(id_width)))


def install(kind: type) -> None:
    """Display frames of a class with short ids in the running notebook, unless the user has a formatter for them."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None:
        return
    formatters = shell.display_formatter.formatters
    for mime, formatter in (("text/html", _html), ("text/plain", _plain)):
        try:
            formatters[mime].lookup_by_type(kind)
        except KeyError:
            formatters[mime].for_type(kind, formatter)


def shorten(texts: Iterable[str], width: int | None) -> dict[str, str]:
    """Each text longer than ``width`` and its short form; different texts have different ones."""
    if width is None:
        return {}
    long = [text for text in texts if len(text) > width]
    while long:
        head = width // 2
        out = {text: f"{text[:head]}…{text[len(text) - (width - head - 1) :]}" for text in long if len(text) > width}
        if len({*out.values(), *(text for text in long if text not in out)}) == len(long):
            return out
        width *= 2
    return {}


def _checked(value: int | None) -> int | None:
    if value is not None and not (type(value) is int and value >= _LEAST):
        problem = f"is refused; allowed are None and whole numbers from {_LEAST}."
        raise ConfigError(problem, argument="id_width", value=value)
    return value


def _html(frame: Any) -> str:
    return str(_shown(frame)._repr_html_())


def _plain(frame: Any, printer: Any, _cycle: bool) -> None:
    printer.text(repr(_shown(frame)))


def _shown(frame: Any) -> Any:
    try:
        return shortened(frame, options.id_width)
    except Exception:  # any frame of a notebook comes here, and each is shown
        return frame


def shortened(frame: Any, width: int | None) -> Any:
    """The frame with short ids; the same object where none is long."""
    from narwhals.stable.v2.dependencies import is_pandas_dataframe

    replace = _pandas if is_pandas_dataframe(frame) else _polars
    names = [name for name in frame.columns if isinstance(name, str) and name.endswith(("_id", "_ids"))]
    new = {name: column for name in names if (column := replace(frame[name], width)) is not None}
    if not new:
        return frame
    return frame.assign(**new) if replace is _pandas else frame.with_columns(**new)


def _pandas(series: Any, width: int | None) -> Any:
    if hasattr(series, "cat"):
        short = shorten(map(str, series.cat.categories), width)
        return series.cat.rename_categories(short) if short else None
    values = series.dropna()
    if len(values) and isinstance(values.iloc[0], list):
        short = shorten({str(one) for some in values for one in some}, width)
        return series.map(lambda some: [short.get(one, one) for one in some], na_action="ignore") if short else None
    short = shorten((one for one in values.unique() if isinstance(one, str)), width)
    return series.replace(short) if short else None


def _polars(series: Any, width: int | None) -> Any:
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
