"""A service on a socket: start, stop, signals, heads, forwarded addresses, and one run of the client."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from reference.clocks import SOON
from reference.memory import MemoryArchive
from reference.web import Answer, Web, raw

import marketdata as md
from marketdata.errors import ConfigError, MarketDataWarning
from marketdata.service import run, serve
from marketdata.service.server import Service

DAY = ("2026-01-05", "2026-01-06")


@pytest.fixture(scope="module")
def service(stored: md.Archive):
    """A service of an archive, with a socket."""
    with serve(stored) as running:
        yield running


def head(service: Service, *lines: str, path: str = "/v1/health") -> bytes:
    return "\r\n".join(
        [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"X-API-Key: {service.api_key}", *lines, "", ""]
    ).encode()


@pytest.mark.fault("S40")
def test_every_method_of_the_client_is_answered(service: Service) -> None:
    """Discovery, tokens, usage, health, histories and refusals, through the client."""
    client = md.Client(service.base_url, service.api_key, frame="polars")
    assert client.series()["slug"].to_list() == ["weather"]
    assert set(client.events(series_slug="weather")["slug"].to_list()) == {"rain", "snow"}
    assert client.markets(event_slug="rain", page_size=1)["slug"].to_list() == ["will-it-rain"]
    assert client.market("will-it-rain")["id"] == "m1"
    assert client.tags() == ["daily", "nature"]
    assert client.health()["status"] == "ok"
    assert client.usage()["plan"] == "local"
    assert len(client.prices("m3", *DAY, "1h")) == 9
    assert len(client.token_prices("w9", *DAY, "1m")) == 1
    with pytest.raises(md.errors.NotFoundError, match="Market not found: nope"):
        client.prices("nope", *DAY, "1m")
    with pytest.raises(md.errors.AuthenticationError, match="Invalid or expired API key"):
        md.Client(service.base_url, "wrong").health()


@pytest.mark.fault("S24", "S2")
def test_a_head_that_is_too_large_or_no_http_is_refused(service: Service) -> None:
    """The server refuses it or ends the connection, and serves others."""
    for lines in (["X-Big: " + "x" * 1_000_000], [f"X-{i}: 1" for i in range(20_000)], ["X-A: a\0b"]):
        assert raw(service.base_url, head(service, *lines))[0] in {0, 400, 431}
    assert raw(service.base_url, head(service, path="/v1/" + "x" * 1_000_000))[0] in {0, 400, 414}
    status, headers, _ = raw(service.base_url, head(service, "Content-Length: 100000000", "Connection: close"))
    assert (status, "server" in headers) == (200, False)


@pytest.mark.fault("S43")
def test_a_forwarded_address_is_believed_from_a_named_proxy_only(stored: md.Archive, caplog) -> None:
    """The log names the address that connects, or behind a trusted proxy the one that it names."""
    caplog.set_level(logging.INFO, "marketdata.service.access")
    for proxies, expected in ((), "127.0.0.1"), (["127.0.0.1"], "10.2.0.1"):
        with serve(stored, trusted_proxies=proxies) as running:
            caplog.clear()
            Web(running.base_url, running.api_key, requests).get("/v1/health", {"X-Forwarded-For": "10.2.0.1"})
        assert caplog.messages[-1].startswith(f"{expected} GET /v1/health 200 ")
    with pytest.raises(ConfigError, match="trusted_proxies='nginx' is not an address"):
        serve(stored, trusted_proxies=["nginx"])


@pytest.mark.fault("S36", "S46")
def test_closing_finishes_what_runs_and_takes_nothing_new() -> None:
    """A request in flight is answered, and then the port is free."""
    begun, hold = threading.Event(), threading.Event()

    class Slow(MemoryArchive):
        def find_market(self, id_or_slug: str) -> None:
            begun.set()
            hold.wait(SOON)

    with ThreadPoolExecutor(2) as pool:
        running = serve(Slow())
        web = Web(running.base_url, running.api_key, requests)
        answer = pool.submit(web.get, "/v1/markets/m")
        assert begun.wait(SOON)
        # The event loop does not wait for the archive.
        assert web.get("/v1/health").status == 200
        closing = pool.submit(running.close)
        hold.set()
        assert answer.result().status == 404
        closing.result()
    with pytest.raises(requests.ConnectionError):
        web.get("/v1/health")


@pytest.mark.fault("S36", "S46")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
def test_a_signal_cuts_no_body(stored: md.Archive) -> None:
    """The service says address and key once; told to stop under load it finishes its answers and returns."""
    said: list[str] = []
    answers: list[Answer] = []

    def ask() -> None:
        web = Web(said[0].split()[-1], said[1].split()[-1], requests.Session())
        with contextlib.suppress(requests.ConnectionError):
            while True:
                answers.append(web.history("books", limit=200))
                if len(answers) == 4:
                    os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(2) as pool:

        def say(line: str) -> None:
            said.append(line)
            if "MARKETDATA_API_KEY" in line:
                asking.extend(pool.submit(ask) for _ in range(2))

        asking: list[Future[None]] = []
        run(stored, port=0, say=say)
        for future in asking:
            future.result()
    assert len(said) == 3
    assert said[2].endswith(f"MARKETDATA_API_KEY={said[1].split()[-1]}")
    assert {answer.status for answer in answers} == {200}


@pytest.mark.fault("S39")
def test_what_cannot_be_served_is_said_before_a_port_is_bound(
    stored: md.Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Address, keys and plans that are refused are a ConfigError; an address that others reach needs a key file."""
    monkeypatch.setattr("socket.socket", None)
    refused: list[tuple[dict[str, Any], str]] = [
        *(({"host": host}, "keys=<file>") for host in ("0.0.0.0", "::", "192.0.2.1", "example.org")),
        *(({"port": port}, "allowed are whole numbers from 0 to 65535") for port in (-1, 65_536, "8000", 80.5, True)),
        ({"keys": "none.toml"}, "no key file none.toml"),
        ({"plans": {"local": {"views": ["trades"]}}}, "plans.local.views"),
    ]
    for options, named in refused:
        for start in (serve, run):
            with pytest.raises(ConfigError, match=named):
                start(stored, **options)


def test_what_is_no_archive_is_not_served(tmp_path: Path) -> None:
    """A path, a folder that is not there, and one of other files are a ConfigError that names them."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    for archive in ("no such folder", tmp_path, None, md.Archive(tmp_path / "missing"), md.Archive(tmp_path / "other")):
        with pytest.raises(ConfigError, match=r"md.Archive\(|missing|other"):
            md.serve(archive)  # type: ignore[arg-type]
    # An empty folder becomes an archive with the first pull.
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        with serve(md.Archive(tmp_path / "empty")) as running:
            assert len(md.Client(running.base_url, running.api_key).markets()) == 0


def test_a_port_that_is_taken_is_named(service: Service, stored: md.Archive) -> None:
    """A taken port, and a host that is no name, are a ConfigError that says which."""
    port = int(service.base_url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"{port} cannot be bound"):
        serve(stored, port=port)
    with pytest.warns(MarketDataWarning, match="TLS"), pytest.raises(ConfigError, match="cannot be bound"):
        serve(stored, host="a\0b", keys={"k": "local"})
