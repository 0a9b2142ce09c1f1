"""Where the files of a table lie: a folder, or an object store through the handler of deltalake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Folder:
    """Data files of one table in a local folder. Written whole, flushed to disk, never changed."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def write(self, name: str, body: memoryview) -> None:
        """Write a new file and make it durable before any commit can name it."""
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root / name
        try:
            with path.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            # The name is ours alone and no commit names it yet, so the torn file can go at once.
            path.unlink(missing_ok=True)
            raise
        self.settle("")

    def settle(self, folder: str) -> None:
        """Make the names in a folder of the table durable."""
        flush(self.root / folder)

    def open(self, name: str) -> Any:
        """A file for reading, as pyarrow takes it."""
        import pyarrow as pa

        return pa.OSFile(str(self.root / name), "rb")

    def delete(self, name: str) -> None:
        """Remove a file that no commit names."""
        (self.root / name).unlink(missing_ok=True)

    def uri(self, name: str) -> str:
        """Address of a file, as engines take it."""
        return str(self.root / name)


class Bucket:
    """Data files of one table in an object store."""

    def __init__(self, root: str, options: dict[str, str] | None) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        self.root = root.rstrip("/")
        self._handler = DeltaStorageHandler(self.root, options)
        self._fs = PyFileSystem(self._handler)

    def write(self, name: str, body: memoryview) -> None:
        """Put a new object."""
        # Not through pyarrow: its streams hand over buffers, and the handler takes bytes only.
        stream: Any = self._handler._handler.open_output_stream(name, None)  # noqa: SLF001
        stream.write(bytes(body))
        stream.close()

    def settle(self, folder: str) -> None:
        """Nothing to do: a put is durable."""

    def open(self, name: str) -> Any:
        """An object for reading, as pyarrow takes it."""
        return self._fs.open_input_file(name)

    def delete(self, name: str) -> None:
        """Remove an object that no commit names."""
        self._fs.delete_file(name)

    def uri(self, name: str) -> str:
        """Address of an object, as engines take it."""
        return f"{self.root}/{name}"


def is_url(location: str) -> bool:
    """Whether a location names an object store rather than a folder."""
    return "://" in location and not location.startswith("file://")


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
