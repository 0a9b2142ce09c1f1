"""Rows S1 to S8, S10, S11 and S33: who may ask for what."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import hashlib
import hmac
import logging
import math
import os
import re
import socket
from typing import Any

import pytest
import requests
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st
from service.memory import MemoryArchive
from service.web import START, Web, raw, stop_minute, window

from marketdata.errors import ConfigError, MarketDataWarning
from marketdata.service import auth as keys_module
from marketdata.service.access import network_of
from marketdata.service.auth import Entry, Grant, KeyFile, Keys, create_key_file, digest, read_key_file
from marketdata.service.plans import DAY, AccessPlan
from marketdata.service.rate_limit import RateLimiter
from marketdata.service.server import Service, serve

REFUSED = {"detail": "Invalid or expired API key."}
NOW = START / 1e6 + 10 * DAY


GOOD_KEY = "[[keys]]\nid = 'k'\nhash = 'sha256:" + "0" * 64 + "'"
GOOD = f"[plans.a]\n{GOOD_KEY}\nplan = 'a'"
# What an owner writes by hand: own comments, an order of his own, a plan with a name of several scripts.
OWN = """# Keys of the desk; ask Ada before you change this.
[plans."pro \U0001f680"]   # the fast one
views = [ "prices", "books" ]
requests_per_minute = 2_000  # agreed in March

