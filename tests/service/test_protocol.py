"""Rows S24 to S28 and S34 to S39: what comes over the wire, and what goes wrong behind it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from service.apart import process
from service.conftest import delta_archive, small_archive
from service.memory import MINUTE, MemoryArchive
from service.web import START, Web, cases, raw, read_answer, strict_json, window
from still import SOON

from marketdata.errors import ArchiveCorruptError, ConfigError, MarketDataWarning
from marketdata.service import run
from marketdata.service.auth import Entry, Keys, digest
from marketdata.service.connections import HEAD_SECONDS, Connections
from marketdata.service.fair_queue import CLIENT_SLOTS, FairQueue
from marketdata.service.pagination import MAX_READS
from marketdata.service.plans import AccessPlan
from marketdata.service.server import Service, build, serve, start


def head(service: Service | SimpleNamespace, path: str = "/v1/health", *more: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {service.api_key}", *more, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def connect(service: Service | SimpleNamespace) -> socket.socket:
    host, port = service.base_url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=SOON)


BODY = "Content-Length: 100000000"


def peak(pid: int) -> int:
    """The most memory that a process ever held [bytes]."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.fault("S24")
@pytest.mark.parametrize("size", [8_500, 70_000, 300_000, 8_000_000])
def test_a_long_url_is_refused(local: Service, size: int) -> None:
    """A URL above 8 KiB is 414 as JSON, or the connection ends."""
    status, headers, body = raw(local.base_url, head(local, "/v1/markets/" + "x" * size))
    assert status in {0, 414}
    if status:
        assert headers["content-type"] == "application/json"
        assert "URL" in strict_json(body)["detail"]
    assert raw(local.base_url, head(local))[0] == 200


@pytest.mark.fault("S24", "S25")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of another process is read from /proc")
def test_a_request_without_end_is_not_kept(tmp_path: Path) -> None:
    """Heads and bodies of 100 MB each cost the service's process less than 10 MB."""
    delta_archive(small_archive(), tmp_path)
    with process(tmp_path) as (running, url, key):
        service = SimpleNamespace(base_url=url, api_key=key)
        for _ in range(20):
            assert raw(url, head(service))[0] == 200
        before = peak(running.pid)
        for begin in (b"GET /v1/markets/", head(service)[:-2] + b"X-Big: ", head(service, "/v1/health", BODY)):
            with connect(service) as connection, contextlib.suppress(OSError):
                connection.sendall(begin)
                for _ in range(1_000):
                    connection.sendall(b"x" * 100_000)
        assert peak(running.pid) - before < 10_000_000
        assert raw(url, head(service))[0] == 200


@pytest.mark.fault("S24")
@pytest.mark.parametrize(
    "more", [["X-Big: " + "x" * 40_000], ["X-Big: " + "x" * 1_000_000], [f"X-{i}: 1" for i in range(20_000)]]
)
def test_large_headers_are_refused(local: Service, more: list[str]) -> None:
    """40 kB or 1 MB of one header, and 20,000 headers, are 431 as JSON, or the connection ends."""
    status, headers, body = raw(local.base_url, head(local, "/v1/health", *more))
    assert status in {0, 431}
    if status:
        assert headers["content-type"] == "application/json"
        assert "headers" in strict_json(body)["detail"]
    assert raw(local.base_url, head(local))[0] == 200


@pytest.mark.fault("S25")
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE"])
@pytest.mark.parametrize("path", ["/v1/health", "/v1/markets/m1/books", "/v1/markets"])
def test_other_methods_are_405(local: Service, method: str, path: str) -> None:
    """405 with Allow and a JSON body (none for HEAD)."""
    status, headers, body = raw(local.base_url, head(local, path, "Connection: close", method=method))
    assert (status, headers["allow"]) == (405, "GET")
    assert headers["content-type"] == "application/json"
    assert body == b"" if method == "HEAD" else strict_json(body) == {"detail": "Method Not Allowed"}


