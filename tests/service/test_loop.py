"""Row S42: no request within the limits of size holds the event loop, on which all others wait."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service.memory import MemoryArchive
from service.web import Web, raw

from marketdata.service.auth import RELOAD_SECONDS, digest
from marketdata.service.exchange import MAX_PARAMETERS, MAX_URL
from marketdata.service.server import Service, serve

WINDOW = "start_ts=2026-01-05&end_ts=2026-01-06&resolution=1m"
# Turns of an empty loop that fit into one turn: of 3 microseconds each they are 5 ms.
MOST = 1_600


class Lag:
    """The longest that one turn of a service's loop takes [seconds of its thread, so that other threads do not count].

    The probe is in every turn of the loop.
    """

    def __init__(self, service: Service) -> None:
        self._loop = service._worker.loop
        self._runs = True
        self.longest = 0.0
        self.turns = 0
        self._last = 0.0
        self._loop.call_soon_threadsafe(self._begin)
        self._reset()
        begun = self.turns, self._last
        time.sleep(0.5)
        self._reset()
        self.empty = (self._last - begun[1]) / (self.turns - begun[0])

    def _begin(self) -> None:
        self._last = time.thread_time()
        self._turn()

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest, self._last = max(self.longest, now - self._last), now
        self.turns += 1
        if self._runs:
            self._loop.call_soon(self._turn)

    def of(self, url: str, request: bytes) -> float:
        """The longest turn while a request is answered, in empty turns; of three the shortest, which has no pause."""
        found = []
        for _ in range(3):
            self._reset()
            assert raw(url, request)[0]
            found.append(self.longest / self.empty)
        return min(found)

    def _reset(self, _: object = None) -> None:
        done = threading.Event()

        def reset() -> None:
            self.longest = 0.0
            done.set()

        self._loop.call_soon_threadsafe(reset)
        done.wait(10)

    def end(self) -> None:
        self._runs = False


@pytest.fixture(scope="module")
def lag(archive: MemoryArchive) -> Iterator[tuple[Service, Lag]]:
    """A service that has answered before, and the probe in its loop.

    The collector of garbage would walk all that other tests left in this process, in the middle of a turn.
    """
    gc.collect()
    gc.disable()
    try:
        with serve(archive) as service:
            probe = Lag(service)
            for _ in range(20):
                raw(service.base_url, get(service, "/v1/health"))
            yield service, probe
            probe.end()
    finally:
        gc.enable()


def get(service: Service, target: str, *headers: str) -> bytes:
    lines = [f"GET {target} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {service.api_key}", "Connection: close"]
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")


def filled(part: str, size: int) -> str:
    return (part * (size // len(part) + 1))[:size]


parts = st.one_of(
    st.sampled_from(
        ["aa&", "&", "=", "a=1&", "%41", "%", "+", ";", "/", "..", "9", "1.", ":00.1", "é", ",", "[", "limit=1&"]
    ),
    st.text(
        st.characters(codec="ascii", categories=["L", "N", "P", "S"], exclude_characters="# "), min_size=1, max_size=9
    ),
)
places = st.sampled_from(
    [
        "/v1/health?{}", "/v1/markets?{}", "/v1/markets?search={}", "/v1/markets?tags={}", "/v1/markets?cursor={}",
        "/v1/markets?start_date_min={}", "/v1/markets/{}", "/v1/markets/{}/books?" + WINDOW, "/v1/{}", "/{}",
        "/v1/markets/m1/books?" + WINDOW + "&cursor={}", "/v1/markets/m1/books?" + WINDOW + "&limit={}",
        "/v1/markets/m1/books?end_ts=2026-01-06&resolution=1m&start_ts={}", "/v1/markets/m1/books?resolution={}",
    ]
)  # fmt: skip
names = st.sampled_from(["Accept-Encoding", "X-Other", "Cookie", "Accept", "Content-Type", "Host", "X-API-Key"])


@pytest.mark.fault("S42")
@given(place=places, part=parts, size=st.integers(0, MAX_URL - 100), name=names, count=st.integers(0, 90), wide=parts)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_shape_of_a_request_holds_the_loop(
    lag: tuple[Service, Lag], place: str, part: str, size: int, name: str, count: int, wide: str
) -> None:
    """Whatever fills a URL up to 8 kB and headers up to 32 kB, no turn is 1,600 empty ones (5 ms) long."""
    service, probe = lag
    headers = [f"{name}: {filled(wide, 330)}"] * count
    took = probe.of(service.base_url, get(service, place.format(filled(part, size)), *headers))
    assert took <= MOST


@pytest.mark.fault("S42")
def test_more_parameters_than_any_route_has_are_refused(local: Service) -> None:
    """A URL of more than 64 parameters is 400 before it is read; up to that they are counted in one pass."""
    with requests.Session() as session:
        web = Web(local.base_url, local.api_key, session)
        assert web.get("/v1/health?" + "a&" * (MAX_PARAMETERS - 1)).status == 422
        answer = web.get("/v1/health?" + "a&" * MAX_PARAMETERS)
    assert (answer.status, answer.body) == (400, {"detail": "The URL has more than 64 parameters."})


@pytest.mark.fault("S42")
def test_many_short_requests_at_once_share_the_loop(lag: tuple[Service, Lag]) -> None:
    """Thousands of requests in one packet are parsed bit by bit, and none of them is lost."""
    service, probe = lag
    count = 4_000
    host, port = service.base_url.removeprefix("http://").split(":")
    probe._reset()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        sending = threading.Thread(target=connection.sendall, args=(b"GET / HTTP/1.1\r\n\r\n" * count,))
        sending.start()
        got, tail = 0, b""
        while got < count:
            more = connection.recv(2**20)
            assert more
            got += (tail + more).count(b"HTTP/1.1 400")
            tail = more[-11:]
        sending.join()
    assert probe.longest / probe.empty <= MOST


@pytest.mark.fault("S42")
@pytest.mark.parametrize("size", [1, 7, 2048])
def test_requests_in_pieces_of_any_size_are_whole(local: Service, size: int) -> None:
    """However few bytes arrive at once, requests that come together are answered in order."""
    asked = [f"/v1/markets/{name}" for name in ("m1", "none", "m3", "%20" * 600)]
    head = f"Host: 127.0.0.1\r\nX-API-Key: {local.api_key}\r\n\r\n"
    data = "".join(f"GET {path} HTTP/1.1\r\n{head}" for path in asked).encode()
    host, port = local.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), size):
            connection.sendall(data[at : at + size])
        # One answer at a time: what follows it in the buffer belongs to the next one.
        with contextlib.closing(connection.makefile("rb")) as answers:
            statuses = []
            for _ in asked:
                statuses.append(int(answers.readline().split()[1]))
                length = 0
                while (line := answers.readline().strip().lower()) != b"":
                    if line.startswith(b"content-length"):
                        length = int(line.split(b":")[1])
                answers.read(length)
    assert statuses == [200, 404, 200, 422]


@pytest.mark.fault("S42", "S6")
def test_a_key_file_of_any_length_is_read_beside_the_loop(archive: MemoryArchive, tmp_path: Path) -> None:
    """A revocation in a file of 5,000 keys is read without holding the loop, and applies to the next one."""
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    keys = "\n".join(
        f'[[keys]]\nid = "{i}"\nhash = "sha256:{digest(b"%d" % i).hex()}"\nplan = "p"\nrevoked = false'
        for i in range(5_000)
    )
    path.write_text(f"[plans.p]\n{keys}\n")
    with serve(archive, keys=path) as service:
        asked = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-API-Key: 4999\r\n\r\n"
        probe = Lag(service)
        assert raw(service.base_url, asked)[0] == 200
        path.write_text(f"[plans.p]\n{keys.removesuffix('false')}true\n")
        time.sleep(2 * RELOAD_SECONDS)
        probe._reset()
        assert raw(service.base_url, asked)[0] == 401
        assert probe.longest / probe.empty <= 10 * MOST
        probe.end()
