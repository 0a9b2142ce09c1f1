"""Pages a second, beside the framework's default way (make bench)."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from service.memory import MINUTE
from service.web import START

from marketdata.archive import Archive
from marketdata.times import to_text
from marketdata.wire.columns import BookColumns, Token

DAYS = 3
PROGRAM = """
import sys, time
from marketdata.archive import Archive
from marketdata.service import serve
with serve(Archive(sys.argv[1]), keys={"bench": "p"}, plans={"p": {"requests_per_minute": 10**7}}) as service:
    print(service.base_url, flush=True)
    sys.stdin.read()
"""


def books(minutes: int) -> BookColumns:
    """Two tokens, 10 to 60 levels a side: pages of 200 snapshots are about 210 kB."""
    source = np.random.default_rng(0)
    counts = source.integers(10, 60, size=4 * minutes)
    levels = np.empty((counts.sum(), 2))
    levels[:, 0] = source.integers(1, 999, len(levels)) / 1000
    levels[:, 1] = np.round(source.exponential(500, len(levels)), 2)
    ts = np.tile(START + np.arange(minutes) * MINUTE, 2)
    token = np.repeat(np.arange(2, dtype=np.int32), minutes)
    return BookColumns((Token("m", "1", "Yes"), Token("m", "2", "No")), token, ts, counts, levels)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("bench")
    archive = Archive(path)
    archive.add(markets=[{"market_id": "m", "slug": "s", "token_ids": ["1", "2"], "token_labels": ["Yes", "No"]}])
    archive.add(books=books(DAYS * 1440))
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip().removeprefix("http://")
        running.kill()


def walk(address: str, seconds: float, took: list[float], sizes: list[int]) -> None:
    connection, cursor, until = http.client.HTTPConnection(address), "", time.monotonic() + seconds
    path = f"/v1/markets/m/books?start_ts={to_text(START)}&end_ts=2026-01-08&resolution=1m&limit=200"
    while time.monotonic() < until:
        begun = time.perf_counter()
        connection.request("GET", path + cursor, headers={"X-API-Key": "bench"})
        answer = connection.getresponse()
        body = answer.read()
        took.append(time.perf_counter() - begun)
        sizes.append(len(body))
        assert answer.status == 200
        found = json.loads(b"{" + body[body.rindex(b'"metadata"') :])["metadata"]["next_cursor"] if body else None
        cursor = f"&cursor={found}" if found else ""
    connection.close()


@pytest.mark.bench
@pytest.mark.parametrize("clients", [1, 20])
def test_pages_a_second(address: str, clients: int) -> None:
    """Prints pages a second and latencies of book pages of 200 points through HTTP, archive read included."""
    took: list[float] = []
    sizes: list[int] = []
    threads = [threading.Thread(target=walk, args=(address, 5, took, sizes)) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = len(took) / (time.perf_counter() - begun)
    p50, p99 = np.percentile(np.array(took) * 1e3, [50, 99])
    print(f"\n{clients} clients: {rate:.0f} pages/s of {np.mean(sizes) / 1e3:.0f} kB, p50 {p50:.1f} p99 {p99:.1f} ms")


@pytest.mark.bench
def test_encoding_beside_the_default_way() -> None:
    """Prints the time of one page from columns to JSON, ours and FastAPI's default for the same page as objects."""
    from fastapi.encoders import jsonable_encoder
    from fastapi.responses import JSONResponse

    from marketdata.resolution import Resolution
    from marketdata.service import bodies
    from marketdata.service.chunks import Chunk
    from marketdata.service.pages import Page, Piece

    chunk = Chunk(books(100))
    page = Page([Piece(chunk, np.arange(200))], 200)
    tokens = {"Yes": "1", "No": "2"}

    def ours() -> bytes:
        chunk.__dict__.pop("texts", None)
        return bodies.market_body(page, "m", Resolution.M1, tokens, {"count": 200})

    plain = json.loads(ours())

    def best(call, times: int) -> float:
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        return min(found) * 1e3

    default = best(lambda: JSONResponse(jsonable_encoder(plain)).body, 5)
    first, again = best(ours, 20), best(lambda: bodies.market_body(page, "m", Resolution.M1, tokens, {}), 20)
    size = len(ours()) / 1e3
    print(f"\none page of {size:.0f} kB: {first:.2f} ms first, {again:.2f} ms again, default {default:.1f} ms")
