"""Rows of an archive as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marketdata.adapters.polars import write_file
from marketdata.errors import ArchiveError

if TYPE_CHECKING:
    import polars as pl


def write(rows: pl.LazyFrame, path: Path) -> None:
    """Write rows to a file; see `write_file`."""
    import polars as pl

    try:
        write_file(rows, path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise ArchiveError(f"Writing {path.name!r} failed: {problem}. The archive is as it was.") from problem
