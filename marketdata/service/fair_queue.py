"""The queue of requests, in which clients take turns."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque

from marketdata.service import errors

# Requests that wait or run, of all clients together: what comes beyond would wait for many seconds.
MAX_IN_FLIGHT = 2048
# Requests that run at once, of all clients and of one that is alone. Pages take Python and numpy, so more than cores
# only wait for each other; a few more, because some wait for a disk or an object store.
SLOTS = 6
CLIENT_SLOTS = 2


class FairQueue:
    """A queue in which clients take turns, however many requests one of them has waiting.

    ``slots``: requests that run at once; ``client_slots``: those of one client while no other runs one, else one.
    ``room``: requests that wait or run; beyond it the client with the most waiting loses its newest one.
    """

    def __init__(self, slots: int = SLOTS, client_slots: int = CLIENT_SLOTS, room: int = MAX_IN_FLIGHT) -> None:
        self._slots = slots
        self._client_slots = client_slots
        self._room = room
        self._running: Counter[str] = Counter()
        # Clients with waiting requests, in the order of their turns.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.in_flight = 0

    async def acquire(self, client: str) -> None:
        """Wait for a slot; HTTPException 503 if there is no room for another waiting request of this client.

        Nobody stops waiting but at the end of the service.
        """
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self.in_flight += 1
        if self.in_flight > self._room:
            busiest = max(self._waiting, key=lambda name: (len(self._waiting[name]), name == client))
            self._taken(busiest, newest=True).set_exception(errors.overloaded())
            self.in_flight -= 1
        asyncio.get_running_loop().call_soon(self._start)
        await turn

    def release(self, client: str) -> None:
        """Free a slot for the next client."""
        self.in_flight -= 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        if client in self._waiting:
            self._waiting.move_to_end(client)
        asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        """Start a request of the client whose turn it is: the first of those with the fewest running.

        One in each turn of the loop, so that all that arrived together are there to choose from.
        """
        if not self._waiting:
            return
        client = min(self._waiting, key=self._running.__getitem__)
        own, running = self._running[client], self._running.total()
        if running < self._slots and own < (self._client_slots if own == running else 1):
            self._waiting.move_to_end(client)
            turn = self._taken(client)
            self._running[client] += 1
            if not turn.done():
                turn.set_result(None)
            asyncio.get_running_loop().call_soon(self._start)

    def _taken(self, client: str, *, newest: bool = False) -> asyncio.Future[None]:
        """The first request of a client that waits, or the last, which waits no longer."""
        turns = self._waiting[client]
        turn = turns.pop() if newest else turns.popleft()
        if not turns:
            del self._waiting[client]
        return turn
