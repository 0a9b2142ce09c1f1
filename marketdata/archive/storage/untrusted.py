"""What an archive of a stranger may hold, refused before a library trusts it.

The log of a table names files anywhere: outside of its folder, behind a link, in another storage. And statistics that
are nested deeply enough end the process that parses them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from marketdata.archive.storage import errors
from marketdata.archive.storage.files import is_url
from marketdata.errors import ArchiveError

_MOST_NESTED = 500  # levels of JSON: an action of a commit has less than ten
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def refuse_links(table: Path) -> None:
    """ArchiveError for a table, or a log, that is a link: what it names is elsewhere."""
    for folder in (table, table / "_delta_log", table / "_coverage"):
        if folder.is_symlink():
            raise _refused(table, f"{folder.name} is a link to another folder")


def refuse_nested(log: Path) -> None:
    """ArchiveError for a log of a local table whose commits, or whose checkpoint, are nested too deeply to parse."""
    for name, body in _unread(log):
        if _depth(body) > _MOST_NESTED:
            raise _refused(log.parent, f"its commit {name} is nested more than {_MOST_NESTED} times")


def refuse_outside(uri: str, paths: Iterable[str]) -> None:
    """ArchiveError for a data file outside of the folder of its table, by its path or by a link."""
    links = set[str]()
    if not is_url(uri):
        with os.scandir(uri) as entries:
            links = {entry.name for entry in entries if entry.is_symlink()}
    for path in paths:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith(("/", "\\")) or _SCHEME.match(path) or ".." in re.split(r"[/\\]", path):
            raise _refused(uri, f"the data file {path[:200]!r} is outside of its folder")
        # An engine of others may write into folders of the table.
        is_link = parts[0] in links or (len(parts) > 1 and any(p.is_symlink() for p in _within(uri, parts)))
        if is_link:
            raise _refused(uri, f"the data file {path[:200]!r} is, or lies behind, a link")


def _within(uri: str, parts: tuple[str, ...]) -> Iterator[Path]:
    if not is_url(uri):
        yield from (Path(uri, *parts[:n]) for n in range(1, len(parts) + 1))


def _unread(log: Path) -> Iterator[tuple[str, bytes]]:
    """The JSON that the library will parse when it opens a table: the last checkpoint's, and of later commits."""
    import pyarrow.parquet as pq

    names = sorted(entry.name for entry in log.iterdir())
    checkpoints = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
    last = max((match[1] for match in checkpoints), default="")
    for match in checkpoints:
        if match[1] == last:
            with errors.parsing(f"The checkpoint {match[0]}"):
                rows = pq.ParquetFile(log / match[0]).read(columns=["add.stats"]).flatten()
                texts = rows["add.stats"].drop_null().to_pylist() if rows.num_columns else ()
            yield match[0], " ".join(texts).encode()
    for name in names:
        match = _COMMIT.fullmatch(name)
        if match and match[1] >= last:
            yield name, (log / name).read_bytes()


def _depth(body: bytes) -> int:
    """How deeply a JSON text is nested, at most: brackets inside texts count too, because statistics are such texts."""
    codes = np.frombuffer(body, np.uint8)
    opening, closing = (np.isin(codes, list(signs)) for signs in (b"[{", b"]}"))
    return int(np.cumsum(opening.astype(np.int32) - closing.astype(np.int32)).max(initial=0))


def _refused(table: object, why: str) -> ArchiveError:
    return ArchiveError(
        f"{table} is not read: {why}. An archive that this package wrote has no such entry.",
        hint="Pull or add the data into a new archive, or ask whoever gave you this one.",
    )
