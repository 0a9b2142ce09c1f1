"""The table of one view: read points of a market, replace points of a range."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from marketdata.archive.files import DataFile
from marketdata.archive.layout import from_tables, level_weights, to_table
from marketdata.archive.table import State, Table
from marketdata.times import Range
from marketdata.wire.columns import AnyColumns, BookColumns, View

ALL_TIME = Range(-(2**61), 2**61)
_SLICES = 16


def lock_of(market_id: str) -> str:
    """The key that writers of a market share; 1024 of them bound the size of the log."""
    return f"m{int.from_bytes(hashlib.blake2b(market_id.encode(), digest_size=2).digest(), 'big') % 1024}"


def read(
    table: Table,
    view: View,
    market_id: str | None,
    wanted: Range | None = None,
    token_id: str | None = None,
    *,
    state: State | None = None,
) -> AnyColumns:
    """Stored points of one market (None: of all) with start <= ts < end, in tidy order."""
    wanted = wanted or ALL_TIME
    found = []
    for file in (state or table.state()).files:
        if not file.may_hold(market_id, wanted.start, wanted.end):
            continue
        groups = table.footer(file).groups(market_id, wanted.start, wanted.end)
        if groups:
            rows = table.read(file, groups)
            found.extend(select(rows, market_id, wanted, token_id))
    return from_tables(view, found).sort()


def select(rows: pa.Table, market_id: str | None, wanted: Range, token_id: str | None = None) -> list[pa.Table]:
    """The rows that are meant. They are sorted, so they are a few slices, which cost no copy."""
    out = []
    for batch in rows.to_batches():
        ts = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
        mask = (ts >= wanted.start) & (ts < wanted.end)
        if market_id is not None:
            mask &= _equal(batch.column("market_id"), market_id)
        if token_id is not None:
            mask &= _equal(batch.column("token_id"), token_id)
        if mask.all():
            out.append(pa.Table.from_batches([batch]))
            continue
        edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
        runs = list(zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True))
        if len(runs) <= _SLICES:
            out.extend(pa.Table.from_batches([batch.slice(a, b - a)]) for a, b in runs)
        else:
            out.append(pa.Table.from_batches([batch.filter(pa.array(mask))]))
    return out


def _equal(array: pa.Array, name: str) -> Any:
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.isin(codes, [i for i, n in enumerate(names) if n == name])


def replace(table: Table, view: View, columns: AnyColumns, ranges: Mapping[str, Range]) -> dict[str, int]:
    """Make ``columns`` the only points of the given range of each market, in one commit.

    Returns
    -------
    dict
        For each market a number that rises with every replacement of any of its ranges.

    Raises
    ------
    ArchiveBusyError
        If others kept writing the same markets.
    ArchiveFullError
        If there is no room; nothing is changed then.
    """
    table.create()
    adds = []
    if len(columns):
        rows = to_table(columns)
        known = set(table.schema.names)
        new = [pa.field(n, pa.float64()) for n in rows.schema.names if n not in known]
        if new:
            table.add_columns(new)
        adds = table.put(rows, level_weights(rows, view))
    rest: list[Any] = []

    def plan(state: State) -> tuple[Sequence[Any], Iterable[DataFile]] | None:
        for stale in rest:
            table.store.delete(stale.path)
        rest.clear()
        drops = []
        for file, kept in _touched(table, state, ranges):
            drops.append(file)
            if kept.num_rows:
                rest.extend(table.put(kept, level_weights(kept, view)))
        return ([*adds, *rest], drops) if adds or drops else None

    locks = {market: lock_of(market) for market in ranges}
    counters = table.commit(plan, locks.values())
    return {market: counters[lock] for market, lock in locks.items()}


def _touched(table: Table, state: State, ranges: Mapping[str, Range]) -> Iterable[tuple[DataFile, pa.Table]]:
    """Files that hold replaced rows, with the rows that stay."""
    markets = sorted(ranges)
    for file in state.files:
        low = 0 if file.market_min is None else bisect_left(markets, file.market_min)
        high = len(markets) if file.market_max is None else bisect_right(markets, file.market_max)
        near = [m for m in markets[low:high] if file.may_hold(m, ranges[m].start, ranges[m].end)]
        if not near:
            continue
        footer = table.footer(file)
        if not any(footer.groups(m, ranges[m].start, ranges[m].end) for m in near):
            continue
        rows = table.read(file)
        gone = _inside(rows, {m: ranges[m] for m in near})
        if gone.any():
            yield file, rows.filter(pa.array(~gone))


def _inside(rows: pa.Table, ranges: Mapping[str, Range]) -> Any:
    parts = []
    for batch in rows.to_batches():
        array = batch.column("market_id")
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        limits = [ranges.get(name, Range(0, 0)) for name in encoded.dictionary.to_pylist()]
        starts, ends = np.array(limits, dtype=np.int64).reshape(-1, 2).T
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        ts = batch.column("ts").cast(pa.int64()).to_numpy(zero_copy_only=False)
        parts.append((ts >= starts[codes]) & (ts < ends[codes]))
    return np.concatenate(parts) if parts else np.empty(0, bool)


def by_market(columns: AnyColumns) -> dict[str, AnyColumns]:
    """Sorted columns cut where the market changes; no copies."""
    if not len(columns):
        return {}
    names = [t.market_id for t in columns.tokens]
    first = np.array([i == 0 or names[i] != names[i - 1] for i in range(len(names))])
    group = np.cumsum(first)[columns.token]
    edges = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(columns)]
    ends = np.concatenate(([0], np.cumsum(columns.counts))) if isinstance(columns, BookColumns) else None
    return {names[columns.token[a]]: _rows(columns, a, b, ends) for a, b in itertools.pairwise(edges)}


def _rows(columns: AnyColumns, a: int, b: int, ends: Any) -> AnyColumns:
    if isinstance(columns, BookColumns):
        levels = columns.levels[ends[2 * a] : ends[2 * b]]
        return BookColumns(columns.tokens, columns.token[a:b], columns.ts[a:b], columns.counts[2 * a : 2 * b], levels)
    values = {k: v[a:b] for k, v in columns.values.items()}
    return columns.with_values(columns.tokens, columns.token[a:b], columns.ts[a:b], values)