@pytest.mark.fault("S25")
def test_a_method_that_nobody_knows_is_405(local: Service) -> None:
    """FOO is refused as a method, and nonsense as no HTTP, both as JSON."""
    status, headers, body = raw(local.base_url, head(local, method="FOO"))
    assert (status, headers["allow"], strict_json(body)) == (405, "GET", {"detail": "Method Not Allowed"})
    for nonsense in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nA B: \x00\r\n\r\n",
        b"\0" * 99,
    ):
        status, headers, body = raw(local.base_url, nonsense)
        assert (status, headers["content-type"]) == (400, "application/json")
        assert strict_json(body) == {"detail": "Invalid HTTP request received."}


@pytest.mark.fault("S25")
def test_a_get_with_a_body_is_answered_at_once(local: Service) -> None:
    """A GET that announces 100 MB of body is answered before it comes, and its connection ends."""
    with connect(local) as connection:
        connection.sendall(head(local, "/v1/health", BODY))
        status, headers, _ = read_answer(connection)
        assert (status, headers["connection"]) == (200, "close")


class Failing(MemoryArchive):
    """An archive that fails as disks and files do."""

    problem: BaseException = OSError("/secret/path: input/output error")

    def columns(self, *asked):
        raise self.problem

    def find_market(self, id_or_slug):
        if id_or_slug == "broken":
            raise self.problem
        return super().find_market(id_or_slug)


@pytest.mark.fault("S27")
@pytest.mark.parametrize(
    "problem",
    [OSError(5, "Input/output error", "/secret/path"), ArchiveCorruptError("/secret/path is damaged"), ValueError("x"),
     RecursionError(), MemoryError()],
    ids=lambda p: type(p).__name__,
)  # fmt: skip
def test_a_fault_is_500_and_tells_nothing(problem: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """What fails inside is 500 `Failed to fetch data.`; the log has the cause under the answer's id, no key."""
    archive = Failing()
    archive.problem = problem
    archive.add_market("m", {"Yes": "1"})
    archive.put("books", "m", "1", START, ([], []))
    with serve(archive) as service, requests.Session() as session:
        web, named = Web(service.base_url, service.api_key, session), []
        for path in ("/v1/markets/m/books", "/v1/markets/broken/books", "/v1/markets/broken"):
            answer = web.get(path, **window())
            assert (answer.status, answer.body) == (500, {"detail": "Failed to fetch data."})
            named.append(f"request {answer.headers['x-request-id']} failed")
        assert web.get("/v1/health").status == 200
        assert all(text in caplog.text for text in named)
        assert str(service.api_key) not in caplog.text


@pytest.mark.fault("S26")
def test_every_refusal_is_json(local: Service) -> None:
    """Whatever the status, the body is `{"detail": ...}` as JSON, with the headers of every answer."""
    books = "/v1/markets/m1/books?start_ts=1&end_ts=2&resolution=1m"
    asked = {
        400: head(local, books + "&cursor=x"),
        401: b"GET /v1/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        404: head(local, "/v1/nowhere"),
        405: head(local, method="POST"),
        414: head(local, "/" + "x" * 9000),
        422: head(local, books + "&limit=x"),
        431: head(local, "/v1/health", "X: " + "x" * 40_000),
    }
    for expected, data in asked.items():
        status, headers, body = raw(local.base_url, data)
        assert (status, headers["content-type"]) == (expected, "application/json")
        assert set(strict_json(body)) == {"detail"}
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.fault("S28")
def test_what_is_not_a_number_is_null(caplog: pytest.LogCaptureFixture) -> None:
    """NaN and infinities in the archive are null in JSON, never a word that JSON lacks, never 500."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    archive.put("books", "m", "1", START, ([(math.nan, math.inf)], [(0.5, -math.inf)]))
    archive.put("prices", "m", "1", START, math.inf)
    archive.put("metrics", "m", None, START, {"volume": math.nan, "liquidity": -math.inf, "spread": None, "x": 1.0})
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        book = web.history("books", "m").body["data"]["Yes"][0]
        assert (book["bids"], book["asks"]) == ([[None, None]], [[0.5, None]])
        assert web.history("prices", "m").body["data"]["Yes"][0]["p"] is None
        point = web.history("metrics", "m").body["data"][0]
        assert {k: v for k, v in point.items() if k != "t"} == {
            "volume": None, "liquidity": None, "spread": None, "x": 1.0,
        }  # fmt: skip


def let_pass(service: Service, seconds: float) -> None:
    """Tell the loop of a service that so much time has passed."""
    loop, time = service._worker.loop, service._worker.loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
    loop.call_soon_threadsafe(lambda: None)


@pytest.mark.fault("S34")
def test_slow_heads_are_closed(archive: MemoryArchive) -> None:
    """Connections that send nothing, a part of a head, or blank lines end; others are served meanwhile."""
    with serve(archive) as service, contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(service)) for _ in range(60)]
        for i, connection in enumerate(slow):
            connection.sendall([b"", b"GET /v1/health HT", b"GET / HTTP/1.1\r\nA: b\r\n", b"\r\n\r\n"][i % 4])
        # Answered behind what the others sent.
        assert raw(service.base_url, head(service))[0] == 200
        let_pass(service, HEAD_SECONDS)
        for connection in slow:
            with contextlib.suppress(OSError):
                while connection.recv(1000):
                    pass


@pytest.mark.fault("S34")
def test_a_kept_connection_owes_a_head_too(archive: MemoryArchive) -> None:
    """After an answer, the next request on the connection has the same time for its head."""
    with serve(archive) as service, connect(service) as connection:
        for _ in range(2):
            connection.sendall(head(service))
            assert read_answer(connection)[0] == 200
        connection.sendall(b"GET /v1/hea")
        assert raw(service.base_url, head(service))[0] == 200
        let_pass(service, HEAD_SECONDS)
        assert connection.recv(1000) == b""


def open_connections(service: Service) -> int:
    return len(service._worker.connections.open)


def until_closed(service: Service) -> None:
    deadline = time.monotonic() + SOON
    while open_connections(service):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.fault("S34")
def test_a_client_that_does_not_read_is_closed(archive: MemoryArchive) -> None:
    """Answers that nobody takes are given up, and their room is free again."""
    with serve(archive) as service, connect(service) as connection:
        service._worker.connections.stall_seconds = 0.2
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        asked = head(service, "/v1/markets/m1/books?start_ts=2026-01-05&end_ts=2026-01-06&resolution=1m&limit=200")
        with contextlib.suppress(OSError):
            connection.sendall(asked * 500)
        until_closed(service)
        assert raw(service.base_url, head(service))[0] == 200


@pytest.mark.fault("S34")
def test_clients_that_do_not_read_hold_up_nobody_of_their_key(archive: MemoryArchive) -> None:
    """More answers that nobody takes than a key has places, and the key's next request is answered."""
    with serve(archive) as service, contextlib.ExitStack() as opened:
        asked = head(service, "/v1/markets/m1/books?start_ts=2026-01-05&end_ts=2026-01-06&resolution=1m&limit=200")
        for _ in range(2 * CLIENT_SLOTS):
            connection = opened.enter_context(connect(service))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):
                connection.sendall(asked * 500)
        while len(service._worker.connections.unread) < CLIENT_SLOTS:
            time.sleep(0.01)
        assert raw(service.base_url, asked)[0] == 200


