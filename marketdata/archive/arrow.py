"""Points as Arrow rows, one per snapshot or point, and back to columns without an object per level."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marketdata.errors import ArchiveCorruptError, ArchiveError
from marketdata.points.columns import Books, Codes, Data, Floats, Ints, Series, Token, Trades, interleave
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import ID_COLUMNS, LISTS
from marketdata.points.views import VIEWS, FieldType, View, empty, view_of

TS = pa.timestamp("us", "UTC")
_LEVELS = pa.list_(pa.field("element", pa.float64()))
_SIDES = ("bid", "ask")
_TYPES = {"text": pa.string(), "number": pa.float64(), "flag": pa.bool_()}
_NUMBERS = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)


SCHEMAS: dict[View, pa.Schema] = {
    view: pa.schema({
        **dict.fromkeys(spec.ids, pa.string()), "ts": TS,
        **(
            dict.fromkeys(LISTS, _LEVELS) if spec.columns is Books
            else {name: _TYPES[spec.type_of(name)] for name in spec.names}
        ),
    })
    for view, spec in VIEWS.items()
}  # fmt: skip


def to_table(columns: Data) -> pa.Table:
    """Rows as the table of the view has them; a missing number is null, an empty side an empty list."""
    spec = VIEWS[view_of(columns)]
    data = {name: _names(columns, name) for name in spec.ids}
    data["ts"] = pa.array(columns.ts, type=pa.int64()).cast(TS)
    further = {name: _array(values, spec.type_of(name)) for name, values in columns.values.items()}
    if not isinstance(columns, Books):
        return pa.table(data | further)
    for name, side in (("bid", columns.bids), ("ask", columns.asks)):
        offsets, levels = pa.array(np.append(0, np.cumsum(side.counts)).astype(np.int32)), side.levels
        for what, values in (("price", side.price), ("size", side.size)):
            data[f"{name}_{what}"] = pa.ListArray.from_arrays(offsets, pa.array(values[levels]), type=_LEVELS)
    return pa.table(data | further)


def _array(values: NDArray[Any], kind: FieldType) -> pa.Array:
    """Values as a column; None and NaN are null."""
    if kind == "flag":
        return pa.array(values == 1, pa.bool_(), mask=np.isnan(values))
    return pa.array(values, _TYPES[kind], from_pandas=True)


def _names(columns: Data, attribute: str) -> pa.Array:
    values: dict[Any, int] = {}
    codes = np.array([values.setdefault(getattr(t, attribute), len(values)) for t in columns.tokens], dtype=np.int32)
    rows = codes[columns.token] if len(columns.tokens) else np.empty(0, np.int32)
    mask = rows == values[None] if None in values else None
    names = pa.array(["" if name is None else name for name in values], type=pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(rows, mask=mask), names)


def from_tables(view: View, tables: Iterable[pa.Table], *, of_one_market: bool = False) -> Data:
    """The rows of all tables as columns, table after table.

    A further column that is null in every row belongs to another market and is left out, unless there is one market.
    """
    chunks = [batch for table in tables for batch in table.to_batches() if batch.num_rows]
    # Many small chunks become one, as each costs some calls.
    are_small = len(chunks) > 16 and sum(chunk.num_rows for chunk in chunks) <= 4096 * len(chunks)
    if are_small and all(chunk.schema == chunks[0].schema for chunk in chunks):
        chunks = pa.Table.from_batches(chunks).unify_dictionaries().combine_chunks().to_batches()
    if not chunks:
        return empty(view)
    tokens, codes = tokens_of(view, chunks)
    ts = np.concatenate([chunk.column("ts").view(pa.int64()).to_numpy(zero_copy_only=False) for chunk in chunks])
    if VIEWS[view].columns is Books:
        known = _known_values(view, chunks)
        out: Data = Books.of_levels((), np.zeros(1, np.int64), ts, *_levels(chunks), values=known)
    elif VIEWS[view].columns is Trades:
        out = Trades((), np.zeros(1, np.int64), ts, _print_values(chunks))
    else:
        standard = VIEWS[view].names
        names = dict.fromkeys(n for c in chunks for n in c.schema.names if n not in (*ID_COLUMNS, "ts"))
        series = {name: _values(chunks, name) for name in (*standard, *names)}
        filled = {n: v for n, v in series.items() if of_one_market or n in standard or not np.isnan(v).all()}
        out = Series((), np.zeros(1, np.int64), ts, filled)
    return out.grouped(tokens, codes)


def _values(chunks: Sequence[pa.RecordBatch], name: str) -> Floats:
    for chunk in chunks:
        kind = chunk.schema.field(name).type if name in chunk.schema.names else pa.null()
        if not (any(rule(kind) for rule in _NUMBERS) or pa.types.is_boolean(kind)):
            raise ArchiveError(
                f"The archive has a column {name!r} of {kind}, which another program wrote; an archive has numbers "
                "beside times and ids. Drop that column with the program that wrote it."
            )
    parts = [
        c.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        if name in c.schema.names
        else np.full(c.num_rows, np.nan)
        for c in chunks
    ]
    return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)


def _known_values(view: View, chunks: Sequence[pa.RecordBatch]) -> dict[str, NDArray[Any]]:
    """The further columns of a view that some row has."""
    return {
        name: _texts(chunks, name) if kind == "text" else _values(chunks, name)
        for name, kind in VIEWS[view].known.items()
        if any(name in c.schema.names and c.column(name).null_count < c.num_rows for c in chunks)
    }


def _print_values(chunks: Sequence[pa.RecordBatch]) -> dict[str, NDArray[Any]]:
    """The values of prints: those of all, those that are known of some, and further numbers that some have."""
    spec = VIEWS["trades"]
    values = {name: _texts(chunks, name) if name == "side" else _values(chunks, name) for name in spec.names}
    values |= _known_values("trades", chunks)
    standard = {"ts", *ID_COLUMNS, *spec.names, *spec.known}
    further = {name: _values(chunks, name) for c in chunks for name in c.schema.names if name not in standard}
    return values | {name: numbers for name, numbers in further.items() if not np.isnan(numbers).all()}


def _texts(chunks: Sequence[pa.RecordBatch], name: str) -> NDArray[Any]:
    """A column of texts, None where one is missing; equal texts of a dictionary are one object."""
    parts = []
    for chunk in chunks:
        if name not in chunk.schema.names:
            parts.append(np.full(chunk.num_rows, None, object))
        elif pa.types.is_dictionary((column := chunk.column(name)).type):
            codes, names = dictionary_of(column)
            parts.append(np.array(names, object)[codes])
        else:
            parts.append(column.to_numpy(zero_copy_only=False))
    return np.concatenate(parts)


def tokens_of(view: View, batches: Iterable[pa.RecordBatch]) -> tuple[tuple[Token, ...], Codes]:
    """The tokens of rows, and the index of each row's token; rows are sorted, so runs of equal ids are few."""
    index: dict[Token, int] = {}
    parts = [np.empty(0, np.int32)]
    for batch in batches:
        arrays = [dictionary_of(batch.column(name)) for name in VIEWS[view].ids]
        starts = group_starts(*(codes for codes, _ in arrays))
        ids = [[names[code] for code in codes[starts].tolist()] for codes, names in arrays]
        token_codes = [index.setdefault(token, len(index)) for token in map(Token, *ids)]
        parts.append(np.repeat(np.array(token_codes, np.int32), run_ends(starts, batch.num_rows) - starts))
    return tuple(index), np.concatenate(parts)


