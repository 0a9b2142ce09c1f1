"""Row S42: no request within the limits of size holds the event loop, on which all others wait.

What a turn of the loop does is counted, in calls of functions, those in C included: the same on a machine that is busy.
Its time is looked at in the long runs.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
import requests
from hypothesis import example, given, settings
from hypothesis import strategies as st
from service.memory import MemoryArchive
from service.web import Web, raw
from still import SOON

from marketdata.service.auth import digest
from marketdata.service.exchange import MAX_PARAMETERS, MAX_URL
from marketdata.service.server import Service, serve

WINDOW = "start_ts=2026-01-05&end_ts=2026-01-06&resolution=1m"
# Calls in one turn at most: two for each byte of the longest URL, as what is quoted in it is read, and none for each of
# the headers' bytes, which are four times as many.
MOST = 20_000
# Turns of an empty loop that fit into one turn: of 3 microseconds each they are 5 ms.
MOST_EMPTY = 1_600


class Turns:
    """The most that one turn of a service's loop takes by a meter of its thread; the probe is in every turn."""

    def __init__(self, service: Service, meter: Callable[[], float]) -> None:
        self._loop, self._meter = service._worker.loop, meter
        self._runs = True
        self.most = self.last = 0.0
        self.turns = 0
        self._loop.call_soon_threadsafe(self._turn)
        self.reset()

    def _turn(self) -> None:
        now = self._meter()
        self.most, self.last = max(self.most, now - self.last), now
        self.turns += 1
        if self._runs:
            self._loop.call_soon(self._turn)

    def reset(self) -> None:
        """Begin anew."""
        done = threading.Event()

        def begin() -> None:
            self.most, self.last = 0.0, self._meter()
            done.set()

        self._loop.call_soon_threadsafe(begin)
        assert done.wait(SOON)

    def of(self, url: str, request: bytes) -> float:
        """The most while a request is answered."""
        self.reset()
        assert raw(url, request)[0]
        return self.most

    def end(self) -> None:
        """Leave the loop."""
        self._runs = False


class Calls:
    """Counts the calls of the thread that asks first."""

    def __init__(self) -> None:
        self._count = -1

    def __call__(self) -> float:
        if self._count < 0:
            self._count = 0
            sys.setprofile(self._note)
        return self._count

    def _note(self, _: FrameType, event: str, __: object) -> None:
        self._count += event in {"call", "c_call"}


@contextlib.contextmanager
def watched(service: Service, meter: Callable[[], float]) -> Iterator[Turns]:
    """A probe in the loop of a service that has answered before.

    The collector of garbage would walk all that other tests left in this process, in the middle of a turn.
    """
    gc.collect()
    gc.disable()
    try:
        assert service._worker._is_warm.wait(SOON)
        # What is made at the first request of a kind, such as patterns of the router, is not of each request.
        for target in (f"/v1/markets/m1/books?{WINDOW}", *PLACES) * 3:
            for part in ("", "9", "%"):
                raw(service.base_url, get(service, target.format(part)))
        probe = Turns(service, meter)
        yield probe
        probe.end()
    finally:
        gc.enable()


@pytest.fixture(scope="module")
def counted(archive: MemoryArchive) -> Iterator[tuple[Service, Turns]]:
    """A service, and the calls of its loop."""
    with serve(archive) as service, watched(service, Calls()) as probe:
        yield service, probe


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
PLACES = (
    "/v1/health?{}", "/v1/markets?{}", "/v1/markets?search={}", "/v1/markets?tags={}", "/v1/markets?cursor={}",
    "/v1/markets?start_date_min={}", "/v1/markets/{}", "/v1/markets/{}/books?" + WINDOW, "/v1/{}", "/{}",
    "/v1/markets/m1/books?" + WINDOW + "&cursor={}", "/v1/markets/m1/books?" + WINDOW + "&limit={}",
    "/v1/markets/m1/books?end_ts=2026-01-06&resolution=1m&start_ts={}", "/v1/markets/m1/books?resolution={}",
)  # fmt: skip
places = st.sampled_from(PLACES)
names = st.sampled_from(["Accept-Encoding", "X-Other", "Cookie", "Accept", "Content-Type", "Host", "X-API-Key"])


