"""Many clients that ask without pause, in one thread of a process of their own: what they cost is not the service's."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections import defaultdict
from collections.abc import Mapping

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
PAUSE = 0.2
Exchanges = dict[str, list[tuple[float, float]]]


def noise(address: str, target: str, clients: Mapping[str, int], seconds: float, nice: int = 0) -> Exchanges:
    """When each request that passed began and ended, by key; a client that is refused waits about 0.2 s."""
    os.nice(nice)
    host, port = address.removeprefix("http://").split(":")
    return asyncio.run(_all(host, int(port), target, clients, time.monotonic() + seconds))


async def _all(host: str, port: int, target: str, clients: Mapping[str, int], until: float) -> Exchanges:
    passed: Exchanges = defaultdict(list)

    async def one(key: str) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        request = f"GET {target} HTTP/1.1\r\nHost: {host}:{port}\r\nX-API-Key: {key}\r\n\r\n".encode()
        while time.monotonic() < until:
            begun = time.monotonic()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            assert length is not None, head
            await reader.readexactly(int(length[1]))
            if head.startswith(b"HTTP/1.1 200"):
                passed[key].append((begun, time.monotonic()))
            else:
                assert head.startswith(b"HTTP/1.1 429"), head
                # Clients of different people do not come back at the same moment.
                await asyncio.sleep(PAUSE * random.uniform(0.5, 1.5))
        writer.close()

    await asyncio.gather(*(one(key) for key, number in clients.items() for _ in range(number)))
    return dict(passed)
