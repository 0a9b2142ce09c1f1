"""One rule for each column of a frame: any type of times, ids, sides, levels and numbers becomes the tidy type.

A column is a polars Series, or a list of Python objects where its library has no type for it. One that has its tidy
type is returned without a copy; NotTidyError if it cannot be read.
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

from marketdata.errors import NotTidyError
from marketdata.points.columns import Ints
from marketdata.points.resample import run_ends
from marketdata.points.schema import ASK, BID, ID_COLUMNS
from marketdata.times import to_micros

# Looking for runs in fewer texts costs more than the cast.
_FEW = 10_000
Raw = Any  # a polars Series, or a list of objects


def times(raw: Raw, name: str) -> pl.Series:
    """Times as UTC microseconds, also those without a zone; nanoseconds are cut, a null is refused."""
    if isinstance(raw, list):
        wrong = next((v for v in raw if not is_missing(v) and not isinstance(v, dt.datetime)), None)
        if wrong is not None:
            raise NotTidyError(not_times(name, type(wrong).__name__))
        values = [None if is_missing(v) else to_micros(v, name) for v in raw]
        raw = pl.Series(name, values, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    if raw.dtype == pl.Null and not len(raw):
        raw = raw.cast(pl.Datetime("us", "UTC"))
    if not isinstance(raw.dtype, pl.Datetime):
        raise NotTidyError(not_times(name, raw.dtype))
    if raw.null_count():
        raise NotTidyError(f"{name} is null in {raw.null_count()} rows; every row needs a time: drop those rows.")
    if raw.dtype.time_unit == "us" and raw.dtype.time_zone == "UTC":
        return raw  # type: ignore[no-any-return]
    whole = raw.to_physical()
    if raw.dtype.time_unit == "ns":
        whole = whole // 1000
    elif raw.dtype.time_unit == "ms":
        whole = whole * 1000
    return whole.cast(pl.Datetime("us", "UTC"))  # type: ignore[no-any-return]


def not_times(name: str, kind: object) -> str:
    """The message about a column that should have times."""
    return (
        f"{name} contains {kind}, not times; make it a UTC datetime column (pandas.to_datetime({name}, utc=True), of "
        'numbers with unit="ms" or what they count).'
    )


def cut_nanoseconds(raw: Raw) -> pl.Series | None:
    """The times as nanoseconds, if microseconds would lose digits; else None."""
    if isinstance(raw, list) or not isinstance(raw.dtype, pl.Datetime) or raw.dtype.time_unit != "ns":
        return None
    whole = raw.to_physical()
    return whole if (whole % 1000 != 0).any() else None


def ids(raw: Raw, name: str, *, nullable: bool = False) -> pl.Series:
    """Ids as categories of text; NotTidyError if they are no texts, or one is null that must not be."""
    if isinstance(raw, list):
        values = [None if is_missing(v) else v for v in raw]
        wrong = next((v for v in values if isinstance(v, bool) or not (v is None or isinstance(v, str | int))), None)
        if wrong is not None:
            raise NotTidyError(not_text(name, type(wrong).__name__))
        texts = [None if v is None else str(v) for v in values]
        check_unicode(name, texts)
        raw = pl.Series(name, texts, dtype=pl.String)
    if raw.dtype.is_integer():
        raw = raw.cast(pl.String)
    if raw.dtype in (pl.String, pl.Null):
        raw = _cast(raw, pl.Categorical())
    if not isinstance(raw.dtype, pl.Categorical | pl.Enum):
        raise NotTidyError(not_text(name, raw.dtype))
    if isinstance(raw.dtype, pl.Enum) and not raw.dtype.categories.is_sorted():
        raw = raw.cast(pl.String).cast(pl.Enum(raw.dtype.categories.sort()))
    if not nullable and raw.null_count():
        raise NotTidyError(f"{name} is null in {raw.null_count()} rows; every row needs one: fill or drop those rows.")
    return raw  # type: ignore[no-any-return]


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


def sides(raw: Raw, name: str = "side") -> pl.Series:
    """Sides as 0 for a bid and 1 for an ask; NotTidyError naming other values."""
    if isinstance(raw, list):
        raw = pl.Series(name, [None if is_missing(v) else str(v) for v in raw], dtype=pl.String)
    if raw.dtype not in (pl.String, pl.Null) and not isinstance(raw.dtype, pl.Categorical | pl.Enum):
        raise NotTidyError(f"{name} contains {raw.dtype}, not text; it is {BID!r} or {ASK!r}.")
    raw = raw.cast(pl.String) if raw.dtype == pl.Null else raw
    if not raw.null_count():
        bid, ask = pl.Series([BID, ASK]).cast(raw.dtype, strict=False).to_physical()
        whole: Any = raw.to_physical()
        # numpy compares numbers faster than polars, which does so with texts.
        whole = whole if whole.dtype == pl.String else whole.to_numpy()
        is_ask = np.asarray(whole == ask)
        if np.count_nonzero(is_ask) + (whole == bid).sum() == len(raw):
            return pl.Series(name, is_ask.view(np.int8))
    unknown = sorted({*raw.drop_nulls().cast(pl.String).unique()} - {BID, ASK})
    if unknown:
        lower_case = {*map(str.lower, unknown)}
        hint = f" Write them in lower case: {name}.str.lower()." if lower_case <= {BID, ASK} else ""
        if lower_case <= {"buy", "sell"}:
            hint = f" Resting orders to buy are {BID!r}, to sell {ASK!r}."
        raise NotTidyError(f"{name} is {BID!r} or {ASK!r}; the frame also contains {unknown}.{hint}")
    raise NotTidyError(f"{name} is null in {raw.null_count()} rows; every level is of a {BID} or an {ASK}.")


def numbers(raw: Raw, name: str) -> pl.Series:
    """Numbers as float64; missing ones are null or NaN."""
    if isinstance(raw, list):
        return pl.Series(name, [_number(v, name) for v in raw], dtype=pl.Float64)
    if raw.dtype == pl.Float64:
        return raw  # type: ignore[no-any-return]
    if not (raw.dtype.is_numeric() or raw.dtype == pl.Null):
        raise NotTidyError(f"{name} contains {raw.dtype}, not numbers; make it a column of floats.")
    return raw.cast(pl.Float64)  # type: ignore[no-any-return]


def lists(raw: Raw, name: str) -> pl.Series:
    """Lists of numbers as lists of float64, a missing list as an empty one; NotTidyError for other values."""
    if isinstance(raw, list):
        raw = pl.Series(name, [_list(value, name) for value in raw], dtype=pl.List(pl.Float64))
    if raw.dtype == pl.Null:
        raw = raw.cast(pl.List(pl.Float64))
    inner = getattr(raw.dtype, "inner", None)
    if inner is None or not (inner.is_numeric() or inner == pl.Null):
        raise NotTidyError(
            f"{name} contains {raw.dtype}, not lists of numbers, one per side and snapshot. Dask makes text of lists "
            "that are Python objects: give it columns of Arrow lists."
        )
    out: pl.Series = raw.cast(pl.List(pl.Float64))
    return out.fill_null([]) if out.null_count() else out


def _list(value: Any, name: str) -> list[float | None]:
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return [_number(one, name) for one in value]
    if is_missing(value):
        return []
    raise NotTidyError(f"{name} contains {type(value).__name__}, not lists of numbers, one per side and snapshot.")


def is_number(raw: Raw) -> bool:
    """Whether `numbers` takes a column; of objects the present ones decide, and there must be one."""
    if not isinstance(raw, list):
        return bool(raw.dtype.is_numeric())
    present = [v for v in raw if not is_missing(v)]
    return bool(present) and all(isinstance(v, Real | Decimal) and not isinstance(v, bool) for v in present)


def _number(value: Any, name: str) -> float | None:
    if is_missing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise NotTidyError(f"{name} contains {type(value).__name__}, not numbers; make it a column of floats.")
    try:
        return float(value)
    except OverflowError:
        raise NotTidyError(f"{name} contains a number above {sys.float_info.max:.0e}; it is none.") from None


def levels(raw: Raw, name: str = "level") -> pl.Series:
    """Levels as int32, whole numbers from 0; the level of a sentinel row is null."""
    if not isinstance(raw, list) and raw.dtype == pl.Int32:
        return raw  # type: ignore[no-any-return]
    whole = not isinstance(raw, list) and raw.dtype.is_integer()
    given: pl.Series = raw if whole else numbers(raw, name).fill_nan(None)
    out = given.cast(pl.Int32, strict=False)  # what does not fit becomes null
    same = out.cast(pl.Float64) == given.cast(pl.Float64)
    wrong = given.filter(given.is_not_null() & (out.is_null() | (out < 0) | ~same))
    if len(wrong):
        raise NotTidyError(f"{name} contains {wrong[0]}; levels are 0, 1, 2, ... from the best price.")
    return out


def codes(raw: Raw, name: str) -> pl.Series:
    """`ids` as integers, -1 where one is missing."""
    physical = ids(raw, name, nullable=True).to_physical()
    return physical.cast(pl.Int64).fill_null(-1) if physical.null_count() else physical


def micros(raw: Raw, name: str) -> pl.Series:
    """`times` as integers."""
    return times(raw, name).to_physical()


RULES: dict[str, Callable[[Raw, str], pl.Series]] = {
    "ts": micros,
    "side": sides,
    "level": lambda raw, name: levels(raw, name).fill_null(0),
    **dict.fromkeys(ID_COLUMNS, codes),
}


def _cast(raw: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Cast texts, unknown ones to null, once per run of equal neighbours."""
    if len(raw) < _FEW:
        return raw.cast(dtype, strict=False)
    whole = raw.to_physical()
    starts = np.append(0, whole.slice(1).ne_missing(whole.head(-1)).arg_true().to_numpy() + 1)
    if 2 * len(starts) > len(raw):
        return raw.cast(dtype, strict=False)
    return of_runs(raw.gather(starts).cast(dtype, strict=False), starts, len(raw))


def of_runs(values: pl.Series, starts: Ints, count: int) -> pl.Series:
    """A series of ``count`` texts as categories, from those with which its runs start."""
    lengths, codes = run_ends(starts, count) - starts, values.to_physical()
    if codes.null_count() or not hasattr(values.cat, "to"):  # polars 1 makes no categories of codes
        return values.gather(np.repeat(np.arange(len(starts), dtype=np.uint32), lengths))
    return from_codes(np.repeat(codes.to_numpy(), lengths), values.dtype)


def from_codes(codes: Any, dtype: pl.DataType) -> pl.Series:
    """A series of an enum from the places of its texts."""
    series = pl.Series(codes)
    # polars 2 has a method for it and refuses the cast, which is how older ones do it
    return series.cat.to(dtype) if hasattr(series.cat, "to") else series.cast(dtype)


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
