"""Adds files of others to an archive, or to a temporary one that tells what an import would do."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marketdata.archive import imports, ingest
from marketdata.archive.import_writer import Trial, Writer
from marketdata.archive.store import ArchiveStore
from marketdata.recordings.changes import Rebuilder
from marketdata.recordings.files import ReadOptions
from marketdata.recordings.wanted import EVERYTHING, Selection

if TYPE_CHECKING:
    import polars as pl


class RebuildRule(NamedTuple):
    """Rules for books from messages: longest gaps [microseconds], and whether a bucket without a message has one."""

    max_gap: int
    max_age: int
    unchanged: bool
    max_disagreement: float


def add_files(
    store: ArchiveStore,
    files: Mapping[Path, bool],
    options: ReadOptions,
    rule: RebuildRule,
    markets: Any = None,
    *,
    selection: Selection = EVERYTHING,
    dry_run: bool = False,
    progress: bool | None = None,
) -> pl.DataFrame:
    """The report of `Archive.add_files`; with ``dry_run`` the points go to a folder that is removed."""
    if isinstance(markets, str | os.PathLike):
        markets = imports.market_records(Path(markets))

    def imported(writer: Writer) -> pl.DataFrame:
        ingest.add_records(writer.store, markets)
        feed = Rebuilder(writer.store.base, rule.max_gap, rule.max_age, rule.unchanged)
        most = rule.max_disagreement
        return imports.add_files(
            writer, files, options, feed, max_disagreement=most, progress=progress, selection=selection
        )

    if not dry_run:
        return imported(Writer(store))
    with tempfile.TemporaryDirectory() as folder:
        scratch = ArchiveStore(folder, None, base=store.base)
        records = {kind: catalog.records() for kind, catalog in store.catalog.items()}
        ingest.add_records(scratch, **{kind: rows for kind, rows in records.items() if rows})
        return imported(Trial(scratch, store))