def dictionary_of(array: pa.Array) -> tuple[Any, list[str | None]]:
    """Codes and names. The code of a null is the last one, and its name is None."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(len(names)) if encoded.null_count else encoded.indices
    return codes.to_numpy(zero_copy_only=False), [*names, None]


def _levels(chunks: Sequence[pa.RecordBatch]) -> tuple[Ints, Floats, Floats]:
    """Numbers, prices and sizes of levels as `Books.of_levels` takes them, each written once."""
    every = [np.stack([_counts(chunk, side) for side in _SIDES], axis=1).ravel() for chunk in chunks]
    ends = np.cumsum([counts.sum() for counts in every])
    levels = np.empty((2, ends[-1]))
    for chunk, counts, end in zip(chunks, every, ends.tolist(), strict=True):
        for out, what in zip(levels, ("price", "size"), strict=True):
            bids, asks = (chunk.column(f"{side}_{what}").flatten().to_numpy(zero_copy_only=False) for side in _SIDES)
            interleave(counts, bids, asks, out[end - counts.sum() : end])
    return np.concatenate(every), levels[0], levels[1]


def _counts(chunk: pa.RecordBatch, side: str) -> Ints:
    prices, sizes = (
        chunk.column(f"{side}_{what}").value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        for what in ("price", "size")
    )
    if not np.array_equal(prices, sizes):
        raise ArchiveCorruptError(f"{side} sizes are not as many as {side} prices in a stored book.")
    return prices.astype(np.int64)  # type: ignore[no-any-return]