# The intern's; until summer.
[[keys]]
id = "k_1"  # do not revoke
plan = "pro \U0001f680"
hash = "sha256:%s"
expires = 2036-06-01T00:00:00Z
""" % ("ab" * 32)


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1")


@pytest.mark.fault("S1")
def test_keys_that_are_not_good_get_one_answer(archive: MemoryArchive) -> None:
    """Missing, empty, wrong, expired and revoked keys get the same 401 as JSON."""
    past = dt.datetime.fromtimestamp(NOW - 1, dt.UTC)
    entries = [
        Entry("old", digest(b"expired"), "pro", expires=past),
        Entry("gone", digest(b"revoked"), "pro", revoked=True),
        Entry("good", digest(b"good"), "pro", expires=past + dt.timedelta(seconds=2)),
    ]
    keys = Keys(entries, {"pro": AccessPlan("pro")}, clock=lambda: NOW)
    with serve(archive, keys=keys) as service, requests.Session() as session:
        answers = []
        for key in (None, "", "wrong", "expired", "revoked"):
            headers = {} if key is None else {"X-API-Key": key}
            answers.append(Web(service.base_url, None, session).get("/v1/health", headers=headers))
        assert {a.status for a in answers} == {401}
        assert all(a.body == REFUSED for a in answers)
        varying = {"date", "x-request-id"}
        assert len({frozenset((k, v) for k, v in a.headers.items() if k not in varying) for a in answers}) == 1
        assert Web(service.base_url, "good", session).get("/v1/health").status == 200


@pytest.mark.fault("S2")
@pytest.mark.parametrize("key", [b"\xff\xfe", "schlüssel".encode(), b"k" * 30_000, b"a\tb", b"k" * 513])
def test_strange_keys_are_only_wrong(local: Service, key: bytes) -> None:
    """A key that is not ASCII, or long, is 401 and never 500."""
    status, _, body = raw(local.base_url, request("/v1/health", "X-API-Key: " + key.decode("latin-1")))
    assert (status, body) == (401, b'{"detail":"Invalid or expired API key."}')


@pytest.mark.fault("S2")
def test_a_key_beyond_every_size_never_is_a_fault(local: Service) -> None:
    """100 kB of key, or a NUL in it, is refused by size or as no HTTP."""
    assert raw(local.base_url, request("/v1/health", "X-API-Key: " + "k" * 100_000))[0] in {0, 431}
    assert raw(local.base_url, request("/v1/health", "X-API-Key: a\0b"))[0] == 400


@pytest.mark.fault("S3")
def test_two_keys_are_no_key(local: Service) -> None:
    """A request with two X-API-Key headers is 401, whichever of them is good."""
    good = f"X-API-Key: {local.api_key}"
    assert raw(local.base_url, request("/v1/health", good))[0] == 200
    for pair in ((good, "X-API-Key: other"), ("X-API-Key: other", good), (good, good)):
        assert raw(local.base_url, request("/v1/health", *pair))[0] == 401


@pytest.mark.fault("S4")
def test_a_key_counts_in_its_header_only(local: Service, caplog: pytest.LogCaptureFixture) -> None:
    """In the query, as bearer or in a cookie a key is 401, and no log line shows it."""
    caplog.set_level(logging.DEBUG)
    key = str(local.api_key)
    for name in ("api_key", "X-API-Key", "key"):
        assert raw(local.base_url, request(f"/v1/health?{name}={key}"))[0] == 401
    for header in (f"Authorization: Bearer {key}", f"Cookie: X-API-Key={key}"):
        assert raw(local.base_url, request("/v1/health", header))[0] == 401
    assert raw(local.base_url, request(f"/v1/health?a={key}", f"X-API-Key: {key}"))[0] == 200
    assert raw(local.base_url, request("/v1/health"))[0] == 401  # the line of the request before is written by now
    assert "GET /v1/health 200" in caplog.text
    assert key not in caplog.text


@pytest.mark.fault("S5")
def test_keys_are_found_by_digest_and_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One hash and one constant-time comparison of bytes, for known and unknown keys alike."""
    compared, real = [], hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((type(a), len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(keys_module.hmac, "compare_digest", compare)
    keys = Keys([Entry("local", digest(b"good"), "p")], {"p": AccessPlan("p")})
    assert keys.entries[0].hash == hashlib.sha256(b"good").digest()
    assert [grant_of(keys, k) is not None for k in (b"good", b"bad", b"")] == [True, False, False]
    assert compared == [(bytes, 32, 32)] * 3


def grant_of(keys: Keys, key: bytes) -> Grant | None:
    """The rights of a key by the newest keys, as a request finds them."""
    if keys.is_stale:
        keys.refresh()
    return keys.find(key)


@pytest.fixture
def key_file(tmp_path) -> KeyFile:
    path = tmp_path / "keys.toml"
    create_key_file(path, {"pro": AccessPlan("pro"), "free": AccessPlan("free", 5, ("1h",), ("prices",), 30)})
    return KeyFile(path)


@pytest.mark.fault("S6")
def test_a_key_file_holds_hashes_and_no_key(key_file: KeyFile) -> None:
    """The file has mode 0600 and the hash of a key, never the key; other modes are refused."""
    key, entry = key_file.add("pro", organization='A "quoted" name')
    text = key_file.path.read_text()
    assert key not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text
    assert key_file.path.stat().st_mode & 0o777 == 0o600
    again = KeyFile(key_file.path)
    assert again.entries == key_file.entries
    assert again.plans == key_file.plans
    grant = grant_of(again, key.encode())
    assert grant is not None
    assert (grant.key_id, grant.plan.name, grant.organization) == (entry.id, "pro", 'A "quoted" name')
    key_file.path.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key_file(key_file.path)


@pytest.mark.fault("S6")
def test_a_revoked_key_ends_on_an_open_connection(key_file: KeyFile, archive: MemoryArchive) -> None:
    """After revocation by another process the next request of the same connection is 401."""
    key, entry = key_file.add("pro")
    other, _ = key_file.add("pro")
    with serve(archive, keys=key_file.path) as service, requests.Session() as session:
        web = Web(service.base_url, key, session)
        assert web.get("/v1/health").status == 200
        KeyFile(key_file.path).revoke(entry.id)
        assert web.get("/v1/health").status == 401
        assert Web(service.base_url, other, session).get("/v1/health").status == 200
        key_file.path.unlink()
        assert Web(service.base_url, other, session).get("/v1/health").status == 401


@pytest.mark.fault("S6")
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("end", ["revoked = true", "expires = 2020-01-01T00:00:00Z"])
def test_of_two_entries_of_one_key_the_stricter_counts(tmp_path, end: str, last: bool) -> None:
    """A key with a revoked or expired entry is invalid, whatever another entry of it says, in any order."""
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    named = f"hash = 'sha256:{digest(b'twin').hex()}'\nplan = 'a'"
    entries = [f"[[keys]]\nid = 'good'\n{named}", f"[[keys]]\nid = 'ended'\n{named}\n{end}"]
    path.write_text("\n".join(["[plans.a]", *(entries if last else entries[::-1])]))
    assert grant_of(KeyFile(path), b"twin") is None


@pytest.mark.fault("S6")
def test_revocation_counts_within_a_second(key_file: KeyFile) -> None:
    """A key that another process revokes is invalid the next time that it is looked for."""
    key, entry = key_file.add("pro")
    assert grant_of(key_file, key.encode()) is not None
    KeyFile(key_file.path).revoke(entry.id)
    assert grant_of(key_file, key.encode()) is None


@pytest.mark.fault("S6")
def test_a_file_that_can_not_be_read_again_keeps_its_keys(key_file: KeyFile, caplog) -> None:
    """While an editor leaves the file half written the keys before it stay, and the log says so."""
    key, _ = key_file.add("pro")
    whole = key_file.path.read_bytes()
    key_file.path.write_bytes(whole[: len(whole) // 2] + b'"')
    assert grant_of(key_file, key.encode()) is not None
    assert "not read again" in caplog.text
    assert key not in caplog.text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[plans.a]\nresolutions = ['5m']", "5m"),
        ("[plans.a]\nviews = ['trades']", "trades"),
        ("[plans.a]\nrequests_per_minute = 0", "requests_per_minute"),
        ("[plans.a]\nmax_history_days = -1", "max_history_days"),
        ("[plans.a]\nrpm = 1", "rpm"),
        ("[[keys]]\nid='k'\nhash='sha256:00'\nplan='a'", "hash='sha256:00'.*pattern"),
        ("[[keys]]\nid='k'\nhash='sha256:" + "0" * 64 + "'\nplan='a'", "plan 'a'"),
        ("[[keys]]\nid='k'", "has no hash"),
        ("plans = 3", "plans"),
        ("[plans.a]\nviews = [\n 'books',\n 'trades',\n]", "Plan 'a': views.*trades"),
        ("# mine\n[plans]\na = 5", "Plan 'a' is 5"),
        ("plans = {local = 5}", "Plan 'local' is 5"),
        (f"{GOOD}\nrevoke = true", "Key 'k' has the unknown entry 'revoke'; allowed are .*revoked"),
        (f"{GOOD}\nrevoked = 'false'", "Key 'k': revoked='false' .*valid boolean"),
        (f"{GOOD}\nexpires = 2026-01-31", "Key 'k': expires.*valid datetime"),
        (f"{GOOD}\norganization = 5", "Key 'k': organization=5 .*valid string"),
        (f"{GOOD}\n{GOOD_KEY}\nplan = 'b'\n", "Key 'k' names the plan 'b'; allowed are"),
        (f"{GOOD}\n{GOOD_KEY}\nplan = 'a'\n", "Two keys have the id 'k'"),
        ("keys = 5", "keys=5"),
        ("keys = [5]", "Key number 1 is 5"),
        ("[[key]]\nid = 'k'", "unknown entry 'key'"),
        ("=", "cannot be read"),
    ],
)
def test_a_key_file_with_a_mistake_says_which(tmp_path, text: str, named: str) -> None:
    """Every mistake in a key file is a ConfigError that names it."""
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        KeyFile(path)


def test_keys_and_plans_that_do_not_exist_are_named(key_file: KeyFile) -> None:
    """Adding for an unknown plan, and revoking an unknown key, say what there is."""
    with pytest.raises(ConfigError, match=r"gold.*free.*pro"):
        key_file.add("gold")
    with pytest.raises(ConfigError, match="k_nope"):
        key_file.revoke("k_nope")


@pytest.mark.fault("S7")
@pytest.mark.parametrize("path", ["/v1/nowhere", "/v1", "/v1/", "/v1/markets/x/books", "/v1/health?limit=abc", "/v1//"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_the_key_is_asked_first(local: Service, path: str, method: str) -> None:
    """Below /v1 everything without a key is 401, routes and methods that do not exist included."""
    status, _, body = raw(local.base_url, request(path, method=method))
    assert (status, body) == (401, b'{"detail":"Invalid or expired API key."}')


@pytest.mark.fault("S7")
def test_the_description_is_public_and_the_rest_is_off(local: Service) -> None:
    """/openapi.json answers without a key by choice; there are no other pages of the framework."""
    assert raw(local.base_url, request("/openapi.json"))[0] == 200
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert raw(local.base_url, request(path))[0] == 404


@pytest.mark.fault("S8")
def test_the_host_header_chooses_nothing(local: Service) -> None:
    """A foreign, missing or doubled Host is 400, and no answer repeats it."""
    key = f"X-API-Key: {local.api_key}"
    for host in (
        "Host: evil.example",
        "Host: 127.0.0.1.evil.example",
        "X-No: host",
        "Host: 127.0.0.1\r\nHost: evil.example",
    ):
        status, headers, body = raw(local.base_url, f"GET /v1/health HTTP/1.1\r\n{host}\r\n{key}\r\n\r\n".encode())
        assert status == 400
        assert b"evil" not in body + repr(headers).encode()
    for host in ("localhost:1", "LOCALHOST", "[::1]:80", "127.0.0.1:9"):
        assert raw(local.base_url, f"GET /v1/health HTTP/1.1\r\nHost: {host}\r\n{key}\r\n\r\n".encode())[0] == 200
    absolute = f"GET http://evil.example/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\n\r\n"
    assert raw(local.base_url, absolute.encode())[0] in {200, 400, 404}


PLANS = {
    "free": AccessPlan("free", 1000, ("1h", "1d"), ("prices",), 5),
    "pro": AccessPlan("pro"),
}


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.mark.fault("S10")
def test_a_plan_refuses_view_resolution_and_lookback(archive: MemoryArchive) -> None:
    """Each right of a plan has its own 403; the border instant is allowed, a second earlier is not."""
    clock = Clock(START / 1e6 + 5 * DAY)
    with serve(archive, keys={"f": "free", "p": "pro"}, plans=PLANS, clock=clock) as service, requests.Session() as s:
        web = Web(service.base_url, "f", s)
        books = web.history("books", resolution="1h")
        assert (books.status, books.body["detail"]) == (403, "Your plan does not allow historical order books.")
        minute = web.history("prices", resolution="1m")
        assert minute.status == 403
        assert "1m" in minute.body["detail"]
        assert web.history("prices", resolution="1h").status == 200
        assert web.get("/v1/tokens/2/prices", **window(1, "1h")).status == 200
        for offset, status in ((-1, 200), (0, 200), (1, 403)):
            clock.now = START / 1e6 + 5 * DAY + offset
            assert web.history("prices", resolution="1h").status == status
        assert "older than 5 days" in web.history("prices", resolution="1h").body["detail"]
        assert Web(service.base_url, "p", s).history("books").status == 200
        usage = web.get("/v1/usage").body
        assert usage["plan"] == "free"
        assert usage["limits"]["granularity_allowed"] == "1h,1d"
        assert usage["limits"]["max_history_days"] == "5"


@pytest.mark.fault("S11")
def test_rights_are_asked_on_every_page(archive: MemoryArchive) -> None:
    """A walk ends with 403 when the lookback moves past its start, or its plan loses the view."""
    clock = Clock(START / 1e6 + 5 * DAY)
    keys = Keys([Entry("f", digest(b"f"), "free")], PLANS, clock=clock)
    with serve(archive, keys=keys, clock=clock) as service, requests.Session() as s:
        web = Web(service.base_url, "f", s)
        cursor = web.history("prices", resolution="1h", limit=2).body["metadata"]["next_cursor"]
        assert web.history("prices", resolution="1h", limit=2, cursor=cursor).status == 200
        clock.now += 1
        assert web.history("prices", resolution="1h", limit=2, cursor=cursor).status == 403
        clock.now -= 1
        keys.plans["free"] = AccessPlan("free", 1000, ("1h",), ("metrics",), 5)
        assert web.history("prices", resolution="1h", limit=2, cursor=cursor).status == 403


@pytest.mark.fault("S33")
def test_wrong_keys_are_limited_per_address(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """After many wrong keys an address is told to wait, while a good key from there still passes."""
    with serve(archive) as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        wrong = Web(service.base_url, "wrong", session)
        answers = [wrong.get("/v1/health") for _ in range(310)]
        assert [a.status for a in answers] == [401] * 300 + [429] * 10
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 61
        assert Web(service.base_url, service.api_key, session).get("/v1/health").status == 200
        assert Web(service.base_url, None, session).get("/v1/health").status == 401


@pytest.mark.fault("S43")
def test_forwarded_addresses_are_not_believed(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong keys of one address are limited together, whatever address their X-Forwarded-For names."""
    with serve(archive) as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        wrong = Web(service.base_url, "wrong", session)
        answers = [wrong.get("/v1/health", {"X-Forwarded-For": f"10.1.{i // 250}.{i % 250}"}) for i in range(302)]
        assert [a.status for a in answers] == [401] * 300 + [429] * 2


@pytest.mark.fault("S43")
def test_a_trusted_proxy_is_believed(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a named proxy each forwarded address has its own count, and what a client wrote itself has none."""
    with serve(archive, trusted_proxies=["127.0.0.1"]) as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        wrong = Web(service.base_url, "wrong", session)

        def status(forwarded: str) -> int:
            return wrong.get("/v1/health", {"X-Forwarded-For": forwarded}).status

        assert {status(f"10.1.{i // 250}.{i % 250}") for i in range(302)} == {401}
        assert [status(f"10.9.9.{i % 250}, 10.2.0.1") for i in range(301)][-1] == 429
        assert status("10.2.0.2") == 401
    with pytest.raises(ConfigError, match="trusted_proxy='nginx' is not an address"):
        serve(archive, trusted_proxies=["nginx"])


@pytest.mark.fault("S43")
def test_a_trailer_is_no_header(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client sends after its body chooses no address to be counted under, and is no key."""

    def status(service: Service, trailer: str, *headers: str) -> int:
        head = ["GET /v1/health HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked", *headers]
        return raw(service.base_url, "\r\n".join([*head, "", "0", trailer, "", ""]).encode())[0]

    with serve(archive, trusted_proxies=["127.0.0.1"]) as service:
        stop_minute(service, monkeypatch)
        forwarded = [f"X-Forwarded-For: 10.1.{i // 250}.{i % 250}" for i in range(302)]
        assert status(service, f"X-API-Key: {service.api_key}") == 401
        got = [status(service, trailer, "X-API-Key: wrong", "X-Forwarded-For: 10.9.9.9") for trailer in forwarded]
        assert got == [401] * 300 + [429] * 2


@pytest.mark.fault("S43")
def test_a_proxy_may_pass_the_name_of_the_host(archive: MemoryArchive) -> None:
    """The names that are given are good in the Host header beside loopback ones, others are not."""
    with serve(archive, host_names=["Data.example.org"]) as service:
        key = f"X-API-Key: {service.api_key}"
        for host, status in (("data.example.org", 200), ("127.0.0.1", 200), ("example.org", 400)):
            asked = f"GET /v1/health HTTP/1.1\r\nHost: {host}\r\n{key}\r\n\r\n"
            assert raw(service.base_url, asked.encode())[0] == status


@pytest.mark.fault("S33")
def test_an_ipv6_client_is_its_network() -> None:
    """Who has 64 bits of addresses to choose from is one client; mapped IPv4 addresses are many."""
    assert {network_of(f"2001:db8::{i:x}") for i in range(4)} == {"2001:db8::/64"}
    assert network_of("2001:db8:0:1::1") == "2001:db8:0:1::/64"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert len({network_of(f"::ffff:10.0.0.{i}") for i in range(4)}) == 4
    assert network_of("10.0.0.1") == "10.0.0.1"


@pytest.mark.fault("S33")
def test_the_table_of_addresses_is_bounded() -> None:
    """As many addresses as one likes do not fill memory, and a minute later an address starts anew."""
    clock = Clock(0.0)
    wrong = RateLimiter(most=100, clock=clock)
    for i in range(10_000):
        wrong.wait(f"10.0.{i // 250}.{i % 250}", 2)
    assert len(wrong._rings) == 100
    assert [wrong.wait("a", 2) for _ in range(3)] == [None, None, 61]
    clock.now = 30.5
    assert wrong.wait("a", 2) == 30
    clock.now = 61.0
    assert wrong.wait("a", 2) is None


def test_a_clock_that_moves_expires_a_key() -> None:
    """A key is good until the very second of its expiry."""
    clock = Clock(100.0)
    until = dt.datetime.fromtimestamp(101, dt.UTC)
    keys = Keys([Entry("k", digest(b"k"), "p", expires=until)], {"p": AccessPlan("p")}, clock=clock)
    assert grant_of(keys, b"k") is not None
    clock.now = 101.0
    assert grant_of(keys, b"k") is None


@pytest.mark.fault("S44")
def test_eight_processes_may_make_one_key_file(tmp_path) -> None:
    """Keys added by eight writers at the same time, to a file that none of them finds, are all kept."""
    path, pids = tmp_path / "keys.toml", []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            try:
                for _ in range(5):
                    create_key_file(path, {"free": AccessPlan("free")})
                    KeyFile(path).add("free")
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert len({entry.id for entry in KeyFile(path).entries}) == 40
    assert sorted(found.name for found in tmp_path.iterdir()) == ["keys.toml", "keys.toml.lock"]


def own_file(folder) -> KeyFile:
    path = folder / "keys.toml"
    path.touch(0o600)
    path.write_text(OWN, encoding="utf-8")
    return KeyFile(path)


@pytest.mark.fault("S44")
def test_an_edit_leaves_what_its_owner_wrote(tmp_path) -> None:
    """Adding and revoking keeps comments, order and spelling of every line that they do not concern."""
    keys = own_file(tmp_path)
    _, entry = keys.add("pro \U0001f680", organization='Desk "\U0001f40b" \\ 1\n')
    assert keys.path.read_text(encoding="utf-8").startswith(OWN)
    keys.revoke("k_1")
    again = KeyFile(keys.path)
    assert [(e.id, e.organization, e.revoked) for e in again.entries] == [
        ("k_1", None, True), (entry.id, 'Desk "\U0001f40b" \\ 1\n', False),
    ]  # fmt: skip
    text = keys.path.read_text(encoding="utf-8")
    assert [line for line in OWN.splitlines() if line not in text.splitlines()] == []


@pytest.mark.fault("S44")
@given(plan=st.text(), organization=st.text())
def test_any_unicode_is_a_name(tmp_path_factory: pytest.TempPathFactory, plan: str, organization: str) -> None:
    """Whatever plan and organization are called, the file is read again with these names, also after an edit."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    create_key_file(path, {plan: AccessPlan(plan)})
    key, first = KeyFile(path).add(plan, organization=organization)
    _, second = KeyFile(path).add(plan)
    KeyFile(path).revoke(second.id)
    keys = KeyFile(path)
    assert [(e.plan, e.organization, e.revoked) for e in keys.entries] == [
        (plan, organization, False), (plan, None, True),
    ]  # fmt: skip
    grant = grant_of(keys, key.encode())
    assert grant is not None
    assert (grant.key_id, grant.plan) == (first.id, AccessPlan(plan))


@pytest.mark.fault("S44")
def test_a_name_that_no_file_can_hold_leaves_the_file(tmp_path) -> None:
    """Half a surrogate pair has no UTF-8, so the key is refused and the file is what it was."""
    keys = own_file(tmp_path)
    with pytest.raises(ConfigError, match="left as it was"):
        keys.add("pro \U0001f680", organization="\ud83d")
    assert keys.path.read_text(encoding="utf-8") == OWN


@pytest.mark.fault("S44")
def test_an_edit_follows_a_link(tmp_path) -> None:
    """A key file that is a link stays one, and the file behind it has the new key."""
    (tmp_path / "real").mkdir()
    keys = own_file(tmp_path / "real")
    link = tmp_path / "keys.toml"
    link.symlink_to(keys.path)
    KeyFile(link).add("pro \U0001f680")
    assert link.is_symlink()
    assert len(KeyFile(keys.path).entries) == 2
    assert [found.name for found in tmp_path.iterdir() if found.is_file()] == ["keys.toml"]


@pytest.mark.fault("S44")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_what_root_edits_stays_its_owners(tmp_path) -> None:
    """After an edit by root the file and its lock belong to the owner of before, with the mode of before."""
    keys = own_file(tmp_path)
    os.chown(keys.path, 1234, 4321)
    keys.path.chmod(0o400)
    keys.add("pro \U0001f680")
    for name in ("keys.toml", "keys.toml.lock"):
        found = (tmp_path / name).stat()
        assert (found.st_uid, found.st_gid) == (1234, 4321)
    assert keys.path.stat().st_mode & 0o777 == 0o400


@pytest.mark.fault("S44")
def test_keys_of_one_line_are_added_to(tmp_path) -> None:
    """Keys that are written as an array of tables in one line get another one there."""
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    path.write_text("keys = [{id = 'k', hash = 'sha256:" + "0" * 64 + "', plan = 'a'}]\n[plans.a]\n")
    _, entry = KeyFile(path).add("a")
    KeyFile(path).revoke("k")
    assert [(e.id, e.revoked) for e in KeyFile(path).entries] == [("k", True), (entry.id, False)]


@pytest.mark.fault("S44")
@pytest.mark.parametrize(
    "text", ["plans = {local = 5}", "plans = 3", "[plans.pro]\nrpm = 1", "keys = 1", "\x00", "[[keys]]\nrevoke = true"]
)
def test_a_file_with_a_mistake_keeps_the_keys_in_use(archive: MemoryArchive, key_file: KeyFile, text, caplog) -> None:
    """A mistake that is written while keys are served is logged with its name, and their keys stay good."""
    key, _ = key_file.add("pro")
    with serve(archive, keys=key_file.path) as service, requests.Session() as session:
        web = Web(service.base_url, key, session)
        assert web.get("/v1/health").status == 200
        key_file.path.write_text(text)
        assert [web.get("/v1/health").status for _ in range(3)] == [200] * 3
    assert "keys before it stay in use" in caplog.text
    assert "keys.toml cannot be read: " in caplog.text


toml_values = st.recursive(
    st.one_of(st.integers(-(2**40), 2**40), st.floats(), st.booleans(), st.text("ab'", max_size=4), st.datetimes()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["id", "hash", "plan", "keys", "revoked", "views"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@pytest.mark.fault("S44")
@given(st.dictionaries(st.sampled_from(["plans", "keys", "other"]), toml_values, max_size=3))
@settings(max_examples=200)
def test_whatever_a_file_holds_is_read_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, table: dict
) -> None:
    """Any TOML in the place of plans and keys is read, or is a ConfigError that names the file and the entry."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.touch(0o600)
    path.write_text(tomlkit.dumps(table), encoding="utf-8")
    with contextlib.suppress(ConfigError):
        read_key_file(path)
        return
    with pytest.raises(ConfigError) as refused:
        read_key_file(path)
    message = str(refused.value)
    assert re.search(r"key file keys\.toml cannot be read: .*(plans|Plan|keys|Key|other)", message), message


@pytest.mark.fault("S6")
def test_a_key_file_is_read_once_its_rights_are_mended(key_file: KeyFile) -> None:
    """A revocation in a file that others may read is refused, and counts as soon as the rights are right."""
    path, keys = key_file.path, KeyFile(key_file.path)
    key, entry = keys.add(next(iter(keys.plans)))
    assert grant_of(keys, key.encode()) is not None
    path.write_text(path.read_text().replace("revoked = false", "revoked = true"))
    path.chmod(0o644)
    grant_of(keys, key.encode())
    path.chmod(0o600)
    assert grant_of(keys, key.encode()) is None
    assert entry.id in path.read_text()


@pytest.mark.fault("S1", "S3")
def test_an_empty_key_opens_nothing(archive: MemoryArchive) -> None:
    """An empty key is refused where keys are given; no key and two keys are none."""
    with pytest.raises(ConfigError, match="empty key"):
        serve(archive, keys={"": "p"}, plans={"p": AccessPlan("p")})
    keys = Keys([Entry("k", digest(b""), "p")], {"p": AccessPlan("p")})
    with serve(archive, keys=keys) as service:
        for shown in ([], ["X-API-Key: "], ["X-API-Key: a", "X-API-Key: b"]):
            assert raw(service.base_url, request("/v1/health", *shown))[0] == 401


def test_blanks_around_a_header_are_not_its_value(archive: MemoryArchive) -> None:
    """A key and a host with blanks behind them are the key and the host (RFC 9110, 5.5)."""
    with serve(archive, keys={"good": "p"}, plans={"p": AccessPlan("p")}) as service:
        lines = "GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1 \r\nX-API-Key:  good \t\r\nConnection: close\r\n\r\n"
        assert raw(service.base_url, lines.encode())[0] == 200


@pytest.mark.fault("S10")
@pytest.mark.parametrize("days", [math.nan, math.inf, 0, True])
def test_a_lookback_is_a_number(days: float) -> None:
    """What is no finite number above 0 is refused by name."""
    with pytest.raises(ConfigError, match="max_history_days"):
        AccessPlan.read("p", {"max_history_days": days})


@pytest.mark.parametrize("port", [-1, 65_536, "8000", 80.5, None, True])
def test_a_port_that_does_not_exist_is_refused(
    archive: MemoryArchive, port: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no whole number from 0 to 65535 is refused by name, before a socket is opened."""
    monkeypatch.setattr(socket, "socket", None)
    with pytest.raises(ConfigError, match=r"port=.* is refused; allowed are whole numbers from 0 to 65535"):
        serve(archive, port=port)


@pytest.mark.parametrize("host", ["a\0b", "x" * 70 + ".example"])
def test_a_host_that_is_no_name_is_refused(archive: MemoryArchive, host: str) -> None:
    """A host that no resolver takes cannot be bound, and is said so."""
    with pytest.warns(MarketDataWarning), pytest.raises(ConfigError, match="cannot be bound"):
        serve(archive, host=host, keys={"k": "local"})


@pytest.mark.fault("S44")
def test_a_full_disk_leaves_the_key_file(key_file: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a new content does not reach the disk the old one stays, and nothing else is left in the folder."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before, files = key_file.path.read_bytes(), sorted(key_file.path.parent.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="left as it was; it cannot be written: No space left"):
        key_file.add("pro")
    assert key_file.path.read_bytes() == before
    assert set(key_file.path.parent.iterdir()) - set(files) <= {key_file.path.with_name("keys.toml.lock")}
