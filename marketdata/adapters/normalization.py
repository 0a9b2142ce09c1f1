"""One rule for each column of a frame: any type of times, ids, sides, levels and numbers becomes the tidy type.

A column is a polars Series, or a list of Python objects where its library has no type for it. A column of its tidy type
is returned without a copy; NotTidyError if a column cannot be read.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Floats, Ints
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import ASK, BID, ID_COLUMNS
from marketdata.times import to_micros

Raw = Any  # a polars Series, or a list of objects


def micros(raw: Raw, name: str) -> Ints:
    """Times as UTC microseconds, also those without a zone; nanoseconds are cut, a null is refused."""
    wrong: object = None
    if isinstance(raw, list):
        wrong = next((type(v).__name__ for v in raw if not (is_missing(v) or isinstance(v, dt.datetime))), None)
        values = [] if wrong else [None if is_missing(v) else to_micros(v, name) for v in raw]
        raw = pl.Series(name, values, dtype=pl.Datetime("us", "UTC"))
    elif not isinstance(raw.dtype, pl.Datetime):
        wrong = raw.dtype if raw.dtype != pl.Null or len(raw) else None
        raw = raw.clear().cast(pl.Datetime("us", "UTC"))
    if wrong is not None:
        raise NotTidyError(
            f"{name} contains {wrong}, not times; make it a UTC datetime column (pandas.to_datetime({name}, utc=True), "
            'of numbers with unit="ms" or what they count).'
        )
    if raw.null_count():
        raise NotTidyError(f"{name} is null in {raw.null_count()} rows; every row needs a time: drop those rows.")
    return raw.dt.timestamp("us").to_numpy()  # type: ignore[no-any-return]


def ids(raw: Raw, name: str) -> pl.Series:
    """Ids as texts or categories; NotTidyError if they are neither."""
    if isinstance(raw, list):
        values = [None if is_missing(v) else v for v in raw]
        wrong = next((v for v in values if isinstance(v, bool) or not (v is None or isinstance(v, str | int))), None)
        if wrong is not None:
            raise NotTidyError(not_text(name, type(wrong).__name__))
        texts = [None if v is None else str(v) for v in values]
        check_unicode(name, texts)
        return pl.Series(name, texts, dtype=pl.String)
    if raw.dtype.is_integer() or raw.dtype == pl.Null:
        raw = raw.cast(pl.String)
    if not isinstance(raw.dtype, pl.String | pl.Categorical | pl.Enum):
        raise NotTidyError(not_text(name, raw.dtype))
    return raw  # type: ignore[no-any-return]


def codes(raw: Raw, name: str) -> NDArray[np.integer]:
    """`ids` as integers, -1 where one is missing."""
    texts = ids(raw, name)
    if texts.dtype == pl.String:
        # Long texts are looked up once for each run of equal ones.
        starts = group_starts(texts.rle_id().to_numpy())
        physical = texts.gather(starts).cast(pl.Categorical).to_physical()
        return np.repeat(physical.cast(pl.Int32).fill_null(-1).to_numpy(), run_ends(starts, len(texts)) - starts)
    physical = texts.to_physical()
    return (physical.cast(pl.Int64).fill_null(-1) if physical.null_count() else physical).to_numpy()


def not_text(name: str, kind: object) -> str:
    """The message about an id that is no text."""
    return f"{name} contains {kind}, not text; ids have up to 77 digits, too many for numbers: cast it to string."


def check_unicode(name: str, texts: Iterable[object]) -> None:
    """NotTidyError for a text with a lone surrogate: libraries would refuse it later, or merge it with another."""
    present = [text for text in texts if isinstance(text, str)]
    try:
        "".join(present).encode()
    except UnicodeEncodeError:
        wrong = next(text for text in present if re.search("[\ud800-\udfff]", text))
        raise NotTidyError(
            f"{name} contains {wrong!r}, which has a lone surrogate and so is no Unicode text; correct or drop it."
        ) from None


def sides(raw: Raw, name: str) -> NDArray[np.int8]:
    """Sides as 0 for a bid and 1 for an ask; NotTidyError naming other values."""
    if isinstance(raw, list):
        raw = pl.Series(name, [None if is_missing(v) else str(v) for v in raw], dtype=pl.String)
    if not isinstance(raw.dtype, pl.String | pl.Null | pl.Categorical | pl.Enum):
        raise NotTidyError(f"{name} contains {raw.dtype}, not text; it is {BID!r} or {ASK!r}.")
    raw = raw.cast(pl.String) if raw.dtype == pl.Null else raw
    if not raw.null_count():
        bid, ask = pl.Series([BID, ASK]).cast(raw.dtype, strict=False).to_physical()
        whole: Any = raw.to_physical()
        # numpy is faster at comparing numbers, polars at comparing texts.
        whole = whole if whole.dtype == pl.String else whole.to_numpy()
        is_ask = np.asarray(whole == ask)
        if np.count_nonzero(is_ask) + (whole == bid).sum() == len(raw):
            return is_ask.view(np.int8)
    unknown = sorted({*raw.drop_nulls().cast(pl.String).unique()} - {BID, ASK})
    if not unknown:
        raise NotTidyError(f"{name} is null in {raw.null_count()} rows; every level is of a {BID} or an {ASK}.")
    lower_case = {*map(str.lower, unknown)}
    hint = f" Write them in lower case: {name}.str.lower()." if lower_case <= {BID, ASK} else ""
    if lower_case <= {"buy", "sell"}:
        hint = f" Resting orders to buy are {BID!r}, to sell {ASK!r}."
    raise NotTidyError(f"{name} is {BID!r} or {ASK!r}; the frame also contains {unknown}.{hint}")


def numbers(raw: Raw, name: str) -> Floats:
    """Numbers as float64; missing ones are NaN."""
    if isinstance(raw, list):
        return np.array([_number(v, name) for v in raw], float)
    if not (raw.dtype.is_numeric() or raw.dtype == pl.Null):
        raise NotTidyError(f"{name} contains {raw.dtype}, not numbers; make it a column of floats.")
    return raw.cast(pl.Float64).to_numpy()  # type: ignore[no-any-return]


def lists(raw: Raw, name: str) -> pl.Series:
    """Lists of numbers as lists of float64, a missing list as an empty one; NotTidyError for other values."""
    if isinstance(raw, list):
        raw = pl.Series(name, [_list(value, name) for value in raw], dtype=pl.List(pl.Float64))
    inner = getattr(raw.dtype, "inner", pl.Null() if raw.dtype == pl.Null else pl.String())
    if not (inner.is_numeric() or inner == pl.Null):
        raise NotTidyError(
            f"{name} contains {raw.dtype}, not lists of numbers, one per side and snapshot. Dask makes text of lists "
            "that are Python objects: give it columns of Arrow lists."
        )
    out: pl.Series = raw.cast(pl.List(pl.Float64))
    return out.fill_null([]) if out.null_count() else out


def _list(value: Any, name: str) -> list[float]:
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return [_number(one, name) for one in value]
    if is_missing(value):
        return []
    raise NotTidyError(f"{name} contains {type(value).__name__}, not lists of numbers, one per side and snapshot.")


def is_number(raw: Raw) -> bool:
    """Whether `numbers` takes a column. In a column of objects the values that are not null decide."""
    if not isinstance(raw, list):
        return bool(raw.dtype.is_numeric())
    present = [v for v in raw if not is_missing(v)]
    return bool(present) and all(isinstance(v, Real | Decimal) and not isinstance(v, bool) for v in present)


def _number(value: Any, name: str) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise NotTidyError(f"{name} contains {type(value).__name__}, not numbers; make it a column of floats.")
    try:
        return float(value)
    except OverflowError:
        raise NotTidyError(f"{name} contains a number above {sys.float_info.max:.0e}; it is none.") from None


def levels(raw: Raw, name: str = "level") -> pl.Series:
    """Levels as int32, whole numbers from 0; the level of a sentinel row is null."""
    if isinstance(raw, list) or not raw.dtype.is_integer():
        raw = pl.Series(numbers(raw, name)).fill_nan(None)
    if raw.dtype == pl.Int32:
        return raw  # type: ignore[no-any-return]
    out: pl.Series = raw.cast(pl.Int32, strict=False)  # what does not fit becomes null
    same = out.cast(pl.Float64) == raw.cast(pl.Float64)
    wrong = raw.filter(raw.is_not_null() & (out.is_null() | (out < 0) | ~same))
    if len(wrong):
        raise NotTidyError(f"{name} contains {wrong[0]}; levels are 0, 1, 2, ... from the best price.")
    return out


RULES: dict[str, Callable[[Raw, str], NDArray[Any]]] = {
    "ts": micros,
    "side": sides,
    "level": lambda raw, name: levels(raw, name).fill_null(0).to_numpy(),
    **dict.fromkeys(ID_COLUMNS, codes),
}


def is_missing(value: object) -> bool:
    """None, NaN, NaT and pandas' NA."""
    if value is None:
        return True
    if isinstance(value, str | bool | int) or hasattr(value, "__len__"):
        return False
    try:
        return bool(value != value)  # noqa: PLR0124 NaN, NaT and Decimal("NaN") are no values of themselves
    except (TypeError, ArithmeticError):
        return True  # NA has no truth value
