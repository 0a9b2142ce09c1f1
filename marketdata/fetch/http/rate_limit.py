"""One pacer per key: at most its requests per minute in any 60 s, from however many threads."""

from __future__ import annotations

import threading
import weakref
from collections import deque

from marketdata.clock import SYSTEM, Clock

_MINUTE_SECONDS = 60.0
# Requests sent evenly may arrive closer together, and a strict server would refuse them.
_GUARD = 1.01
# Requests that may leave at once after a pause: more would be refused by services that count by the second.
_LARGEST_BURST = 32


class Pacer:
    """Slots for requests, reserved before the wait, so that threads never race; without a rate only a 429 delays."""

    def __init__(self, requests_per_minute: int | None = None, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: deque[float] = deque()
        self._due = float("-inf")  # when the next request is due in an even spacing
        self._gate = float("-inf")
        self._round = 0
        self.known = False  # whether the service has said what the rate of the key is
        self.requests_per_minute: int | None = None
        if requests_per_minute is not None:
            self.allow(requests_per_minute)

    def allow(self, requests_per_minute: int, remaining: int | None = None, reset_in: float | None = None) -> None:
        """Apply ``usage``: ``remaining`` of this minute, restored in ``reset_in`` [s]."""
        now = self._clock.monotonic()
        with self._lock:
            self.requests_per_minute = max(1, int(requests_per_minute))
            self.known = True
            self._forget(now)
            if remaining is None:
                return
            spent = self.requests_per_minute - max(0, int(remaining)) - len(self._slots)
            back = min(_MINUTE_SECONDS, reset_in) if reset_in is not None and reset_in > 0 else _MINUTE_SECONDS
            if spent > 0:
                self._slots = deque(sorted([*self._slots, *[now - (_MINUTE_SECONDS - back)] * spent]))

    def wait(self, stop: threading.Event | None = None) -> None:
        """Return when one more request may leave, or when ``stop`` is set."""
        while True:
            with self._lock:
                now = self._clock.monotonic()
                slot, round_ = self._reserve(now), self._round
            self._clock.sleep_until(slot, stop)
            if stop is not None and stop.is_set():
                return
            with self._lock:
                if round_ == self._round and self._clock.monotonic() >= slot - 1e-3:
                    return
                if round_ == self._round and slot in self._slots:
                    self._slots.remove(slot)

    def pause(self, seconds: float, *, refused: bool = True) -> None:
        """Let no thread send before the wait [s] that the service requested; reserve unused slots again."""
        with self._lock:
            now = self._clock.monotonic()
            gate = now + seconds
            if refused and not self.known:  # a tenth less than was sent
                sent = sum(1 for slot in self._slots if now - _MINUTE_SECONDS < slot <= now)
                self.requests_per_minute = max(10, min(self.requests_per_minute or sent, sent * 9 // 10))
            if gate <= self._gate:
                return
            self._gate = gate
            self._round += 1
            while self._slots and self._slots[-1] > now:
                self._slots.pop()
            self._due = gate + self._burst() * self._spacing()

    def _reserve(self, now: float) -> float:
        """The steady time at which one more request may leave [s]; called under the lock."""
        slot = max(now, self._gate)
        if self.requests_per_minute is not None:
            spacing = self._spacing()
            slot = max(slot, self._due - self._burst() * spacing)
            self._forget(slot)
            if len(self._slots) >= self.requests_per_minute:
                slot = max(slot, self._slots[-self.requests_per_minute] + _MINUTE_SECONDS * _GUARD)
            self._due = max(self._due, slot) + spacing
        self._slots.append(slot)
        if self.requests_per_minute is None:
            self._forget(now)
        return slot

    def _spacing(self) -> float:
        return _MINUTE_SECONDS * _GUARD / self.requests_per_minute if self.requests_per_minute else 0.0

    def _burst(self) -> int:
        """Requests that may leave at once after a pause, in addition to the one that is due."""
        rate = self.requests_per_minute
        return min(rate - 1, max(4, rate // 12), _LARGEST_BURST) if rate else 0

    def _forget(self, now: float) -> None:
        while self._slots and self._slots[0] <= now - _MINUTE_SECONDS * _GUARD:
            self._slots.popleft()


_REGISTRY = threading.Lock()
_BY_KEY: weakref.WeakValueDictionary[str, Pacer] = weakref.WeakValueDictionary()


def pacer_for(digest: str) -> Pacer:
    """The one pacer of this process for a key at an address, named by ``KeyProvider.digest``."""
    with _REGISTRY:
        return _BY_KEY.setdefault(digest, Pacer())
