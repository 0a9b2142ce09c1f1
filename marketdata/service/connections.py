"""Connections: whole heads of requests in, answers out, each within bounds of size and time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

# For a whole head; between requests; for a client to read its answer; to finish at the end [s]: a slow link passes, who
# only holds a connection does not. Bytes of a head: more than `exchange` accepts, so that the refusal can say why.
HEAD_SECONDS = 10.0
IDLE_SECONDS = 30.0
STALL_SECONDS = 30.0
GRACE_SECONDS = 10.0
MAX_HEAD = 64 * 1024
# Connections that wait to be accepted: hundreds may come at once while a process is busy.
BACKLOG = 2048
# Turns of the loop until a connection that was accepted has its task.
_TURNS = 4
# Bytes of answers that clients have not read yet, of all connections together, as they fill memory; one answer of each.
MAX_UNSENT = 64 * 2**20

# The answer to a head from an address, and whether the connection goes on.
Respond = Callable[[bytes, str], Awaitable[tuple[bytes, bool]]]


class Connections:
    """The connections of a listening socket, which other processes may share; one task each."""

    def __init__(self, listener: socket.socket, respond: Respond) -> None:
        self.head_seconds, self.idle_seconds, self.stall_seconds = HEAD_SECONDS, IDLE_SECONDS, STALL_SECONDS
        self.max_unsent = MAX_UNSENT
        self.open: set[asyncio.Task[None]] = set()
        self.unread: set[asyncio.WriteTransport] = set()
        self._idle: set[asyncio.Task[None] | None] = set()
        self._listener = listener
        self._respond = respond
        self._ends = False

    async def serve(self, end: asyncio.Event) -> None:
        """Answer until the event is set; then finish the answers in progress."""
        # One in each turn of the loop: a busy process leaves the next one to another. As many as before wait for it.
        server = await asyncio.start_server(self._accept, sock=self._listener, limit=MAX_HEAD, backlog=1)
        self._listener.listen(BACKLOG)
        await end.wait()
        self._ends = True
        # Connections accepted in these turns are finished too: a server closed before would forget to close them.
        with contextlib.suppress(NotImplementedError):  # of the loop of Windows
            asyncio.get_running_loop().remove_reader(self._listener)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for task in self._idle:
            assert task is not None
            task.cancel()
        late = (await asyncio.wait(self.open, timeout=GRACE_SECONDS))[1] if self.open else ()
        for task in late:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport, goes_on, seconds = writer.transport, True, self.head_seconds
        address = (writer.get_extra_info("peername") or ("",))[0]
        try:
            while goes_on and not self._ends:
                head = await self._read_head(reader, seconds)
                if not head:
                    break
                answer, goes_on = await self._respond(head, address)
                writer.write(answer)
                seconds = self.idle_seconds
                # The next request waits until this answer is read.
                await self._until_read(writer)
            writer.close()
            async with asyncio.timeout(self.stall_seconds):
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass
        finally:
            transport.abort()

    async def _read_head(self, reader: asyncio.StreamReader, seconds: float) -> bytes:
        """The bytes up to the end of a head, or what cannot be one; none where the client is late or gone."""
        task, first = asyncio.current_task(), b""
        self._idle.add(task)
        try:
            async with asyncio.timeout(seconds) as timer:
                # One empty line may come before a head (RFC 9112, 2.2).
                for _ in range(3):
                    first = await reader.readexactly(1)
                    if first not in b"\r\n":
                        break
                if not first.isalpha():
                    return first
                timer.reschedule(asyncio.get_running_loop().time() + self.head_seconds)
                return first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return first + await reader.read(MAX_HEAD)
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            return b""
        finally:
            self._idle.discard(task)

    async def _until_read(self, writer: asyncio.StreamWriter) -> None:
        """Wait until most of what was written is taken; abort the connections with the most unread bytes."""
        if not writer.transport.get_write_buffer_size():
            return
        self.unread.add(writer.transport)
        unsent = {transport: transport.get_write_buffer_size() for transport in self.unread}
        total = sum(unsent.values())
        while total > self.max_unsent:
            largest = max(unsent, key=unsent.__getitem__)
            total -= unsent.pop(largest)
            largest.abort()
        try:
            async with asyncio.timeout(self.stall_seconds):
                await writer.drain()
        finally:
            self.unread.discard(writer.transport)
