"""How frames and objects are shown: short ids, tables for notebooks, and progress bars."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any


def described(name: str, values: Iterable[tuple[str, object]]) -> str:
    """Return an object as text: its name, then a line per value. Long values lose their middle."""
    lines = [f"  {key}: {without_middle(str(value), 90)}" for key, value in values]
    return "\n".join([name, *lines])


def html_table(values: Iterable[tuple[object, object]]) -> str:
    """Return names and values as an HTML table for notebooks. Markup in them is shown as text."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in values
    )
    return f"<table>{rows}</table>"


def without_middle(text: str, most: int) -> str:
    """Return the ends of a text that is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2) :]}"


def library(frame: object) -> str:
    """Return the library of a DataFrame or of a class derived from one, else an empty text."""
    return next((kind.__module__.partition(".")[0] for kind in type(frame).__mro__ if kind.__name__ == "DataFrame"), "")


def shorten(texts: Iterable[str], width: int) -> dict[str, str]:
    """Map each text longer than ``width`` to a short form of its own."""
    long = [text for text in texts if len(text) > width]
    while long:
        head = width // 2
        short = {text: f"{text[:head]}…{text[len(text) - (width - head - 1) :]}" for text in long if len(text) > width}
        if len({*short.values(), *(text for text in long if text not in short)}) == len(long):
            return short
        width *= 2
    return {}


def shortened(frame: Any, width: int | None) -> Any:
    """Return the frame with short ids, or the frame itself if no id is long."""
    names = [name for name in frame.columns if isinstance(name, str) and name.endswith(("_id", "_ids"))]
    if width is None:
        return frame
    if library(frame) == "pandas":
        return frame.assign(**{name: _in_pandas(frame[name], width) for name in names})
    return frame.with_columns(**{name: _in_polars(frame[name], width) for name in names})


def in_zone(frame: Any, zone: str) -> Any:
    """The frame with all its times in a time zone; those without one are UTC."""
    if library(frame) == "pandas":
        times = frame.select_dtypes(["datetime", "datetimetz"])
        return frame.assign(**{name: _pandas_zone(times[name].dt, zone) for name in times.columns})
    from polars import selectors

    naive = selectors.datetime(time_zone=None).dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    return frame.with_columns(naive, selectors.datetime(time_zone="*").dt.convert_time_zone(zone))


def _pandas_zone(times: Any, zone: str) -> Any:
    return (times.tz_localize("UTC").dt if times.tz is None else times).tz_convert(zone)


def _in_pandas(series: Any, width: int) -> Any:
    ids = series.dropna().explode().unique()
    short = shorten((value for value in ids if isinstance(value, str)), width)

    def replaced(value: Any) -> Any:
        is_list = hasattr(value, "__iter__") and not isinstance(value, str)
        return [short.get(one, one) for one in value] if is_list else short.get(value, value)

    return series.map(replaced, na_action="ignore") if short else series


def _in_polars(series: Any, width: int) -> Any:
    import polars as pl

    if series.dtype in (pl.List(pl.String), pl.List(pl.Categorical)):
        short = shorten(series.explode(empty_as_null=False).drop_nulls().unique().to_list(), width)
        whole = series.cast(pl.List(pl.String))
        return whole.list.eval(pl.element().replace(short)) if short else series
    if not isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum):
        return series
    # Many rows have few different ids.
    short = shorten(series.unique().drop_nulls().cast(pl.String).to_list(), width)
    return series.cast(pl.String).replace(short) if short else series


# The look of a bar of buckets, which is drawn also while nothing arrives: a service may pause for a minute.
BUCKETS: Mapping[str, Any] = {
    "unit": "bucket", "unit_scale": True, "leave": False, "delay": 1.0, "miniters": 0, "mininterval": 0.2
}  # fmt: skip


def progress_bar(progress: bool | None, **look: Any) -> Any:
    """Return a bar of tqdm, by default in a terminal or notebook only, as text in a notebook without widgets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is not installed
        from tqdm.auto import tqdm
    return tqdm(disable=None if progress is None else not progress, **look)
