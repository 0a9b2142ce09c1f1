"""The files that paths, folders and patterns name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from marketdata.adapters.recordings.files import SUFFIXES, RecordingFile
from marketdata.errors import ConfigError


class Paths(NamedTuple):
    """Files, each once; ``named`` has the files that a path names, not a folder or a pattern."""

    files: list[Path]
    named: set[Path]


def files_of(paths: Any) -> Paths:
    """The files of paths, folders and patterns; ConfigError for none, or for one that is not there."""
    given = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    refused = [path for path in given if not isinstance(path, str | os.PathLike)] if given else [paths]
    if refused:
        problem = f"{'is refused' if given else 'names nothing'}; pass paths of files and folders, at least one."
        raise ConfigError(problem, argument="paths", value=refused[0])
    files, named = list[Path](), set[Path]()
    for path in map(Path, given):
        if path.is_dir():
            files += _in_folder(path)
        elif glob.has_magic(str(path)) and not path.exists():
            matches = [p for p in map(Path, glob.iglob(str(path), recursive=True)) if p.is_file()]  # noqa: PTH207  of any folder
            if not matches:
                raise ConfigError(f"{str(path)!r} matches no file.")
            files += sorted(matches, key=_by_numbers)
        elif not path.is_file():
            raise ConfigError(f"{str(path)!r} does not exist.")
        else:
            files.append(path)
            named.add(path)
    return Paths(list(dict.fromkeys(files)), named)


def _in_folder(folder: Path) -> list[Path]:
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    visible = [folder / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts)]
    if not any(RecordingFile(path).form for path in visible):
        raise ConfigError(f"{str(folder)!r} has no file whose name ends in these: {SUFFIXES}.")
    return sorted(visible, key=_by_numbers)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """The order of names in which numbers count by their value."""
    return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]
