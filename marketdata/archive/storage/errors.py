"""Errors of storage libraries as errors of this library.

Damage is shown by bytes that were read: they do not parse, have another size, checksum or hash, or the storage says
that the file does not exist. Every other error of a read is a failure of the storage, and says nothing about the data.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterator

from marketdata.errors import ArchiveCorruptError, ArchiveError, ArchiveFullError, MarketDataError

# Reports of deltalake have colours and arrows for a terminal.
_DRAWN = re.compile("\x1b\\[[0-9;]*m|\u21b3")
# A message of the storage library may have the number of an error.
_OS_ERROR = re.compile(r"os error (\d+)|Os \{ code: (\d+)")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_RIGHT = {errno.EROFS, errno.EACCES, errno.EPERM}
REPAIR = "Run archive.verify() to see which ranges to pull or add again."


class _Process:
    """The process that used the storage first. Its libraries have threads, which a fork does not copy."""

    first: int | None = None


def refuse_fork() -> None:
    """ArchiveError in a process that was forked after the storage was used: there a call would wait for ever."""
    if _Process.first is None:
        _Process.first = os.getpid()
    elif _Process.first != os.getpid():
        raise ArchiveError(
            "This process was forked from one that had used an archive, whose libraries do not work after a fork.",
            hint='Start processes by multiprocessing.get_context("spawn"), or by "forkserver".',
        )


def errno_of(problem: BaseException) -> int | None:
    """The error number: the system's, EACCES of a request refused with 403, EPROTONOSUPPORT of a newer table."""
    from deltalake.exceptions import DeltaProtocolError

    # deltalake raises one class for a full disk, a missing right, a refusal (403) and a newer table. Its message alone
    # says which it is.
    text, code = str(problem), getattr(problem, "errno", None)
    if isinstance(problem, FileNotFoundError):
        return errno.ENOENT
    if isinstance(problem, DeltaProtocolError) or text.startswith("Kernel error: Unsupported"):
        return errno.EPROTONOSUPPORT
    if isinstance(code, int):
        return code
    number = _OS_ERROR.search(text)
    return int(number[1] or number[2]) if number else errno.EACCES if "403 Forbidden" in text else None


def is_missing(problem: BaseException | None) -> bool:
    """Whether the storage says that this file or object does not exist."""
    return problem is not None and errno_of(problem) == errno.ENOENT


@contextlib.contextmanager
def _turned(what: str, turn: Callable[[BaseException], ArchiveError]) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    refuse_fork()
    try:
        yield
    except MarketDataError:
        raise
    except (OSError, DeltaError, MemoryError) as problem:
        if errno_of(problem) == errno.EPROTONOSUPPORT:
            newer = f"{what} has a newer format ({one_line(problem)}). Read it with a newer version of deltalake."
            raise ArchiveError(newer) from problem
        raise turn(problem) from problem


def writing(what: str) -> contextlib.AbstractContextManager[None]:
    """Turn a failed write into an ArchiveFullError (no room or right) or ArchiveError; earlier commits are intact."""

    def turn(problem: BaseException) -> ArchiveError:
        code, why = errno_of(problem), one_line(problem)
        intact = "What was committed before is intact; run it again afterwards."
        if code in _NO_ROOM:
            return ArchiveFullError(f"{what}: no space left to write ({why}). Free some space. {intact}")
        if code in _NO_RIGHT:
            return ArchiveFullError(f"{what}: no right to write there ({why}). {intact}")
        return ArchiveError(f"{what} failed: {why}. {intact}")

    return _turned(what, turn)


def reading(what: str, hint: str = REPAIR) -> contextlib.AbstractContextManager[None]:
    """Turn a failed read into an ArchiveError; ArchiveCorruptError only if the storage says that there is no file."""

    def turn(problem: BaseException) -> ArchiveError:
        missing = ArchiveCorruptError(f"{what} is missing.", hint=hint)
        return missing if is_missing(problem) else unavailable(what, problem)

    return _turned(what, turn)


def unavailable(what: str, problem: BaseException) -> ArchiveError:
    """The error for a storage that does not return what is stored."""
    first = "give yourself the right to read it, then " if errno_of(problem) in _NO_RIGHT else ""
    why = f"{what} cannot be read, because the storage failed: {one_line(problem)}"
    then = "try it again. If it fails each time, the file is damaged: restore it from a copy of the archive."
    return ArchiveError(f"{why}. Nothing was changed; {first}{then}")


@contextlib.contextmanager
def parsing(what: str, hint: str = REPAIR) -> Iterator[None]:
    """Turn a failure to parse bytes in memory, or a wrong checksum, into an ArchiveCorruptError: verified damage."""
    import pyarrow as pa

    try:
        yield
    except (MarketDataError, MemoryError):
        raise
    except (OSError, pa.ArrowException, UnicodeDecodeError, zlib.error, ValueError, KeyError, TypeError) as problem:
        raise ArchiveCorruptError(f"{what} is damaged: {one_line(problem)}.", hint=hint) from problem


def one_line(problem: BaseException) -> str:
    """The first lines of a coloured report, as plain text."""
    text = _DRAWN.sub(" ", str(problem)).partition("stack backtrace")[0].partition("\n   0:")[0]
    return " ".join(text.split())[:400]
