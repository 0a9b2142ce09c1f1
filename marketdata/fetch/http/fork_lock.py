"""Locks that are open in a forked child, where the thread that had locked one does not exist."""

from __future__ import annotations

import os
import threading
import weakref


class ForkLock:
    """A lock of the threads of one process."""

    def __init__(self) -> None:
        self.open()
        _ALL.add(self)

    def open(self) -> None:
        """Begin with a new lock."""
        lock = threading.Lock()
        self.acquire, self.release = lock.acquire, lock.release

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


_ALL: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_ALL):
        lock.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