BOOKS = "/v1/markets/m1/books?start_ts=2026-01-05&end_ts=2026-01-06&resolution=1m&limit=200"


def unsent(service: Service) -> list[int]:
    """Bytes of answers that clients have not taken, by connection."""
    found = [transport.get_write_buffer_size() for transport in list(service._worker.connections.unread)]
    return sorted(found, reverse=True)


def wide_archive() -> MemoryArchive:
    """A market whose page of books is about 6 MB."""
    archive = MemoryArchive()
    archive.add_market("m1", {"Yes": "1"})
    side = [(k / 1000, 1.5) for k in range(1, 1200)]
    for minute in range(200):
        archive.put("books", "m1", "1", START + minute * MINUTE, (side, side))
    return archive


def lazy(service: Service, opened: contextlib.ExitStack, data: bytes) -> socket.socket:
    """A client that sends and does not read."""
    host, port = service.base_url.removeprefix("http://").split(":")
    connection = opened.enter_context(socket.socket())
    # Before the connection is made, so that the kernel keeps little of what is not read.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.connect((host, int(port)))
    connection.settimeout(0.2)
    with contextlib.suppress(OSError):
        connection.sendall(data)
    return connection


@pytest.mark.fault("S45")
def test_a_connection_leaves_one_answer_unread(caplog: pytest.LogCaptureFixture) -> None:
    """Of 300 requests on a connection that reads nothing one is answered; the others wait, and are answered."""
    caplog.set_level(logging.INFO, "marketdata.service.access")
    with serve(wide_archive()) as service, contextlib.ExitStack() as opened:
        page = len(raw(service.base_url, head(service, BOOKS))[2])
        connection = lazy(service, opened, head(service, BOOKS) * 300)
        while not any(unsent(service)):
            time.sleep(0.01)
        assert [raw(service.base_url, head(service))[0] for _ in range(20)] == [200] * 20
        # The kernel took some.
        assert len([r for r in caplog.records if "/books" in r.getMessage()]) <= 4
        assert 0 < unsent(service)[0] < 1.1 * page
        connection.settimeout(20)
        for _ in range(2):
            status, _, body = read_exactly(connection)
            assert (status, len(body)) == (200, page)


