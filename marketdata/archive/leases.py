"""One fetcher per market and view at a time, in a folder shared by processes of one machine.

Commits need no lease: they are safe without. A lease only keeps two processes from fetching the same twice.
The kernel frees it when its owner ends, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from marketdata.archive import faults
from marketdata.archive.storage import is_url
from marketdata.errors import ArchiveBusyError, ArchiveError

FOLDER = "_leases"
_STEP = 0.05


@contextlib.contextmanager
def lease(root: str, view: str, market_id: str, wait: float) -> Iterator[None]:
    """Hold the right to fetch one view of one market.

    Parameters
    ----------
    root : str
        Of the archive; in an object store there are no leases, two fetchers then do the work twice.
    wait : float
        How long to wait for another holder [s].

    Raises
    ------
    ArchiveBusyError
        If another process still holds it after that time; the message has its process id.
    ArchiveError
        If the file system has no locks.
    """
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    if is_url(root):
        yield
        return
    name = hashlib.blake2b(f"{view}\x1f{market_id}".encode(), digest_size=16).hexdigest()
    path = Path(root, FOLDER, name)
    with faults.writing(f"Taking the lease {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _acquire(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, wait, f"{view} of market {market_id[:200]!r}")
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def _acquire(handle: int, how: int, wait: float, what: str) -> None:
    import fcntl

    until = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(handle, how)
        except OSError as problem:
            if problem.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise ArchiveError(
                    f"The file system of the archive has no locks ({problem}). "
                    "Keep the archive on a local disk, or in an object store."
                ) from problem
            if time.monotonic() >= until:
                owner = os.pread(handle, 32, 0).decode("ascii", "replace") or "unknown"
                raise ArchiveBusyError(
                    f"Process {owner} is fetching {what}; it still was after {wait:g} s. Try again later, or end it."
                ) from None
            time.sleep(_STEP)
        else:
            return
