"""What the storage libraries raise, as errors of this library that say what to do."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

from marketdata.errors import ArchiveBusyError, ArchiveCorruptError, ArchiveError, ArchiveFullError, MarketDataError

_DRAWN = re.compile("\x1b\\[[0-9;]*m|\u21b3")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_RIGHT = {errno.EROFS, errno.EACCES, errno.EPERM}
_ROOM_WORDS = ("no space left", "disk quota", "file too large", "storage full", "os error 28", "os error 122")
_RIGHT_WORDS = ("read-only file system", "permission denied", "accessdenied", "os error 30", "os error 13")
_AWAY_WORDS = ("error sending request", "connection refused", "dns error", "timed out", "os error 111", "credential")
_GONE_WORDS = ("no such file", "not found", "nosuchkey", "os error 2")


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn a failed write into an ArchiveError; what was committed before is intact.

    Raises
    ------
    ArchiveFullError
        If there is no room, or no right, to write.
    ArchiveBusyError
        If others kept changing the same range.
    ArchiveError
        For every other failure.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

    try:
        yield
    except MarketDataError:
        raise
    except CommitFailedError as problem:
        raise ArchiveBusyError(f"{what}: another process kept changing the same range; run it again.") from problem
    except DeltaProtocolError as problem:
        raise ArchiveError(f"{what}: the archive was written by a newer format: {problem}.") from problem
    except (OSError, DeltaError) as problem:
        raise _write_error(what, problem) from problem


def _write_error(what: str, problem: BaseException) -> ArchiveError:
    code = getattr(problem, "errno", None)
    text = str(problem).lower()
    intact = "What was committed before is intact; run it again afterwards."
    if code in _NO_ROOM or any(word in text for word in _ROOM_WORDS):
        return ArchiveFullError(f"{what}: no room left to write ({problem}). Free some space. {intact}")
    if code in _NO_RIGHT or any(word in text for word in _RIGHT_WORDS):
        return ArchiveFullError(f"{what}: no right to write there ({problem}). {intact}")
    return ArchiveError(f"{what} failed: {_in_one_line(problem)}. {intact}")


def _in_one_line(problem: BaseException) -> str:
    """A report of several coloured lines, as text."""
    return " ".join(_DRAWN.sub(" ", str(problem)).split())


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn a failed read of stored bytes into an ArchiveError.

    Raises
    ------
    ArchiveCorruptError
        If stored bytes are damaged or gone.
    ArchiveError
        If the storage does not answer.
    """
    import pyarrow as pa
    from deltalake.exceptions import DeltaError, DeltaProtocolError

    try:
        yield
    except MarketDataError:
        raise
    except DeltaError as problem:
        if isinstance(problem, DeltaProtocolError) or is_newer(problem):
            raise ArchiveError(f"{what}: the archive was written in a newer format: {problem}.") from problem
        raise read_error(what, problem) from problem
    except (OSError, pa.ArrowException, UnicodeDecodeError, ValueError) as problem:
        raise read_error(what, problem) from problem


def is_newer(problem: BaseException) -> bool:
    """Whether a table can not be read because it is of a later kind."""
    return "unsupported" in str(problem).lower()


def read_error(what: str, problem: BaseException) -> ArchiveError:
    """The error for stored bytes that can not be read."""
    code = getattr(problem, "errno", None)
    text = str(problem).lower()
    if code in _NO_RIGHT or code in {errno.EMFILE, errno.ENFILE} or any(word in text for word in _RIGHT_WORDS):
        return ArchiveError(f"{what} can not be read: {problem}.")
    if any(word in text for word in _AWAY_WORDS):
        return ArchiveError(f"{what} can not be read, for the storage does not answer: {_in_one_line(problem)}")
    gone = code == errno.ENOENT or any(word in text for word in _GONE_WORDS)
    state = "is missing" if gone else "is damaged"
    return ArchiveCorruptError(
        f"{what} {state}: {problem}. Run archive.verify() to see which ranges to pull or add again."
    )
