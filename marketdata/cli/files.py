"""Frames to and from files that a user names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from marketdata.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from marketdata.archive import Archive

_ORDER = ("markets", "events", "series", "books", "prices", "metrics")
_READ = (".parquet", ".csv", ".ndjson", ".jsonl")
_WRITE = (".parquet", ".csv", ".ndjson")


def load(archive: Archive, folder: Path) -> Iterator[str]:
    """Add every known file of a folder to an archive; says each one.

    Raises
    ------
    ConfigError
        If the folder has none of them.
    """
    found = [path for name in _ORDER for suffix in _READ if (path := folder / (name + suffix)).is_file()]
    if not found:
        names = ", ".join(name + _READ[0] for name in _ORDER)
        raise ConfigError(f"{str(folder)!r} has none of {names} (or {', '.join(_READ[1:])}).")
    for path in found:
        frame = _read(path)
        archive.add(**{path.stem: frame})
        yield f"{path.name}: {len(frame):,} rows"


def _read(path: Path) -> pl.DataFrame:
    import polars as pl

    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    if path.suffix == ".csv":
        texts = [name for name in pl.read_csv(path, n_rows=0).columns if name.endswith(("id", "slug"))]
        frame = pl.read_csv(path, schema_overrides=dict.fromkeys(texts, pl.String), infer_schema_length=None)
    else:
        frame = pl.read_ndjson(path, infer_schema_length=None)
    if frame.schema.get("ts") == pl.String:
        frame = frame.with_columns(pl.col("ts").str.to_datetime(time_unit="us", time_zone="UTC"))
    return frame


def writable(path: Path) -> None:
    """Refuse a file that could not be written, before what goes into it is fetched.

    Raises
    ------
    ConfigError
        If the end is not known, there is no such folder, it is a folder itself, or this user may not write there.
    """
    named(path, _WRITE)
    if not path.parent.is_dir():
        raise ConfigError(f"--out {str(path)!r}: there is no folder {str(path.parent)!r}; make it first.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"--out {str(path)!r} can not be written: its permissions do not allow it to this user.")


def named(path: Path, ends: tuple[str, ...]) -> None:
    """Refuse a name that ends otherwise, or is a folder's.

    Raises
    ------
    ConfigError
        Then.
    """
    if path.suffix not in ends:
        raise ConfigError(f"--out {path.name!r}: allowed are names that end in {', '.join(ends)}.")
    if path.is_dir():
        raise ConfigError(f"--out {str(path)!r} is a folder; give the name of a file.")


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame; the name's end, which `writable` knows, says how."""
    import polars as pl

    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".csv":
        lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
        frame.drop(lists).write_csv(path)
    else:
        frame.write_ndjson(path)
