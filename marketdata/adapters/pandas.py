"""Frames of pandas; the index is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import polars
from marketdata.adapters.frame import TEXTS, Column, Frame, Native, Passed, Texts
from marketdata.adapters.normalization import Raw, check_unicode
from marketdata.points.columns import Ints
from marketdata.points.resample import run_ends
from marketdata.points.schema import ASK, BID, LISTS

_TIDY = {"ts": "datetime64[us, UTC]", "level": "Int32"}


class PandasFrame(Frame):
    """A pandas DataFrame."""

    def raw(self, name: str, rows: Ints | None = None) -> Raw:
        """See `Frame`."""
        import pandas as pd

        column, rows = self.native[name], self.rows if rows is None else rows
        dtype: Any = column.dtype
        if isinstance(dtype, pd.ArrowDtype) and rows is not None:
            return PandasFrame.of(self.native[[name]]).raw(name).gather(rows)  # some types of Arrow have no gather
        array = column.array if rows is None else column.array.take(rows)
        if isinstance(dtype, pd.CategoricalDtype):
            texts = array.categories.tolist()
            if not all(isinstance(text, str) for text in texts):
                return list(array)
            check_unicode(name, texts)
            return pl.Series([*texts, None], dtype=pl.Enum(texts))[array.codes.astype(np.int64) % (len(texts) + 1)]
        if isinstance(dtype, pd.ArrowDtype) or (isinstance(dtype, pd.StringDtype) and dtype.storage != "python"):
            return _from_arrow(array, name)
        if dtype.kind == "M":
            whole = pl.Series((array.as_unit("ms") if array.unit == "s" else array).asi8)
            instants = whole.cast(pl.Datetime("ms" if array.unit == "s" else array.unit, "UTC"))
            return _with_nulls(instants, array)
        if isinstance(dtype, np.dtype | pd.SparseDtype) and dtype.kind != "O":
            return pl.Series(np.asarray(array))
        if dtype.kind in "iufb" and hasattr(dtype, "numpy_dtype"):
            return _with_nulls(pl.Series(array.to_numpy(dtype=dtype.numpy_dtype, na_value=0)), array)
        return list(array.astype(object))

    def is_tidy(self, name: str) -> bool:
        """See `Frame`."""
        dtype: Any = self.native[name].dtype
        if name not in TEXTS:
            return str(dtype) == _TIDY.get(name, "float64")
        if not hasattr(dtype, "categories"):
            return False
        texts = dtype.categories.tolist()
        return texts == [BID, ASK] if name == "side" else all(isinstance(text, str) for text in texts)

    def array(self, name: str, *, is_tidy: bool) -> NDArray[Any]:
        """See `Frame`; most tidy types are arrays already."""
        if not is_tidy:
            return super().array(name, is_tidy=False)
        whole = self.native[name].array
        if name == "ts":
            values = whole.asi8
        elif name in TEXTS:
            check_unicode(name, whole.categories)
            values = whole.codes
        else:
            values = whole.to_numpy(dtype="int32", na_value=0) if name == "level" else np.ascontiguousarray(whole)
        if name in ("ts", "side") and values.min(initial=0) < 0:
            return super().array(name, is_tidy=True)  # which names a null
        return values if self.rows is None else values[self.rows]  # type: ignore[no-any-return]

    def build(self, columns: Mapping[str, Column], height: int) -> Native:
        """See `Frame`."""
        import pandas as pd

        out = {c: _column(c, v, self.native[c].dtype if c in self.names else None) for c, v in columns.items()}
        return pd.DataFrame(out, index=pd.RangeIndex(height), copy=False)


def _column(name: str, column: Column, wanted: Any) -> Any:
    import pandas as pd

    if isinstance(column, Passed) and isinstance(column.frame, PandasFrame):
        array, rows = column.frame.native[column.name].array, column.rows
        if rows is None:
            return array.copy()  # so that writing into the result does not write into the frame that was given
        has_null = bool(rows.min(initial=0) < 0)
        if isinstance(array, pd.arrays.NumpyExtensionArray):  # which has no null
            return pd.api.extensions.take(array.to_numpy(), rows, allow_fill=has_null)
        return array.take(rows, allow_fill=has_null)
    if isinstance(column, Passed | list):
        column = polars.made(name, column)
        column = column.cast(pl.Categorical) if name in TEXTS and column.dtype == pl.String else column
    if isinstance(column, pl.Series):
        if not isinstance(column.dtype, pl.Enum | pl.Categorical):
            return _of_polars(name, column, wanted)
        column = Texts.of(column.cast(pl.String).to_list())
    if isinstance(column, Texts):
        return _texts(column, wanted)
    if column.dtype.kind == "M":
        return pd.Series(column.view(np.int64), copy=False).astype("datetime64[us, UTC]")
    return np.ascontiguousarray(column)


def _of_polars(name: str, column: pl.Series, wanted: Any) -> Any:
    """A column of polars; whole numbers and booleans in types that have nulls."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pl.Datetime):
        instants = column.dt.cast_time_unit("us").dt.replace_time_zone(None).to_numpy(writable=True)
        return pd.Series(instants, copy=False).dt.tz_localize("UTC")
    if dtype == pl.String:
        texts = column.to_list() if find_spec("pyarrow") is None else pd.array(column.to_arrow(), dtype="str")
        return pd.Series(texts, dtype="str", copy=False)
    if dtype == pl.Boolean:
        return pd.array(column.to_list(), dtype="boolean")
    if dtype.is_integer():
        numbers, is_null = column.fill_null(0).to_numpy(writable=True), column.is_null().to_numpy(writable=True)
        return pd.arrays.IntegerArray(numbers, is_null)
    if not dtype.is_nested():
        return column.to_numpy(writable=True)
    # Dask makes texts of objects, so lists of levels are Arrow lists.
    if name in LISTS and wanted != np.dtype(object) and find_spec("pyarrow") is not None:
        import pyarrow as pa

        return pd.array(column.to_arrow(), dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    return pd.Series(column.to_list(), dtype=object)


def _texts(column: Texts, wanted: Any) -> Any:
    import pandas as pd

    codes, texts, lengths = column
    if wanted is None or isinstance(wanted, pd.CategoricalDtype):
        # Labels of tokens may be equal, missing or in no order.
        present = texts if texts == [BID, ASK] else sorted({text for text in texts if text is not None})
        categories = pd.Index(present, dtype="str") if wanted is None else wanted.categories
        # Values of another frame, such as orders for a token without books, have categories of their own.
        more = [] if wanted is None else [text for text in present if text not in categories]
        categories = categories.append(pd.Index(more)) if more else categories
        place = {text: i for i, text in enumerate(categories)}
        lookup = np.array([*(place.get(text, -1) for text in texts), -1], np.min_scalar_type(-1 - len(place)))
        codes = lookup[codes if lengths is None else np.repeat(codes, lengths)]
        dtype = pd.CategoricalDtype(categories, wanted is not None and wanted.ordered)
        return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)
    codes = codes if lengths is None else np.repeat(codes, lengths)
    if isinstance(wanted, pd.ArrowDtype):  # some types of Arrow have no gather
        return pd.array(np.array([*texts, None], dtype=object)[codes], dtype=wanted)
    return pd.Series([*texts, None], dtype=object if wanted.kind not in "OU" else wanted).array.take(codes)


def _with_nulls(values: pl.Series, array: Any) -> pl.Series:
    missing = np.asarray(array.isna())
    return values.set(pl.Series(missing), None) if missing.any() else values


def _from_arrow(array: Any, name: str) -> pl.Series:
    """A column of Arrow; long texts are read once for each run of equal ones, if runs are long."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pa.chunked_array(array.__arrow_array__()) if len(array) else pa.array(array)
    if name not in TEXTS or values.null_count or values.type not in (pa.string(), pa.large_string()):
        return polars.from_arrow(pa.table({name: values}))[name]
    changes = pc.not_equal(values.slice(1), values.slice(0, max(len(values) - 1, 0)))
    starts = np.append(0, np.flatnonzero(changes) + 1)[: len(values)]
    runs = polars.from_arrow(pa.table({name: values.take(starts)}))[name].cast(pl.Categorical)
    return runs[np.repeat(np.arange(len(starts)), run_ends(starts, len(values)) - starts)]
