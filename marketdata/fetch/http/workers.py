"""Threads that send requests, and their end: before the interpreter's, which ends no thread inside native code well."""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections.abc import Callable

from marketdata.fetch.http.fork_lock import ForkLock

# The end of the interpreter waits for threads up to so many times 10 ms. They are counted, as by a clock a program that
# stood still meanwhile would have waited for nobody.
_LONGEST_END = 100
_LOCK = ForkLock()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_STOPS: weakref.WeakSet[Stop] = weakref.WeakSet()


class Stop(threading.Event):
    """Set it, and nothing more is sent; those of which it is the parent are set with it, and all at the end."""

    def __init__(self, parent: Stop | None = None) -> None:
        super().__init__()
        self.parent = parent
        with _LOCK:
            _STOPS.add(self)
        if parent is not None and parent.is_set():
            self.set()

    def set(self) -> None:
        """Send nothing more."""
        super().set()
        with _LOCK:
            linked = [stop for stop in _STOPS if stop.parent is self]
        for stop in linked:
            stop.set()


# The stop of the call that this thread makes for a coroutine.
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
    """Stop all threads, and wait for those that read an answer that came.

    A thread that wants the interpreter while it is finalized is ended where it is: inside a C++ library, such as the
    JSON parser, that aborts the process. One that waits for an answer ends there unharmed.
    """
    with _LOCK:
        stops, threads = list(_STOPS), list(_THREADS)
    for stop in stops:
        stop.set()
    for _ in range(_LONGEST_END):
        threads = [thread for thread in threads if thread.is_alive()]
        if not threads:
            return
        threads[0].join(0.01)
