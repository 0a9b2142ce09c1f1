"""A commit log that is damaged or gone, made anew from the data files.

Every data file proves itself, so the rows are safe; what only the log knew is which files were replaced by others.
What is left of the log still tells most of it. Where two files hold the same point the newer file counts, and the
content hashes of the coverage then prove every range: what is not as it was claimed becomes missing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marketdata.archive import faults, points
from marketdata.archive.coverage import Claim, CoverageState
from marketdata.archive.files import OURS, DataFile, statistics
from marketdata.archive.holdings import Holdings
from marketdata.archive.layout import from_tables
from marketdata.archive.storage import Folder, flush
from marketdata.archive.table import Table
from marketdata.errors import ArchiveCorruptError, ArchiveError
from marketdata.resolution import Resolution
from marketdata.times import Range
from marketdata.wire.columns import VIEWS, AnyColumns, View, concat

_LOG = "_delta_log"
_ALL = 2**62


def rebuild(holdings: Holdings) -> list[str]:
    """Make the damaged commit logs of an archive anew; the names of the tables that had one.

    Raises
    ------
    ArchiveError
        If the archive lies in an object store.
    ArchiveFullError
        If there is no room or no right to write.
    """
    broken = []
    for name, table in holdings.tables.items():
        table.reopen()
        table.state()
        if table.damage is not None:
            broken.append(name)
    if broken and any(holdings.tables[name].remote for name in broken):
        raise ArchiveError("A commit log in an object store is not made anew: bring back an older version of its keys.")
    # Coverage first: its claims carry the counters that the logs of the points had.
    for name in sorted(broken, key=lambda name: name != "coverage"):
        table = holdings.tables[name]
        some = _candidates(table)
        if name in holdings.catalog:
            some = some[-1:]  # every commit writes all records
        with faults.writing(f"Rebuilding {table.uri}"):
            _new_log(table, some, _counters(holdings, name))
        if name in VIEWS:
            _settle_doubles(holdings.points[name], name, some)
    for view in VIEWS:
        _claim_what_nobody_claims(holdings, view)
    return broken


def _candidates(table: Table) -> list[tuple[DataFile, str, Any]]:
    """Readable data files that no readable commit has dropped, oldest first, each with its statistics and schema."""
    gone = set(_dropped(Path(table.uri)))
    paths = [p for p in Path(table.uri).iterdir() if OURS.fullmatch(p.name) and not p.is_symlink()]
    out = []
    for path in sorted(paths, key=lambda p: (p.stat().st_mtime_ns, p.name)):
        if path.name in gone:
            continue
        file = DataFile(path.name, path.stat().st_size, -1, None, None, -_ALL, _ALL)
        try:
            rows = table.read(file)
        except ArchiveCorruptError:
            continue  # its ranges will be found missing
        out.append((file, statistics(rows), rows.schema))
    return out


def _dropped(root: Path) -> Iterator[str]:
    """Names of the files that commits dropped, as far as commits can be read; logs that were set aside count too."""
    import pyarrow.parquet as pq

    for path in root.glob(f"{_LOG}*/*.json"):
        for line in path.read_bytes().splitlines():
            try:
                yield json.loads(line)["remove"]["path"]
            except (ValueError, KeyError, TypeError):
                continue
    for path in root.glob(f"{_LOG}*/*.parquet"):
        try:
            removes = pq.read_table(path, columns=["remove"]).column("remove").to_pylist()
        except Exception:  # noqa: S112  a checkpoint that can not be read tells nothing
            continue
        yield from (one["path"] for one in removes if one)


def _counters(holdings: Holdings, name: str) -> dict[str, int]:
    """Numbers that later claims have to exceed."""
    out: dict[str, int] = {}
    for view, market_id in holdings.ledger.keys() if name in VIEWS else ():
        if view == name:
            lock = points.lock_of(market_id)
            known = [piece.seq for piece in holdings.ledger.pieces(view, market_id)]
            out[lock] = max(out.get(lock, 0), *known)
    return out


def _new_log(table: Table, some: Sequence[tuple[DataFile, str, Any]], counters: dict[str, int]) -> None:
    """Write a log that names these files beside the old one, then put it in its place."""
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    root = Path(table.uri)
    beside = root / "_rebuilt"
    shutil.rmtree(beside, ignore_errors=True)
    fresh = Table(str(beside), table.schema)
    fresh.create()
    fresh.add_columns([field for *_, schema in some for field in schema if field.name not in table.schema.names])
    now = int(time.time() * 1000)
    adds = [AddAction(file.path, file.size, {}, now, True, stats) for file, stats, _ in some]
    properties = CommitProperties(app_transactions=[Transaction(key, count) for key, count in counters.items()])
    fresh.handle.create_write_transaction(adds, "append", fresh.handle.schema(), commit_properties=properties)
    for path in (beside / _LOG).iterdir():
        flush(path)
    if (root / _LOG).exists():
        (root / _LOG).rename(root / f"{_LOG}.damaged-{time.time_ns()}")
    (beside / _LOG).rename(root / _LOG)
    Folder(table.uri).settle("")
    shutil.rmtree(beside)
    table.reopen()


def _settle_doubles(table: Table, view: View, some: Sequence[tuple[DataFile, str, Any]]) -> None:
    """Where files hold the same point, leave the one of the newer file."""
    age = {file.path: n for n, (file, *_) in enumerate(some)}
    files = sorted(table.state().files, key=lambda file: age[file.path])
    for market_id in sorted({name for file in files for name in _markets(table, file)}):
        parts = []
        for file in files:
            if file.may_hold(market_id, -_ALL, _ALL):
                rows = points.select(table.read(file), market_id, points.ALL_TIME)
                parts.append(from_tables(view, rows))
        every = concat([part for part in parts if len(part)])  # type: ignore[type-var]
        newest = _newest(every)
        if len(newest) < len(every):
            rng = Range(int(every.ts.min()), int(every.ts.max()) + Resolution.M1.micros)
            points.replace(table, view, newest, {market_id: rng})


def _newest(every: AnyColumns) -> AnyColumns:
    """The last of equal points, in tidy order."""
    order = np.lexsort((np.arange(len(every)), every.ts, every.token))
    token, ts = every.token[order], every.ts[order]
    last = np.append((np.diff(token) != 0) | (np.diff(ts) != 0), True)
    return every.take(order[last]).sort()


def _markets(table: Table, file: DataFile) -> Iterable[str]:
    import pyarrow.compute as pc

    names: list[str] = pc.unique(table.read(file).column("market_id").cast("string")).to_pylist()
    return names


def _claim_what_nobody_claims(holdings: Holdings, view: View) -> None:
    """Points without any claim are held, but unproven, so that a pull asks for them."""
    table = holdings.points[view]
    for market_id in sorted({name for file in table.state().files for name in _markets(table, file)}):
        if not holdings.ledger.pieces(view, market_id):
            ts = points.read(table, view, market_id).ts
            end = int(ts.max()) + Resolution.M1.micros
            claim = Claim(int(ts.min()), end, CoverageState.UNPROVEN, None, None, 0, 0)
            holdings.ledger.append({(view, market_id): [claim]})
