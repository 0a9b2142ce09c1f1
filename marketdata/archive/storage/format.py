"""The version of the format of an archive's tables, in the schema of each, where no other writer removes it."""

from __future__ import annotations

import pyarrow as pa

from marketdata.errors import ArchiveError

# 1: without a mark; coverage has a column content_hash, which is read no more. 2: marked. 3: commits of points have
# notes of their coverage.
FORMAT = 3
# The key of the mark in the metadata of a table's first column.
_KEY = b"marketdata.format"


def marked(schema: pa.Schema, metadata: dict[bytes, bytes] | None = None) -> pa.Schema:
    """The schema of a new table: with this format, and further metadata, at its first column."""
    return schema.set(0, schema.field(0).with_metadata({_KEY: str(FORMAT).encode(), **(metadata or {})}))


def outdated(schema: pa.Schema) -> tuple[str, dict[str, str]] | None:
    """The first column of a table of an earlier format, and the mark that it needs; None if it has it."""
    first = schema.field(0)
    needed = str(FORMAT)
    return None if (first.metadata or {}).get(_KEY) == needed.encode() else (first.name, {_KEY.decode(): needed})


def check(schema: pa.Schema, needed: pa.Schema, uri: str) -> None:
    """ArchiveError if the table is of a later format, or of a layout from before there were formats."""
    found = ((schema.field(0).metadata if len(schema) else None) or {}).get(_KEY, b"1")
    if not found.isdigit() or int(found) > FORMAT:
        raise ArchiveError(
            f"{uri} has format {found.decode(errors='replace')}, written by a later version of marketdata; this one "
            f"reads formats 1 to {FORMAT}. Install the later version: pip install --upgrade prediction-marketdata."
        )
    if lacking := [name for name in needed.names if name not in schema.names]:
        raise ArchiveError(
            f"{uri} has an earlier layout, without the columns {', '.join(lacking)}. Pull into a new one, or "
            "export the points with the version of marketdata that wrote it and import them."
        )