def read_exactly(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer of several on a connection."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(1)
    top, _, _ = got.partition(b"\r\n\r\n")
    headers = dict(line.decode().lower().split(": ", 1) for line in top.split(b"\r\n")[1:])
    body = b""
    while len(body) < int(headers["content-length"]):
        body += connection.recv(int(headers["content-length"]) - len(body))
    return int(top.split()[1]), headers, body


@pytest.mark.fault("S45")
def test_all_connections_leave_a_bounded_number_of_bytes() -> None:
    """Where more is unread than the service keeps, the clients that owe most are given up and others served."""
    with serve(wide_archive()) as service, contextlib.ExitStack() as opened:
        service._worker.connections.max_unsent = 8_000_000
        page = len(raw(service.base_url, head(service, BOOKS))[2])
        assert page > 5_000_000
        for _ in range(12):
            lazy(service, opened, head(service, BOOKS))
            status, _, body = raw(service.base_url, head(service, BOOKS))
            assert (status, len(body)) == (200, page)
            assert sum(unsent(service)) <= 8_000_000
        # The kernel holds a part of each.
        assert open_connections(service) <= 8


@pytest.mark.fault("S39")
def test_a_public_address_without_a_proxy_warns(archive: MemoryArchive) -> None:
    """Who listens beyond this machine without a proxy is warned that keys travel unencrypted."""
    with pytest.warns(MarketDataWarning, match="unencrypted"):
        serve(archive, host="0.0.0.0", keys={"k": "local"}).close()
    serve(archive, host="0.0.0.0", keys={"k": "local"}, trusted_proxies=["10.0.0.0/8"]).close()


@pytest.mark.fault("S34")
def test_an_idle_connection_is_closed(archive: MemoryArchive) -> None:
    """A kept connection on which nothing comes is closed, without a request of its own."""
    with serve(archive) as service:
        service._worker.connections.idle_seconds = 0.1
        with connect(service) as connection:
            connection.sendall(head(service))
            assert read_answer(connection)[0] == 200
            assert connection.recv(1000) == b""
        until_closed(service)


def test_many_requests_at_once_on_one_connection(local: Service) -> None:
    """Requests that are sent without waiting are answered one after the other, however many bytes they are."""
    with connect(local) as connection:
        sending = threading.Thread(target=connection.sendall, args=(head(local, "/v1/health?" + "x" * 2_000) * 300,))
        sending.start()
        got = b""
        while got.count(b"HTTP/1.1 200") < 300:
            more = connection.recv(65536)
            assert more
            got += more
        sending.join()
    assert got.count(b"HTTP/1.1 ") == 300


@pytest.mark.fault("S35")
def test_overload_is_503(archive: MemoryArchive) -> None:
    """Above the bound of requests in flight the answer is 503 as JSON with Retry-After; open connections do not
    count.
    """
    hold = threading.Event()

    class Slow(MemoryArchive):
        def find_market(self, id_or_slug: str):
            hold.wait(SOON)

    access = build(Slow(), Keys([Entry("local", digest(b"k"), "p")], {"p": AccessPlan("p")}))
    access.queue = FairQueue(room=3)
    with start(access, api_key="k") as service, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(service))

        def one(_: int) -> requests.Response:
            return requests.get(service.base_url + "/v1/markets/m", headers={"X-API-Key": "k"}, timeout=SOON)

        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(one, i) for i in range(3)]
            while access.queue.in_flight < 3:
                pass
            refused = one(0)
            hold.set()
            assert [f.result().status_code for f in running] == [404] * 3
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json() == {"detail": "The service is busy. Please try again later."}
        assert one(0).status_code == 404


