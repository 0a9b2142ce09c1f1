"""The clock of everything that waits, which tests can advance."""

from __future__ import annotations

import threading
import time


class Clock:
    """A steady time, the time of day, and sleep; in testing mode (`no_waiting`) sleep moves the clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead = 0.0
        self._modes = 0
        self.slept = 0.0

    def monotonic(self) -> float:
        """Seconds of a clock that never jumps [s]."""
        return time.monotonic() + self._ahead

    def time(self) -> float:
        """Unix seconds [s]."""
        return time.time_ns() / 1e9 + self._ahead

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> None:
        """Wait [s], or less if ``stop`` is set meanwhile."""
        if seconds <= 0:
            return
        if self._modes:
            self._skip(seconds)
        elif stop is not None:
            stop.wait(seconds)
        else:
            time.sleep(seconds)

    def begin_virtual(self) -> None:
        """Sleeps move the clock from now on; calls nest."""
        with self._lock:
            self._modes += 1

    def end_virtual(self) -> None:
        """Undo one ``begin_virtual``."""
        with self._lock:
            self._modes -= 1

    def _skip(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        with self._lock:
            # Threads that sleep side by side share the time that passes.
            missing = until - (time.monotonic() + self._ahead)
            if missing > 0:
                self._ahead += missing
            self.slept += seconds


# The clock of the whole process.
SYSTEM = Clock()
