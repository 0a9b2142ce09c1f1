"""Explains what an import would make of a file: roles of columns, their evidence, units, and the first rows."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.changes import EVENTS
from marketdata.recordings.files import ReadOptions, RecordingFile, files_of, refuse_one_token, tables_of
from marketdata.recordings.format import format_of, readable
from marketdata.recordings.table import Batch, Table

_ROWS = 5


def explained(paths: list[str], options: ReadOptions) -> Iterator[tuple[str, ConfigError | None]]:
    """A text for each file, with the error of one that is refused; the text says why."""
    files = files_of(paths)
    refuse_one_token(files, options)
    for path in files:
        for file in tables_of(path, options):
            yield _explained(file)


def _explained(file: RecordingFile) -> tuple[str, ConfigError | None]:
    table: Table | None = None
    try:
        table = Table(readable(file))
        chosen = format_of(table)
        # A recording may have prints alone.
        readers = [read for read in (chosen.read, chosen.trades) if read is not None]
        batches = (batch for read in readers for batch in read(table))
        batch = next((b for b in batches if any(map(len, (b.changes, *b.frames.values())))), Batch())
    except ConfigError as problem:
        return "\n".join([*((*_roles(table), *_steps(table)) if table else ()), problem.problem]), problem
    head = f"{file.name}: {chosen.name}, {chosen.description}"
    notes = [f"note: {note}" for note in dict.fromkeys(batch.notes)]
    left_out = [f"left out of its first part: {count:,} {reason}" for reason, count in batch.left_out.items()]
    return "\n".join([head, *_roles(table), *_steps(table), *notes, *left_out, *_stored(batch)]), None


def _roles(table: Table) -> Iterator[str]:
    """Each column with its role, or why it has none."""
    known = {meaning.column for meaning in table.meanings if meaning.taken}
    for meaning in table.meanings:
        if not meaning.taken and meaning.column in known:
            continue
        taken = f"is {meaning.role}" if meaning.taken else f"is no {meaning.role}, which has"
        yield f"  {meaning.column} {taken} ({meaning.evidence})"
    if table.others:
        yield f"  without a role: {', '.join(table.others[:20])}"


def _steps(table: Table) -> Iterator[str]:
    """What each step found in the table."""
    for step, note in table.found.items():
        yield f"{step.replace('_', ' ')}: {note}"
    for column, unit in table.units.items():
        yield f"unit: {column} is in {unit.name}"


def _stored(batch: Batch) -> Iterator[str]:
    """The first rows as they would be stored: points and records as they are, books as their levels."""
    changes = batch.changes
    if len(changes):
        some = changes.take(slice(0, _ROWS))
        tokens = [changes.tokens[code] for code in some.token.tolist()]
        yield str(pl.DataFrame({
            "ts": pl.Series(some.ts).cast(pl.Datetime("us", "UTC")),
            "market_id": [token.market_id for token in tokens], "token_id": [token.token_id for token in tokens],
            "event": [EVENTS[event] for event in some.event.tolist()],
            "side": ["ask" if side else "bid" for side in some.side.tolist()], "price": some.price, "size": some.size,
        }))  # fmt: skip
    for kind, rows in batch.frames.items():
        is_frame = isinstance(rows, pl.DataFrame)
        shown = rows if is_frame else pl.DataFrame(rows[:_ROWS], infer_schema_length=None, strict=False)
        yield f"{kind}, the first rows as stored:\n{shown.head(_ROWS)}"
    if "trades" in batch.frames:
        yield "An archive stores no trades: md.read_trades reads them."