@pytest.mark.fault("S36")
def test_the_end_of_the_block_answers_what_runs(archive: MemoryArchive) -> None:
    """Closing completes the requests in flight and takes no new ones."""
    begun, hold = threading.Event(), threading.Event()

    class Slow(MemoryArchive):
        def find_market(self, id_or_slug: str):
            begun.set()
            hold.wait(SOON)

    with ThreadPoolExecutor(2) as pool:
        service = serve(Slow())
        running = pool.submit(
            requests.get, service.base_url + "/v1/markets/m", headers={"X-API-Key": str(service.api_key)}, timeout=SOON
        )
        assert begun.wait(SOON)
        closing = pool.submit(service.close)
        hold.set()
        assert running.result().status_code == 404
        closing.result()
    with pytest.raises(OSError, match="refused"):
        connect(service)


def stop_under_load(path: Path, how: signal.Signals, workers: int = 1) -> int:
    """Ask a process from four sides, end it with a signal meanwhile; how many whole answers came."""
    whole: list[int] = []
    answered = threading.Event()

    def ask(url: str, key: str) -> None:
        with requests.Session() as session:
            while True:
                try:
                    answer = session.get(
                        f"{url}/v1/markets/m1/books",
                        params={**window(), "limit": "200"},
                        headers={"X-API-Key": key},
                        timeout=SOON,
                    )
                except requests.exceptions.ChunkedEncodingError:
                    if how != signal.SIGKILL:
                        raise  # a body was cut
                    return
                except requests.ConnectionError:
                    return
                assert answer.status_code == 200
                whole.append(len(answer.json()["data"]["Yes"]))
                answered.set()

    with process(path, workers=workers) as (running, url, key), ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, url, key) for _ in range(4)]
        assert answered.wait(SOON)
        running.send_signal(how)
        # S46: who asked it to stop sees that nothing failed.
        assert running.wait(SOON) == (0 if how == signal.SIGTERM else -how)
        for f in asking:
            f.result()
    assert len(set(whole)) == 1
    return len(whole)


@pytest.mark.fault("S36", "S46")
def test_sigterm_cuts_no_body_and_exits_with_0(tmp_path: Path) -> None:
    """A process that is told to stop under load finishes its answers and exits with 0, after SIGKILL too."""
    delta_archive(small_archive(), tmp_path)
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        assert stop_under_load(tmp_path, how)


@pytest.mark.fault("G18")
@pytest.mark.soak
def test_a_hundred_stops_cut_no_body(tmp_path: Path) -> None:
    """100 stops under load, and not one 200 body is cut."""
    delta_archive(small_archive(), tmp_path)
    answers = sum(stop_under_load(tmp_path, signal.SIGTERM) for _ in range(cases(100)))
    print(f"\n{cases(100)} stops, {answers} answers, none cut")


@pytest.mark.fault("S37")
def test_one_request_reads_a_bounded_number_of_chunks() -> None:
    """Over a long range that is held but empty in parts a request gives up its turn with a cursor."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    for chunk in range(MAX_READS * 2 + 5):
        archive.put("prices", "m", "1", START + chunk * 16_384 * MINUTE, 0.5)
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        bodies = list(web.walk("/v1/markets/m/prices", start_ts="2026-01-05", end_ts="2030-01-05", resolution="1m"))
    assert [body["metadata"]["count"] for body in bodies] == [MAX_READS, MAX_READS, 5]
    assert len({p["t"] for body in bodies for p in body["data"]["Yes"]}) == MAX_READS * 2 + 5


@pytest.mark.fault("S37")
def test_the_event_loop_does_not_wait_for_the_archive() -> None:
    """While a read hangs, health answers on another key and connection."""
    hold = threading.Event()

    class Slow(MemoryArchive):
        def columns(self, *asked):
            hold.wait(SOON)
            return super().columns(*asked)

    archive = Slow()
    archive.add_market("m", {"Yes": "1"})
    archive.put("prices", "m", "1", START, 0.5)
    with serve(archive) as service, ThreadPoolExecutor(1) as pool, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        with requests.Session() as other:
            hanging = pool.submit(Web(service.base_url, service.api_key, other).history, "prices", "m")
            assert [web.get("/v1/health").status for _ in range(5)] == [200] * 5
            assert not hanging.done()
            hold.set()
            assert hanging.result().status == 200


@pytest.mark.fault("S38")
def test_the_log_is_one_line_per_request(local: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Line ends, escapes and marks of direction in a path are escaped in the log."""
    caplog.set_level(logging.INFO)
    for slug in ("a%0d%0aforged 200", "%1b[31mred", "%E2%80%AEtxt", "a\x1b"):
        raw(local.base_url, head(local, f"/v1/markets/{slug}"))
    raw(local.base_url, head(local))
    for record in caplog.records:
        text = record.getMessage()
        assert text.isprintable()
    assert len([r for r in caplog.records if "/v1/markets/" in r.getMessage()]) >= 2


