"""For tests of code that uses this library: run without waiting.

Examples
--------
>>> import time
>>> from marketdata.fetch.clock import SYSTEM
>>> with no_waiting() as clock:
...     SYSTEM.sleep(3600)
>>> clock.slept
3600.0
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from marketdata.fetch.clock import SYSTEM, Clock


@contextlib.contextmanager
def no_waiting() -> Iterator[Clock]:
    """Waits of the pacer and between retries move a clock of their own and return at once.

    Deadlines of sockets stay real. Threads that wait side by side share the time that passes.

    Yields
    ------
    Clock
        ``slept`` is the time that was not waited [s].
    """
    SYSTEM.slept = 0.0
    SYSTEM.begin_virtual()
    try:
        yield SYSTEM
    finally:
        SYSTEM.end_virtual()


__all__ = ["no_waiting"]
