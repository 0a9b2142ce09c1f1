"""Threads that send requests, and their end: before the interpreter's, which ends no thread inside native code well."""

from __future__ import annotations

import atexit
import contextvars
import threading
import time
import weakref
from collections.abc import Callable

from marketdata.fetch.http.connection import shut_down_all
from marketdata.fetch.http.fork_lock import ForkLock

# How long the end of the interpreter waits for threads, once their connections are shut down [s].
_LONGEST_END = 5.0
_LOCK = ForkLock()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class Stop(threading.Event):
    """Set it, and nothing more is sent; what is linked to it is set with it, and all at the end of the interpreter."""

    def __init__(self, parent: Stop | None = None, *, is_root: bool = False) -> None:
        super().__init__()
        self.linked: weakref.WeakSet[Stop] = weakref.WeakSet()
        if is_root:
            return
        parent = parent or _ROOT
        with _LOCK:
            parent.linked.add(self)
        if parent.is_set():
            self.set()

    def set(self) -> None:
        """Send nothing more."""
        super().set()
        with _LOCK:
            linked = list(self.linked)
        for one in linked:
            one.set()


_ROOT = Stop(is_root=True)
# Of the call that this thread makes for a coroutine.
STOP: contextvars.ContextVar[Stop | None] = contextvars.ContextVar("marketdata_stop", default=None)


def start(work: Callable[[], object], name: str) -> threading.Thread:
    """A thread that keeps no program from ending: once the main thread has ended it is stopped and waited for."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    with _LOCK:
        _THREADS.add(thread)
    thread.start()
    return thread


@atexit.register
def _end() -> None:
    """Stop all threads.

    A thread that wants the interpreter while it is finalized is ended where it is: inside a C++ library, such as the
    JSON parser, that aborts the process.
    """
    _ROOT.set()
    until = time.monotonic() + _LONGEST_END
    with _LOCK:
        threads = list(_THREADS)
    for thread in threads:
        while thread.is_alive() and time.monotonic() < until:
            shut_down_all()  # again: an attempt may just have connected
            thread.join(0.1)
