"""Files on web servers that answer ranges of bytes: what they are, and the row groups of Parquet in them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from marketdata.errors import ContractError, NetworkError, not_installed

# A Parquet file ends with its metadata, their length in four bytes, and these letters.
_MAGIC, _TAIL = b"PAR1", 8


class Remote(NamedTuple):
    """A file at an address: its size, and the text by which a server tells versions of it apart."""

    url: str
    size: int
    etag: str


class Ranges:
    """Files that are read in ranges, over HTTP."""

    def __init__(self) -> None:
        try:
            import aiohttp  # noqa: F401
            from fsspec.implementations.http import HTTPFileSystem
        except ImportError as problem:
            raise not_installed("archive.add_recording", problem.name or "fsspec", "recordings") from None
        self._files: Any = HTTPFileSystem(skip_instance_cache=True, use_listings_cache=False)

    def about(self, url: str) -> Remote | None:
        """The file at an address; None if there is none. ContractError if its server has no ranges."""
        with _network(url):
            try:
                found = self._files.info(url)
            except FileNotFoundError:
                return None
        if found.get("size") is None or not found.get("partial", True):
            raise ContractError(f"{url} has no size, or its server answers no ranges: download the file as a whole.")
        return Remote(url, int(found["size"]), str(found.get("ETag") or f"size-{found['size']}"))

    @contextmanager
    def parquet(self, remote: Remote) -> Iterator[Any]:
        """The Parquet file; its parts are requested as they are read, and nothing twice."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with _network(remote.url), self._files.open(remote.url, cache_type="none", size=remote.size) as file:
            try:
                # The library would read 64 kB for the end of the file, which is mostly shorter.
                file.seek(max(0, remote.size - _TAIL))
                tail = file.read(_TAIL)
                length = int.from_bytes(tail[:4], "little")
                file.seek(max(0, remote.size - _TAIL - length))
                metadata = pq.read_metadata(io.BytesIO(_MAGIC + file.read(length) + tail))
                yield pq.ParquetFile(file, metadata=metadata, pre_buffer=True)
            except pa.ArrowInvalid as problem:
                raise ContractError(f"{remote.url} is no whole Parquet file: {problem}.") from problem


@contextmanager
def _network(url: str) -> Iterator[None]:
    """Failures of the connection as NetworkError."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientError, OSError, ValueError, TimeoutError) as problem:
        raise NetworkError(
            f"{url} cannot be read: {problem}. What was fetched is kept; the same call goes on."
        ) from problem
