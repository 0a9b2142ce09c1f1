"""Frames as they came, in one file a connection, which `Archive.add_files` imports."""

from __future__ import annotations

import gzip
from pathlib import Path

from marketdata.errors import ArchiveFullError, ConfigError
from marketdata.stream.connection import Event
from marketdata.times import to_datetime

_EFFORT = 3


class RawFiles:
    """Files of a folder, named by the time at which their connection began.

    A line has a frame with the time of its arrival [microseconds]. The first line of a file says that a connection
    begins, which ends the books of the file before, and the last one that it ended after the frame before it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).expanduser()
        if self._folder.exists() and not self._folder.is_dir():
            raise ConfigError("is no folder.", argument="raw", value=str(folder))
        self._files: dict[int, gzip.GzipFile] = {}
        self._last: dict[int, int] = {}

    def write(self, event: Event) -> None:
        """Write what came on a connection."""
        number, kind, at, body = event
        if number not in self._files:
            self._begin(number, at)
        line = body if kind == "frame" else b'{"type":"pong"}'
        self._put(number, b'{"received_at":%d,"message":%b}\n' % (at, line))
        self._last[number] = max(at, self._last[number])

    def end(self, number: int) -> None:
        """A connection has ended."""
        if number in self._files:
            self._put(number, b'{"received_at":%d,"type":"disconnected"}\n' % self._last[number])
            self._files.pop(number).close()

    def flush(self) -> None:
        """What was written can be read, even after a crash."""
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        """End all files."""
        for number in [*self._files]:
            self.end(number)

    def _begin(self, number: int, at: int) -> None:
        name = f"{to_datetime(at):%Y%m%dT%H%M%S}-{number:06d}.jsonl.gz"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._files[number] = gzip.GzipFile(self._folder / name, "wb", _EFFORT)
        except OSError as problem:
            raise _full(self._folder, problem) from problem
        self._last[number] = at
        self._put(number, b'{"received_at":%d,"type":"connected"}\n' % at)

    def _put(self, number: int, line: bytes) -> None:
        try:
            self._files[number].write(line)
        except OSError as problem:
            raise _full(self._folder, problem) from problem


def _full(folder: Path, problem: OSError) -> ArchiveFullError:
    return ArchiveFullError(f"Writing raw frames to {folder}: {problem.strerror}. What was committed before is intact.")