shapes = given(
    place=places, part=parts, size=st.integers(0, MAX_URL - 100), name=names, count=st.integers(0, 90), wide=parts
)


def shaped(service: Service, place: str, part: str, size: int, name: str, count: int, wide: str) -> bytes:
    """A request of that shape."""
    return get(service, place.format(filled(part, size)), *[f"{name}: {filled(wide, 330)}"] * count)


@pytest.mark.fault("S42")
@shapes
@example(place="/v1/health?{}", part="%", size=MAX_URL - 100, name="Cookie", count=90, wide=";")
@example(place="/v1/health?{}", part="%", size=MAX_URL - 100, name="Accept-Encoding", count=90, wide=",")
@settings(max_examples=100)
def test_no_shape_of_a_request_holds_the_loop(
    counted: tuple[Service, Turns], place: str, part: str, size: int, name: str, count: int, wide: str
) -> None:
    """Whatever fills a URL up to 8 kB and headers up to 32 kB, no turn makes more than 20,000 calls."""
    service, probe = counted
    assert probe.of(service.base_url, shaped(service, place, part, size, name, count, wide)) <= MOST


@pytest.mark.soak
@pytest.mark.fault("S42")
def test_no_shape_of_a_request_takes_long(archive: MemoryArchive) -> None:
    """The same in time: no turn is 1,600 empty ones (5 ms) long; of three the shortest, which has no pause."""
    with serve(archive) as service, watched(service, time.thread_time) as probe:
        begun, first = probe.last, probe.turns
        time.sleep(0.5)
        empty = (probe.last - begun) / (probe.turns - first)

        @shapes
        def is_short(**shape: object) -> None:
            request = shaped(service, **shape)  # type: ignore[arg-type]
            assert min(probe.of(service.base_url, request) for _ in range(3)) <= MOST_EMPTY * empty

        is_short()


@pytest.mark.fault("S42")
def test_more_parameters_than_any_route_has_are_refused(local: Service) -> None:
    """A URL of more than 64 parameters is 400 before it is read; up to that they are counted in one pass."""
    with requests.Session() as session:
        web = Web(local.base_url, local.api_key, session)
        assert web.get("/v1/health?" + "a&" * (MAX_PARAMETERS - 1)).status == 422
        answer = web.get("/v1/health?" + "a&" * MAX_PARAMETERS)
    assert (answer.status, answer.body) == (400, {"detail": "The URL has more than 64 parameters."})


@pytest.mark.fault("S42")
def test_many_short_requests_at_once_share_the_loop(counted: tuple[Service, Turns]) -> None:
    """Thousands of requests in one packet are parsed bit by bit, and none of them is lost."""
    service, probe = counted
    count = 4_000
    host, port = service.base_url.removeprefix("http://").split(":")
    probe.reset()
    with socket.create_connection((host, int(port)), timeout=SOON) as connection:
        sending = threading.Thread(target=connection.sendall, args=(b"GET / HTTP/1.1\r\n\r\n" * count,))
        sending.start()
        got, tail = 0, b""
        while got < count:
            more = connection.recv(2**20)
            assert more
            got += (tail + more).count(b"HTTP/1.1 400")
            tail = more[-11:]
        sending.join()
    assert probe.most <= MOST


@pytest.mark.fault("S42")
@pytest.mark.parametrize("size", [1, 7, 2048])
def test_requests_in_pieces_of_any_size_are_whole(local: Service, size: int) -> None:
    """However few bytes arrive at once, requests that come together are answered in order."""
    asked = [f"/v1/markets/{name}" for name in ("m1", "none", "m3", "%20" * 600)]
    head = f"Host: 127.0.0.1\r\nX-API-Key: {local.api_key}\r\n\r\n"
    data = "".join(f"GET {path} HTTP/1.1\r\n{head}" for path in asked).encode()
    host, port = local.base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=SOON) as connection:
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
    asked = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX-API-Key: 4999\r\n\r\n"
    with serve(archive, keys=path) as service, watched(service, Calls()) as probe:
        assert raw(service.base_url, asked)[0] == 200
        path.write_text(f"[plans.p]\n{keys.removesuffix('false')}true\n")
        probe.reset()
        assert raw(service.base_url, asked)[0] == 401
        assert probe.most <= MOST
