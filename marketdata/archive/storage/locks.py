"""Kernel locks between processes of one machine, which save the work of commits that would be refused."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import is_url
from marketdata.errors import ArchiveBusyError, ArchiveError

# The folder of the lock files, one for each name.
FOLDER = "_locks"
# A lock is waited for up to this, and looked at so often [s].
_WAIT = 600.0
_STEP = 0.02
# The length of a process id in the file of a lock, with blanks.
_DIGITS = 20


@contextlib.contextmanager
def lock(root: str, name: str, what: str) -> Iterator[None]:
    """Hold the lock of this name; ArchiveBusyError with the holder's process id after ten minutes."""
    if is_url(root) or os.name != "posix":  # where there are no such locks
        yield
        return
    path = Path(root, FOLDER, hashlib.blake2b(name.encode(), digest_size=16).hexdigest())
    with errors.writing(f"Taking the lock {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        until = time.monotonic() + _WAIT
        while not _taken(handle):
            if time.monotonic() >= until:
                owner = os.pread(handle, _DIGITS, 0).decode("ascii", "replace").strip() or "unknown"
                raise ArchiveBusyError(
                    f"Process {owner} is {what}; it still was after {_WAIT:g} s. Try again later, or end it."
                )
            time.sleep(_STEP)
        # The process id is only for the message above: without room for it the lock is held all the same.
        with contextlib.suppress(OSError):
            # Always of one length: ext4 waits for the disk when a file is closed that was emptied and written.
            os.pwrite(handle, f"{os.getpid():<{_DIGITS}}".encode(), 0)
        yield
    finally:
        os.close(handle)


def _taken(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise ArchiveError(
            f"The file system of the archive has no locks ({problem}). "
            "Keep the archive on a local disk, or in an object store."
        ) from problem
    return True
