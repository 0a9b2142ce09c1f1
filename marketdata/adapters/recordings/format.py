"""The formats of files, one module each in `formats`, and the choice among them by what the columns of a file prove."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from marketdata.adapters.recordings import formats
from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import first
from marketdata.adapters.recordings.files import SUFFIXES, RecordingFile
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice

FileKind = Literal["books", "prices", "metrics", "trades", "markets", "events", "series"]


class Reading(NamedTuple):
    """How to read: by which clock, "timestamp", "received" or a column, and which fields of snapshots to keep."""

    clock: str = "timestamp"
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A shape of files.

    ``fits`` gives a score: how many columns of the file speak for the format, 0 where one that it needs is missing.
    ``read`` gives the rows in parts, ``trades`` the trade prints among them, if there can be some. ``changes``: the
    file has every change, so that a book is valid until the next one; else each book is that of its own moment.
    ``row_per_level``: the rows of a snapshot are its levels.
    """

    name: str
    kind: FileKind
    description: str
    needs: str
    fits: Callable[[RecordingFile], int]
    read: Callable[[RecordingFile, Reading], Iterator[Batch]]
    trades: Callable[[RecordingFile, Reading], Iterator[Batch]] | None = None
    changes: bool = False
    row_per_level: bool = False


def having(*needed: tuple[str, ...], without: tuple[str, ...] = ()) -> Callable[[RecordingFile], int]:
    """A score: one for each group of names of which a file has one; 0 if it has none of a group, or one ``without``."""

    def score(file: RecordingFile) -> int:
        is_there = [first(file.columns, names) is not None for names in needed]
        return len(needed) if all(is_there) and first(file.columns, without) is None else 0

    return score


@cache
def all_formats() -> Mapping[str, Format]:
    """Every format by its name."""
    modules = (importlib.import_module(f"{formats.__name__}.{m.name}") for m in pkgutil.iter_modules(formats.__path__))
    return {module.FORMAT.name: module.FORMAT for module in modules}


def format_of(file: RecordingFile, name: str | None = None) -> Format:
    """The format of a name, or the one that fits a file best; ConfigError if none fits, or several equally well."""
    if name is not None:
        return all_formats()[choice("format", name, all_formats())]
    if file.form is None:
        raise ConfigError(f"{file.path.name!r} is of another kind; names that end in these are read: {SUFFIXES}.")
    scores = {one.name: one.fits(file) for one in all_formats().values()}
    best = [name for name, score in scores.items() if score == max(scores.values())]
    if max(scores.values()) == 0:
        raise ConfigError(f"{file.path.name!r} has the columns of no known format: {_shown(file)}.{_needs()}")
    if len(best) > 1:
        raise ConfigError(
            f"{file.path.name!r} has the columns of {' and of '.join(best)}: {_shown(file)}. Name one with format= "
            f"(--format).{_needs(best)}"
        )
    return all_formats()[best[0]]


def _shown(file: RecordingFile) -> str:
    return ", ".join(file.columns[:40]) or "a JSON value that is no object"


def _needs(names: list[str] | None = None) -> str:
    lines = [f"\n  {one.name}: {one.needs}" for one in all_formats().values() if names is None or one.name in names]
    return (
        f" Needed are:{''.join(lines)}\nName the columns with columns={{'ts': 'when'}} (--columns ts=when), or the "
        "format with format= (--format)."
    )
