"""Sockets to the stream of a venue: frames with the time of their arrival, and nothing that could delay them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from marketdata.clock import SYSTEM
from marketdata.errors import AuthenticationError, not_installed
from marketdata.fetch.http.connection import bundle
from marketdata.points.columns import Token
from marketdata.stream.channel import Channel
from marketdata.times import SECOND

# A ping is sent this often; a connection on which nothing comes for so long after one is lost [s].
PING_EVERY, SILENCE = 10.0, 10.0
_OPENING = 20.0
# A connection whose frames wait to be decoded ends before they fill the memory.
_MOST_WAITING = 200_000
_LARGEST_FRAME = 1 << 26


class Event(NamedTuple):
    """What happened on a connection: a frame came, a ping sent ``at`` a time was answered, or it has ended."""

    connection: int
    kind: Literal["frame", "pong", "end"]
    at: int
    body: bytes = b""


class Connections:
    """Connections in a thread of their own, whose only work is to note when a frame arrived.

    ``events`` has what happened, in the order of each connection. ``silence`` and ``ping_every`` are in seconds.
    """

    def __init__(self, channel: Channel, *, ping_every: float | None = None, silence: float | None = None) -> None:
        try:
            import websockets  # noqa: F401
        except ModuleNotFoundError:
            raise not_installed("archive.record", "websockets", "stream") from None
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        # The error of a key that the venue refuses, which no further try can mend.
        self.refused: AuthenticationError | None = None
        self._channel = channel
        self._ping_every, self._silence = ping_every or PING_EVERY, silence or SILENCE
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, name="marketdata-stream", daemon=True)
        self._thread.start()

    def open(self, number: int, tokens: Sequence[Token]) -> None:
        """Begin a connection; its end is an event, also if it never begins."""

        def begin() -> None:
            self._tasks[number] = self._loop.create_task(self._run(number, tokens))

        self._loop.call_soon_threadsafe(begin)

    def end(self, number: int) -> None:
        """End a connection without an event."""

        def end() -> None:
            if (task := self._tasks.pop(number, None)) is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(end)

    def close(self) -> None:
        """End all connections and the thread."""

        async def end() -> None:
            tasks = [*self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):  # what has come must be stored all the same
                asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            if not self._thread.is_alive():
                self._loop.close()

    async def _run(self, number: int, tokens: Sequence[Token]) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus

        channel, why = self._channel, "it was closed"
        try:
            async with connect(
                channel.address, max_size=_LARGEST_FRAME, ping_interval=None, close_timeout=1, open_timeout=_OPENING,
                additional_headers=channel.headers(), max_queue=None, **_certificates(channel.address),
            ) as socket:  # fmt: skip
                for text in channel.subscription(tokens):
                    await socket.send(text)
                why = await self._receive(number, socket)
        except asyncio.CancelledError:
            return
        except InvalidStatus as problem:
            status = problem.response.status_code
            why = f"the venue answered with status {status}"
            if status in (401, 403) and channel.has_key:
                detail = f"{channel.name} refused the key: {problem.response.body[:200].decode(errors='replace')}"
                self.refused = AuthenticationError(detail, status=status, url=channel.address)
        except Exception as problem:  # whatever it is, the market must be subscribed again
            why = f"{type(problem).__name__}: {problem}"
        self._tasks.pop(number, None)
        self.events.put(Event(number, "end", _now(), why.encode()))

    async def _receive(self, number: int, socket: Any) -> str:
        """Frames until the connection ends; returns why."""
        pings: list[int] = []
        due, last = SYSTEM.monotonic() + self._ping_every, SYSTEM.monotonic()
        while True:
            wait = due - SYSTEM.monotonic() if not pings else last + self._silence - SYSTEM.monotonic()
            try:
                async with asyncio.timeout(max(wait, 0.001)):
                    frame = await socket.recv(decode=False)
            except TimeoutError:
                if pings and SYSTEM.monotonic() >= last + self._silence:
                    return "no answer to a ping"
                if SYSTEM.monotonic() >= due:
                    due = SYSTEM.monotonic() + self._ping_every
                    await self._ping(number, socket, pings)
                    last = SYSTEM.monotonic()
                continue
            last = SYSTEM.monotonic()
            if self._channel.pong is not None and frame == self._channel.pong.encode():
                if pings:
                    self.events.put(Event(number, "pong", pings.pop(0)))
            else:
                self.events.put(Event(number, "frame", _now(), frame))
                if self.events.qsize() > _MOST_WAITING:
                    return "frames come faster than they are decoded"
            if last >= due:
                due = last + self._ping_every
                await self._ping(number, socket, pings)

    async def _ping(self, number: int, socket: Any, pings: list[int]) -> None:
        sent = _now()
        pings.append(sent)
        if self._channel.ping is not None:
            await socket.send(self._channel.ping)
            return
        answer = await socket.ping()

        def answered(done: Any) -> None:
            with contextlib.suppress(ValueError):
                pings.remove(sent)
            if not done.cancelled() and done.exception() is None:
                self.events.put(Event(number, "pong", sent))

        answer.add_done_callback(answered)


def _now() -> int:
    return int(SYSTEM.time() * SECOND)


def _certificates(address: str) -> dict[str, Any]:
    """The certificates that vouch for a stream, where the environment names some."""
    named = bundle() if address.startswith("wss:") else None
    return {} if named is None else {"ssl": ssl.create_default_context(cafile=named)}
