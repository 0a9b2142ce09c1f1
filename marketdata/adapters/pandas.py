"""Frames of pandas; the index is ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import polars
from marketdata.adapters.frame import TEXTS, Column, Frame, Levels, Lists, Native, Passed, Texts, Values
from marketdata.adapters.normalization import Raw, check_unicode, from_codes, of_runs
from marketdata.points.columns import Ints
from marketdata.points.order import NO_TIME
from marketdata.points.schema import ASK, BID, ID_COLUMNS

_TYPES = {"text": "str", "bool": "boolean", "int": "Int64"}
_TIDY = {"ts": "datetime64[us, UTC]", "level": "Int32"}


class PandasFrame(Frame):
    """A pandas DataFrame."""

    def raw(self, name: str, rows: Ints | None = None) -> Raw:
        """See `Frame`."""
        import pandas as pd

        column, rows = self.native[name], self.rows if rows is None else rows
        if isinstance(column.dtype, pd.ArrowDtype) and rows is not None:
            whole = PandasFrame(self.native[[name]]).raw(name)  # some types of Arrow have no gather
            return [whole[i] for i in rows.tolist()] if isinstance(whole, list) else whole.gather(rows)
        column = column if rows is None else pd.Series(column.array.take(rows), copy=False)
        if isinstance(column.dtype, pd.SparseDtype):
            column = pd.Series(column.to_numpy())
        dtype, array = column.dtype, column.array
        masked: Any = dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return _categories(array)
        # pandas has no kind for the newer types of Arrow.
        if not isinstance(dtype, pd.ArrowDtype) and dtype.kind == "M":
            return _instants(array)
        if isinstance(dtype, np.dtype):
            return column.tolist() if dtype.kind == "O" else pl.Series(_plain(column.to_numpy()))
        if isinstance(dtype, pd.StringDtype) and dtype.storage == "python":
            return column.astype(object).tolist()
        if isinstance(dtype, pd.ArrowDtype | pd.StringDtype):
            import pyarrow as pa

            values = pa.chunked_array(array.__arrow_array__()) if len(array) else pa.array(array)
            starts = _text_starts(values) if name in TEXTS else None
            whole = polars.from_arrow(pa.table({name: values if starts is None else values.take(starts)}))[name]
            return whole if starts is None else of_runs(whole.cast(pl.Categorical()), starts, len(values))
        if dtype.kind in "iufb":
            values = pl.Series(_plain(array.to_numpy(dtype=masked.numpy_dtype, na_value=0)))
            missing = pl.Series(np.asarray(array.isna()))
            return values.set(missing, None) if missing.any() else values
        return column.astype(object).tolist()

    def fast(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """See `Frame`."""
        import pandas as pd

        arrays = {}
        for name in names:
            array = self.native[name].array
            if name in TEXTS and isinstance(array, pd.Categorical):
                texts = array.categories
                is_text = isinstance(texts.dtype, pd.StringDtype) or all(isinstance(text, str) for text in texts)
                if is_text:
                    check_unicode(name, texts)
                if is_text if name != "side" else texts.tolist() == [BID, ASK]:
                    arrays[name] = array.codes
            elif name not in TEXTS and str(array.dtype) == _TIDY.get(name, "float64"):
                if name == "ts":
                    arrays[name] = array.asi8
                else:
                    whole = array.to_numpy(dtype="int32", na_value=0) if name == "level" else array
                    arrays[name] = np.ascontiguousarray(whole)
        if "side" in arrays and arrays["side"].min(initial=0) < 0:
            del arrays["side"]
        self.tidy |= arrays.keys()
        return arrays

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """See `Frame`; categories have their texts already."""
        codes = self.read(name)[0] if name in ID_COLUMNS else None
        if codes is None or name not in self.tidy:
            return super().texts(name, rows)
        texts = [*self.native[name].array.categories.tolist(), None]
        return [texts[code] for code in (codes if rows is None else codes[rows]).tolist()]

    def build(self, columns: Mapping[str, Column], height: int) -> Native:
        """See `Frame`."""
        import pandas as pd

        out = {c: _column(c, v, self.native[c].dtype if c in self.names else None) for c, v in columns.items()}
        return pd.DataFrame(out, index=pd.RangeIndex(height), copy=False)

    def index_names(self) -> list[str]:
        """See `Frame`."""
        return [str(name) for name in self.native.index.names if name is not None]

    def labelled(self, made: Native) -> Native:
        """See `Frame`: the index, by which pandas assigns columns."""
        made.index = self.native.index
        return made


def _column(name: str, column: Column, wanted: Any) -> Any:
    import pandas as pd

    if isinstance(column, Passed):
        if not isinstance(column.frame, PandasFrame):
            return _of_polars(polars.made(name, column), wanted)
        frame, name, rows = column
        array = frame.native[name].array
        if rows is None:
            # A copy, so that writing into the result does not write into the frame that was given.
            return array.copy()
        if not len(rows) or rows.min() >= 0:
            return array.take(rows)
        # A plain array becomes one that has a null, as a column does in a join.
        return pd.api.extensions.take(
            array.to_numpy() if isinstance(array, pd.arrays.NumpyExtensionArray) else array, rows, allow_fill=True
        )
    if isinstance(column, list):
        if name not in TEXTS:
            return pd.Series(column, dtype="str")  # before pandas 3 an array of this type makes a text of None
        column = Texts.of(column)
    if isinstance(column, Texts):
        return _texts(column, wanted)
    if isinstance(column, Values):
        return pd.Series(column.values, dtype=_TYPES.get(column.type, "object"))
    if isinstance(column, Lists):
        return _lists(polars.made(name, column), wanted)
    if isinstance(column, Levels):
        return pd.arrays.IntegerArray(column.level.astype(np.int32), column.missing.copy())
    if column.dtype.kind == "M":
        return pd.Series(column.view(np.int64), copy=False).astype("datetime64[us, UTC]")
    return np.ascontiguousarray(column)


def _of_polars(column: pl.Series, wanted: Any) -> Any:
    """A column of another library."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pl.Enum | pl.Categorical) or (dtype == pl.String and column.name in TEXTS):
        texts = column.unique().cast(pl.String).drop_nulls().sort()
        codes = column.cast(pl.String).cast(pl.Enum(texts)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
        return _texts(Texts(codes, texts.to_list()), wanted)
    if isinstance(dtype, pl.Datetime):
        instants = column.to_physical()
        instants = instants.fill_null(NO_TIME) if instants.null_count() else instants
        return pd.Series(instants.to_numpy(writable=True), copy=False).astype("datetime64[us, UTC]")
    if dtype == pl.String:
        return pd.Series(column.to_list(), dtype="str")
    if column.name == "level" or (dtype.is_integer() and column.null_count()):  # a level has one type everywhere
        return pd.arrays.IntegerArray(
            column.fill_null(0).to_numpy(writable=True), column.is_null().to_numpy(writable=True)
        )
    if dtype == pl.Boolean and column.null_count():
        return pd.array(column.to_list(), dtype="boolean")
    return _lists(column, wanted) if dtype.is_nested() else column.to_numpy(writable=True)


def _lists(column: pl.Series, wanted: Any) -> Any:
    """Lists as Arrow has them, where it is installed: Dask makes texts of objects."""
    import pandas as pd

    if wanted != np.dtype(object) and find_spec("pyarrow") is not None:
        import pyarrow as pa

        return pd.array(column.to_arrow(), dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    return pd.Series(column.to_list(), dtype=object)


def _texts(column: Texts, wanted: Any) -> Any:
    import pandas as pd

    codes, texts, lengths = column
    if wanted is None or isinstance(wanted, pd.CategoricalDtype):
        categories = [] if wanted is None else wanted.categories.tolist()
        if wanted is None or categories != texts:
            # Labels of tokens may be equal, missing or in no order.
            present = texts if texts == [BID, ASK] else sorted({text for text in texts if text is not None})
            if wanted is None:
                wanted, categories = pd.CategoricalDtype(pd.Index(present, dtype="str")), present
            place = {text: i for i, text in enumerate(categories)}
            # Values of another frame, such as orders for a token without books, have categories of their own.
            more = [text for text in present if text not in place]
            wanted = pd.CategoricalDtype(wanted.categories.append(pd.Index(more))) if more else wanted
            place |= {text: i for i, text in enumerate(more, len(categories))}
            lookup = np.array([*(place.get(text, -1) for text in texts), -1])
            codes = codes if (lookup[:-1] == np.arange(len(texts))).all() else lookup[codes]
        codes = codes.astype(np.min_scalar_type(-1 - len(wanted.categories)))
        codes = codes if lengths is None else np.repeat(codes, lengths)
        return pd.Categorical.from_codes(codes, dtype=wanted, validate=False)
    codes = codes if lengths is None else np.repeat(codes, lengths)
    if isinstance(wanted, pd.ArrowDtype):  # some types of Arrow have no gather
        return pd.array(np.array([*texts, None], dtype=object)[codes], dtype=wanted)
    return pd.Series([*texts, None], dtype=object if wanted.kind not in "OU" else wanted).array.take(codes)


def _categories(array: Any) -> Any:
    """A categorical as an enum in the order of the texts; bid is before ask."""
    texts, codes = list(array.categories), array.codes
    if not all(isinstance(t, str) for t in texts):
        return list(array)
    ordered = sorted(texts)
    if texts not in (ordered, [BID, ASK]):
        place = {t: i for i, t in enumerate(ordered)}
        codes = np.array([*(place[t] for t in texts), -1], np.int64)[codes]
        texts = ordered
    dtype, places = pl.Enum(texts), pl.Series(codes)
    places = places.set(places < 0, None) if codes.min(initial=0) < 0 else places
    return from_codes(places.cast(pl.Series([], dtype=dtype).to_physical().dtype), dtype)


def _text_starts(values: Any) -> Ints | None:
    """The first row of each run of equal Arrow texts; None if most runs have one row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not len(values) or values.null_count or values.type not in (pa.string(), pa.large_string()):
        return None
    changes = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
    starts = np.append(0, np.flatnonzero(changes) + 1)
    return starts if 2 * len(starts) <= len(values) else None


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """An array that polars takes, if possible without a copy."""
    if values.dtype.byteorder not in "=|<":
        values = values.astype(values.dtype.newbyteorder("="))
    if values.dtype == np.float16:
        values = values.astype(np.float32)
    return np.ascontiguousarray(values)


def _instants(array: Any) -> pl.Series:
    """A datetime array: instants, which are UTC where they have no zone."""
    whole, unit = array.asi8, array.unit
    missing = whole == NO_TIME if len(whole) and whole.min() == NO_TIME else None
    if unit == "s":
        whole, unit = whole * 1000, "ms"
    out = pl.Series(np.ascontiguousarray(whole)).cast(pl.Datetime(unit, "UTC"))
    return out if missing is None else out.set(pl.Series(missing), None)
