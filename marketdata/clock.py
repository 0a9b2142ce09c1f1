"""The clock of everything that waits, which tests can advance."""

from __future__ import annotations

import threading
import time


class Clock:
    """A steady time, the time of day, and sleep. In testing mode (`no_waiting`) it ``is_virtual``: sleep moves it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead = 0.0
        self.is_virtual = False
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
        if self.is_virtual:
            until = self.monotonic() + seconds
            with self._lock:
                # Threads that sleep side by side share the time that passes.
                self._ahead += max(0.0, until - self.monotonic())
                self.slept += seconds
        elif stop is not None:
            stop.wait(seconds)
        else:
            time.sleep(seconds)

    def sleep_until(self, moment: float, stop: threading.Event | None = None) -> None:
        """Wait until the clock that never jumps is at a moment [s], or less if ``stop`` is set meanwhile."""
        if not self.is_virtual:
            self.sleep(moment - self.monotonic(), stop)
            return
        with self._lock:
            # A thread that comes late, because others moved the clock, has less left to wait for.
            seconds = max(0.0, moment - self.monotonic())
            self._ahead += seconds
            self.slept += seconds


# The clock of the whole process.
SYSTEM = Clock()
