"""Upkeep: fewer and larger files, no leftovers, and proof that what was written is still there."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from marketdata.archive import faults, points
from marketdata.archive.coverage import Claim, CoverageState
from marketdata.archive.files import OURS, UPKEEP_EFFORT, DataFile
from marketdata.archive.hashing import content_hash
from marketdata.archive.holdings import Holdings
from marketdata.archive.layout import from_tables, level_weights, to_table
from marketdata.archive.table import State, Table
from marketdata.errors import ArchiveCorruptError, ArchiveError
from marketdata.times import Range
from marketdata.wire.columns import VIEWS, View

# About a byte per level: a compacted file has some eight million levels.
FILE_BYTES = 8_000_000
# A file that no commit names yet may belong to a write that is under way.
_UNDER_WAY = 3_600.0


class Damage(NamedTuple):
    """Something that is not as it was written."""

    view: View
    market_id: str
    range: Range
    problem: str


def compact(holdings: Holdings) -> int:
    """Rewrite small files as large ones in tidy order; returns how many files went."""
    gone = 0
    for view in VIEWS:
        table = holdings.points[view]
        if table.state().version < 0:
            continue
        for batch in batches(table.state().files):
            gone += _compact(table, view, batch)
    if holdings.ledger.table.state().version >= 0:
        before = len(holdings.ledger.table.state().files)
        holdings.ledger.compact()
        gone += before - len(holdings.ledger.table.state().files)
    return gone


def batches(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Small files that stand near each other, each batch as large as one file may be."""
    batch: list[DataFile] = []
    size = 0
    for file in sorted(files, key=lambda f: (f.market_min or "", f.ts_min)):
        if file.size > FILE_BYTES // 2:
            continue
        if batch and size + file.size > FILE_BYTES:
            if len(batch) > 1:
                yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if len(batch) > 1:
        yield batch


def _compact(table: Table, view: View, batch: Sequence[DataFile]) -> int:
    columns = from_tables(view, [table.read(file) for file in batch]).sort()
    rows = to_table(columns)
    adds = table.put(rows, level_weights(rows, view), UPKEEP_EFFORT)
    paths = {file.path for file in batch}

    def plan(state: State) -> tuple[Sequence[Any], Iterable[DataFile]] | None:
        here = [file for file in state.files if file.path in paths]
        # Where a writer has replaced one of them meanwhile, its rows are newer than ours.
        return (adds, here) if len(here) == len(batch) else None

    locks = {points.lock_of(token.market_id) for token in columns.tokens}
    version = table.state().version
    table.commit(plan, locks, data_change=False)
    if table.state().version == version:
        for add in adds:
            table.store.delete(add.path)
        return 0
    return len(batch) - len(adds)


def vacuum(holdings: Holdings, retention_hours: float) -> list[str]:
    """Remove files that no version of the last hours names; returns their names."""
    gone = []
    for table in holdings.tables.values():
        if table.handle is None:
            continue
        with faults.writing(f"Vacuuming {table.uri}"):
            gone += table.handle.vacuum(
                retention_hours=int(retention_hours), dry_run=False, enforce_retention_duration=False
            )
            gone += _sweep(table)
    return gone


def _sweep(table: Table) -> list[str]:
    """Remove what writers left that were killed before they committed. Foreign files stay."""
    if table.remote:
        return []
    named = {file.path for file in table.state().files}
    named |= set(table.handle.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False))
    gone = []
    for path in Path(table.uri).iterdir():
        if not OURS.fullmatch(path.name) or path.name in named or path.is_symlink():
            continue
        if time.time() - path.stat().st_mtime > _UNDER_WAY:
            path.unlink(missing_ok=True)
            gone.append(path.name)
    return gone


def verify(holdings: Holdings) -> list[Damage]:
    """Read everything back and compare it with what the coverage says; what is not as it was written."""
    checked = (_check(holdings, view, market_id, piece) for view, market_id, piece in _claims(holdings))
    return [*_unreadable(holdings), *(damage for damage in checked if damage is not None)]


def _claims(holdings: Holdings) -> Iterator[tuple[View, str, Claim]]:
    for view in VIEWS:
        for kind, market_id in holdings.ledger.keys():  # noqa: SIM118  not a dict
            if kind == view:
                for piece in holdings.ledger.pieces(view, market_id):
                    if piece.state != CoverageState.MISSING:
                        yield view, market_id, piece


def _check(holdings: Holdings, view: View, market_id: str, piece: Claim) -> Damage | None:
    try:
        found = points.read(holdings.points[view], view, market_id, piece.range)
    except ArchiveCorruptError as problem:
        return Damage(view, market_id, piece.range, str(problem))
    if piece.rows is not None and len(found) != piece.rows:
        return Damage(view, market_id, piece.range, f"{len(found)} points are held where {piece.rows} were written")
    if piece.digest is not None and content_hash(found) != piece.digest:
        return Damage(view, market_id, piece.range, "the points are not those that were written")
    return None


def _unreadable(holdings: Holdings) -> Iterator[Damage]:
    """Files that can not be read at all, also where no claim leads to them."""
    for view, table in holdings.points.items():
        for file in table.state().files:
            table.forget(file)
            try:
                table.footer(file)
            except ArchiveError as problem:
                span = Range(max(file.ts_min, 0), max(min(file.ts_max, 2**55), 0) + 1)
                yield Damage(view, file.market_min or "", span, str(problem))


def repair(holdings: Holdings) -> list[Damage]:
    """Give up what is damaged: its ranges become missing, so that the next pull or add fills them."""
    damage = verify(holdings)
    for view, table in holdings.points.items():
        for file in table.state().files:
            _salvage(table, view, file)
    for one in damage:
        if one.market_id and holdings.ledger.pieces(one.view, one.market_id):
            _give_up(holdings, one)
    return damage


def _give_up(holdings: Holdings, one: Damage) -> None:
    from marketdata.wire.columns import empty

    holdings.store(one.view, empty(one.view), {one.market_id: one.range}, CoverageState.MISSING)


def _salvage(table: Table, view: View, file: DataFile) -> None:
    """Replace a damaged file by those of its row groups that can still be read."""
    kept: list[pa.Table] = []
    try:
        table.forget(file)
        groups = range(table.footer(file).metadata.num_row_groups)
    except ArchiveCorruptError:
        groups = range(0)
    damaged = len(groups) == 0
    for group in groups:
        try:
            kept.append(table.read(file, [group]))
        except ArchiveCorruptError:
            damaged = True
    if not damaged:
        return
    columns = from_tables(view, kept).sort()
    rows = to_table(columns)
    adds = table.put(rows, level_weights(rows, view)) if len(columns) else []

    def plan(state: State) -> tuple[Sequence[Any], Iterable[DataFile]] | None:
        here = [f for f in state.files if f.path == file.path]
        return (adds, here) if here else None

    table.commit(plan, {points.lock_of(token.market_id) for token in columns.tokens})
