"""Columns to tidy frames and back, ids and sides dictionary encoded, without a copy where the library allows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters.normalization import from_codes
from marketdata.errors import ConfigError
from marketdata.points.columns import Books, Codes, Data, Floats, Ints, Series, Token
from marketdata.points.resample import group_starts
from marketdata.points.schema import ASK, BID, ID_COLUMNS, LISTS, check_names, require
from marketdata.points.views import VIEWS, View, view_of
from marketdata.tidy import nested

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

FrameKind = Literal["pandas", "polars"]
# Runs of one id as long as this are filled faster than their rows are looked up one by one.
_LONG_RUN = 4_000


def frame_kind(value: Any) -> FrameKind:
    """The ``frame`` argument, if it is "pandas" or "polars"; else a ConfigError."""
    if value not in ("pandas", "polars"):
        raise ConfigError(f"frame={value!r} does not exist; allowed are 'pandas' and 'polars'.")
    return value  # type: ignore[no-any-return]


def to_frame(columns: Data, frame: FrameKind = "pandas") -> Any:
    """A tidy frame of columns, in tidy order; an empty side of a book is one marker row (null level, price, size)."""
    columns = columns.sort()
    build = _Pandas() if frame == "pandas" else _Polars()
    if isinstance(columns, Books):
        return build.frame(_book_series(columns, build))
    ids = VIEWS[view_of(columns)].ids
    series = {"ts": build.times(columns.ts), **_ids(columns.tokens, columns.token, build, ids)}
    series |= {name: build.floats(values, None) for name, values in columns.values.items()}  # noqa: PD011 no frame
    return build.frame(series)


def _book_series(books: Books, build: _Pandas | _Polars) -> dict[str, Any]:
    rows = np.maximum(books.counts, 1)
    per_snapshot = rows.reshape(-1, 2).sum(axis=1)
    total = int(per_snapshot.sum())
    ends = np.cumsum(rows)
    level = np.arange(total, dtype=np.int32)
    level -= np.repeat((ends - rows).astype(np.int32), rows)
    side = np.repeat((np.arange(len(rows)) & 1).astype(np.int8), rows)
    markers = (ends - 1)[books.counts == 0]
    price, size = books.levels()
    if len(markers):
        at = np.delete(np.arange(total), markers)
        numbers = np.full((2, total), np.nan)
        numbers[0, at], numbers[1, at] = price, size
        price, size = numbers
    else:
        price, size = np.ascontiguousarray(price), np.ascontiguousarray(size)
    return {
        "ts": build.times(np.repeat(books.ts, per_snapshot)),
        **_ids(books.tokens, books.token, build, ID_COLUMNS, per_snapshot),
        "side": build.sides(side),
        "level": build.levels(level, markers),
        "price": build.floats(price, markers),
        "size": build.floats(size, markers),
    }


def _ids(
    tokens: tuple[Token, ...],
    token: Codes,
    build: _Pandas | _Polars,
    names: tuple[str, ...],
    repeat: Ints | None = None,
) -> dict[str, Any]:
    out = {}
    for i, name in enumerate(names):
        texts = [t[i] for t in tokens]
        categories = sorted({t for t in texts if t is not None})
        place = {t: k for k, t in enumerate(categories)}
        width = np.int8 if len(categories) < 128 else np.int16 if len(categories) < 32_768 else np.int32
        map_ = np.array([place.get(t, -1) for t in texts] or [-1], dtype=width)  # type: ignore[arg-type]
        codes = map_[token] if len(token) else np.empty(0, width)
        out[name] = build.texts(codes if repeat is None else np.repeat(codes, repeat), categories)
    return out


class _Pandas:
    def __init__(self) -> None:
        import pandas as pd

        self.pd = pd

    def times(self, ts: Ints) -> Any:
        return self.pd.Series(ts, copy=False).astype("datetime64[us, UTC]")

    def texts(self, codes: NDArray[Any], categories: list[str]) -> Any:
        dtype = self.pd.CategoricalDtype(self.pd.Index(categories, dtype="str"))
        return self.pd.Categorical.from_codes(codes, dtype=dtype, validate=False)

    def sides(self, codes: NDArray[Any]) -> Any:
        return self.texts(codes, [BID, ASK])

    def levels(self, level: NDArray[Any], markers: Ints) -> Any:
        mask = np.zeros(len(level), bool)
        mask[markers] = True
        return self.pd.arrays.IntegerArray(level, mask)

    def floats(self, values: Floats, _markers: Ints | None) -> Any:
        return values

    def frame(self, series: dict[str, Any]) -> pd.DataFrame:
        return self.pd.DataFrame(series, copy=False)


class _Polars:
    def __init__(self) -> None:
        import polars as pl

        self.pl = pl

    def times(self, ts: Ints) -> Any:
        return self.pl.Series(ts).cast(self.pl.Datetime("us", "UTC"))

    def texts(self, codes: NDArray[Any], categories: list[str]) -> Any:
        # The last entry is the null of code -1.
        lookup = self.pl.Series([*categories, None], dtype=self.pl.Categorical)
        starts = group_starts(codes)
        if not 0 < len(starts) <= len(codes) // _LONG_RUN:
            return lookup.gather(codes.astype(np.int64) % len(lookup))
        lengths = np.diff(np.append(starts, len(codes))).tolist()
        runs = zip(codes[starts].tolist(), lengths, strict=True)
        return self.pl.concat([lookup.new_from_index(c % len(lookup), n) for c, n in runs], rechunk=True)

    def sides(self, codes: NDArray[Any]) -> Any:
        return from_codes(codes.view(np.uint8), self.pl.Enum([BID, ASK]))

    def levels(self, level: NDArray[Any], markers: Ints) -> Any:
        return self._null(self.pl.Series(level), markers)

    def floats(self, values: Floats, markers: Ints | None) -> Any:
        out = self.pl.Series(np.ascontiguousarray(values))
        return out.fill_nan(None) if markers is None else self._null(out, markers)

    def _null(self, series: pl.Series, markers: Ints) -> pl.Series:
        return series.scatter(markers.astype(np.uint32), None) if len(markers) else series

    def frame(self, series: dict[str, Any]) -> pl.DataFrame:
        return self.pl.DataFrame(series)


def to_columns(view: View, frame: Any, *, lookup: bool = False) -> Data:
    """Columns of a frame of any kind, in tidy order, with its further numeric columns; marker rows become empty sides.

    Missing id columns stay None, with ``lookup`` missing ids too, to be looked up. NotTidyError if a column is missing
    or of the wrong type, or rows contradict each other.
    """
    from marketdata.tidy.backends import in_memory, source_of
    from marketdata.tidy.table import EagerTable

    source, spec = source_of(in_memory(frame)), VIEWS[view]
    check_names(source.names)
    nest = view == "books" and set(LISTS) <= set(source.names) and "level" not in source.names
    require(f"A {view} frame", ("ts", *(("token_id", *LISTS) if nest else spec.required)), source.names)
    table = EagerTable(source, "nested" if nest else view)
    table.keys = [c for c in table.keys if c in spec.ids]
    if lookup:
        table.identity = ID_COLUMNS
    if nest:
        return _of_lists(nested.in_order(table)).sort()
    if spec.columns is Books:
        return _snapshots(table.book()).sort()
    numbers = [c for c in source.names if c in spec.names or (c not in ("ts", *ID_COLUMNS) and table.is_number(c))]
    table = table.in_order(numbers)
    values = {c: table.array(c) for c in numbers}
    none = np.full(len(table), np.nan)
    whole = {c: values.get(c, none) for c in (*spec.names, *values)}
    out = Series((), np.zeros(1, np.int64), table.array("ts"), whole)
    return out.of_codes(*tokens_of_rows(table)).sort()


def tokens_of_rows(table: Any) -> tuple[tuple[Token, ...], Codes]:
    """The tokens of a table that is in order, and the number of that of each row."""
    heads = [table.texts(c, table.groups) for c in table.keys]
    ids = (dict(zip(table.keys, head, strict=True)) for head in zip(*heads, strict=True))
    tokens = tuple(Token(**{**one, "market_id": one.get("market_id") or ""}) for one in ids)
    return tokens, table.token_numbers.astype(np.int32)


def _of_lists(table: Any) -> Books:
    counts = nested.level_counts(table)
    price, size = nested.level_values(table, counts, counts)
    return books_of(table, table.array("ts"), counts, price, size)


def books_of(table: Any, ts: Ints, counts: Ints, price: Floats, size: Floats, rows: Ints | None = None) -> Books:
    """Books of levels in one piece, of the tokens of some rows (None: all) of a table that is in order."""
    tokens, token = tokens_of_rows(table)
    books = Books.of_levels((), np.zeros(1, np.int64), ts, counts, price, size)
    return books.of_codes(tokens, token if rows is None else token[rows])


def _snapshots(table: Any) -> Books:
    starts, asks, ends = table.sides
    price = table.array("price")
    held = ~np.isnan(price)
    before = np.concatenate(([0], np.cumsum(held)))
    counts = np.column_stack((before[asks] - before[starts], before[ends] - before[asks])).ravel()
    return books_of(table, table.array("ts")[starts], counts, price[held], table.array("size")[held], starts)