@pytest.mark.fault("S39")
def test_without_keys_it_binds_loopback_only(archive: MemoryArchive) -> None:
    """An address that others reach needs a key store; the refusal says so before anything is bound."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org"):
        with pytest.raises(ConfigError, match="keys=<file>"):
            serve(archive, host=host)
        with pytest.raises(ConfigError, match="keys=<file>"):
            run(archive, host)


@pytest.mark.fault("S39")
def test_a_port_that_is_taken_is_named(local: Service, archive: MemoryArchive) -> None:
    """A taken port is a ConfigError that says which."""
    port = int(local.base_url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=str(port)):
        serve(archive, port=port)


@pytest.mark.fault("S39")
def test_no_other_site_may_read_the_answers(local: Service) -> None:
    """No CORS header, whatever the Origin, and nothing is cached."""
    _, headers, _ = raw(local.base_url, head(local, "/v1/health", "Origin: http://evil.example"))
    assert not [name for name in headers if name.startswith("access-control")]
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_the_key_is_said_once(tmp_path: Path) -> None:
    """The process prints its address, its key, and a line that exports both, each once, and nothing more."""
    delta_archive(small_archive(), tmp_path)
    with process(tmp_path) as (running, url, key):
        assert running.stdout is not None
        assert running.stdout.readline() == "For another terminal:\n"
        exported = running.stdout.readline().split()
        assert exported == ["export", f"MARKETDATA_BASE_URL={url}", f"MARKETDATA_API_KEY={key}"]
        assert requests.get(f"{url}/v1/health", headers={"X-API-Key": key}, timeout=SOON).status_code == 200
        running.send_signal(signal.SIGTERM)
        out, err = running.communicate(timeout=SOON)
    assert (out, err, running.returncode) == ("", "", 0)


@pytest.mark.fault("G17")
@pytest.mark.soak
def test_five_hundred_slow_connections_leave_room(local: Service) -> None:
    """500 connections that send a byte now and then are closed in 15 s, and others are served all the while."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(local)) for _ in range(500)]
        for connection in slow:
            connection.sendall(b"GET / HTTP/1.1\r\n")
        until = time.monotonic() + 14
        worst = 0.0
        while time.monotonic() < until:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(b"X")
            begun = time.perf_counter()
            assert raw(local.base_url, head(local))[0] == 200
            worst = max(worst, time.perf_counter() - begun)
            time.sleep(0.5)
        print(f"\n500 slow connections: slowest other answer {worst * 1e3:.0f} ms")
        for connection in slow:
            connection.settimeout(5)
            with contextlib.suppress(ConnectionError):
                assert not connection.recv(1000)


@pytest.mark.parametrize("turns", range(5))
def test_a_connection_that_comes_as_the_service_ends_is_closed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the turn of the loop in which it is accepted; a socket that is forgotten is told by the interpreter."""
    forgotten: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: forgotten.append(problem.exc_value))
    clients: list[socket.socket] = []

    async def respond(head: bytes, address: str) -> tuple[bytes, bool]:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True

    async def run() -> None:
        end = asyncio.Event()
        serving = asyncio.create_task(Connections(listener, respond).serve(end))
        await asyncio.sleep(0.01)
        clients.extend(socket.create_connection(listener.getsockname()) for _ in range(3))
        for _ in range(turns):
            await asyncio.sleep(0)
        end.set()
        await serving

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(run())
    for client in clients:
        client.close()
    gc.collect()
    assert forgotten == []
