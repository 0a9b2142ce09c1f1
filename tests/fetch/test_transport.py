"""One request against networks and servers that fail: it is retried, refused or given up as it should be."""

from __future__ import annotations

import datetime as dt
import gzip
import ipaddress
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from reference.faults import HANG_UP, RESET_PEER, Act, FaultServer, ok, refuse
from reference.oracle import Oracle, expected, read, rows

from marketdata.errors import (
    AuthenticationError,
    ConfigError,
    ContractError,
    MarketDataError,
    NetworkError,
    NotFoundError,
    ParameterError,
    PayloadTooLargeError,
    PlanError,
    RateLimitError,
    RedirectError,
    RequestError,
    ServerError,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Transport
from marketdata.stream.connection import Connections

Connect = Callable[..., Transport]
GOOD = ok({"a": list(range(500))})
NOON, NOON_AND_7 = "Fri, 01 Jan 2100 12:00:00 GMT", "Fri, 01 Jan 2100 12:00:07 GMT"


def case(row: str, *values: Any, name: str) -> Any:
    """Values of a parametrized test that belong to a row of the fault matrix."""
    return pytest.param(*values, marks=pytest.mark.fault(row), id=f"{row} {name}")


# -- connections


@pytest.fixture
def nobody_invalid(monkeypatch) -> None:
    """Names that end in ``.invalid`` have no address, whatever a resolver says of them, and how late it does."""
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.fault("N1")
@pytest.mark.usefixtures("nobody_invalid")
@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "https://service.invalid"])
def test_a_host_that_cannot_be_reached_is_tried_five_times(connect, clock, address) -> None:
    """It takes less than two seconds, and the error asks whether a service runs there."""
    with pytest.raises(NetworkError, match=r"is a service running there\?") as caught:
        connect(address).get(["x"])
    assert caught.value.attempts == 5
    assert caught.value.__context__ is None
    assert 0 < clock.slept < 2


@pytest.mark.fault("N2")
def test_a_connection_that_hangs_ends_after_the_connect_timeout(connect) -> None:
    """A connection that is never accepted is tried again."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for sock in waiting:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        with pytest.raises(NetworkError, match="too long") as caught:
            connect(f"http://127.0.0.1:{full.getsockname()[1]}", connect=0.02, attempts=2).get(["x"])
        for sock in waiting:
            sock.close()
    assert caught.value.attempts == 2


@pytest.mark.fault("N3")
def test_the_first_retry_on_a_used_connection_is_sent_at_once(server, transport, clock) -> None:
    """A server may have closed an idle connection."""
    server.script = [GOOD, RESET_PEER, GOOD]
    transport.get(["x"])
    assert transport.get(["x"]).attempts == 2
    assert clock.slept == 0


def corrupt(at: int) -> Act:
    """A gzip stream of incompressible bytes with one of them wrong."""
    data = bytearray(gzip.compress(os.urandom(300).hex().encode()))
    data[at] ^= 0xFF
    return GOOD.zipped(bytes(data))


@pytest.mark.parametrize(
    "fault",
    [
        case("N3", RESET_PEER, name="reset"),
        case("N3", HANG_UP, name="closed"),
        case("N4", Act(body=GOOD.body, limit_data=100), name="cut"),
        case("N4", Act(body=GOOD.body, limit_data=100, reset=True), name="cut and reset"),
        case("N5", Act(body=GOOD.body, framing="chunked", limit_data=300), name="cut chunks"),
        case("N6", Act(body=GOOD.body, framing="close", limit_data=300), name="cut without length"),
        case("N8", corrupt(-6), name="checksum"),
        case("N8", corrupt(-2), name="length"),
        case("N8", corrupt(40), name="data"),
        *(case("N9", GOOD.zipped(gzip.compress(GOOD.body)[:-cut]), name=f"lacks {cut}") for cut in (4, 8, 200)),
        case("N9", GOOD.zipped(b"1" + GOOD.body), name="no gzip"),
        case("N17", refuse(500, "Failed to fetch data."), name="500"),
        case("N20", refuse(408), name="408"),
    ],
)
def test_a_failed_or_damaged_answer_is_requested_again(server, transport, fault) -> None:
    """No part of it is taken for an answer."""
    server.script = [fault, replace(GOOD.zipped(), framing="chunked")]
    assert transport.get_json(["x"]) == json.loads(GOOD.body)
    assert len(server.asks) == 2


@pytest.mark.fault("N9")
def test_gzip_may_be_undone_on_the_way_or_have_several_members(server, transport) -> None:
    """Recorders and some proxies unpack a body and leave the header; each member of a stream is verified."""
    server.script = [GOOD.zipped(GOOD.body), GOOD.zipped(gzip.compress(b"[1,") + gzip.compress(b"2]"))]
    assert transport.get(["x"]).body == GOOD.body
    assert transport.get(["x"]).body == b"[1,2]"


@pytest.mark.parametrize(
    "act",
    [
        case("N10", Act(body=b"x" * 100_000), name="body"),
        case("N33", Act(headers=(("X", "x" * 60_000),)), name="header"),
    ],
)
def test_an_answer_that_drips_is_given_up(server, connect, act) -> None:
    """The time of the attempt is over, though no single byte is late."""
    server.answer = lambda ask: replace(act, slicer=(1, 0.005))
    with pytest.raises(NetworkError, match=r"too long|longer than") as caught:
        connect(total=0.04, silence=0.03, attempts=2).get(["x"])
    assert caught.value.attempts == 2


@pytest.mark.fault("N11")
@pytest.mark.parametrize(
    ("act", "policy", "words"),
    [
        (Act(body=b"x" * 300_000), {"largest_body": 100_000}, "larger than 100000"),
        (ok("0" * 300_000).zipped(), {"largest_body": 100_000}, "larger than 100000"),
        (ok("0" * (8 << 20)).zipped(), {}, "200-fold"),
    ],
    ids=["long", "gzip", "ratio"],
)
def test_a_huge_answer_is_not_read_to_its_end_or_requested_again(server, connect, act, policy, words) -> None:
    """One cap counts decoded bytes; the other compares them with the bytes received."""
    server.answer = lambda ask: act
    with pytest.raises(PayloadTooLargeError, match=words) as caught:
        connect(**policy).get(["x"])
    assert len(server.asks) == caught.value.attempts == 1


def test_many_threads_each_get_their_own_answer(server, transport) -> None:
    """They share the connections of one transport."""
    server.answer = lambda ask: ok({"path": ask.path})
    names = [f"n{i}" for i in range(48)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: transport.get_json([n])["path"], names))
    assert answers == [f"/v1/{n}" for n in names]


@pytest.mark.fault("N33")
@pytest.mark.parametrize(
    "act",
    [
        ok({}).with_header("content-length", "7"),
        ok({}).with_header("X-Long", "x" * 200_000),
        Act(raw=b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(500)) + b"\r\n{}"),
        Act(raw=b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        Act(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        Act(raw=b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000),
        Act(raw=b"not http at all\r\n\r\n"),
        Act(raw=b"HTTP/1.1 abc\r\n\r\n"),
    ],
    ids=["two lengths", "long header", "many headers", "switch", "endless 100", "endless 103", "no http", "no status"],
)
def test_headers_off_the_rules_are_a_typed_error(server, connect, act) -> None:
    """It says how often it asked, and no byte that follows such a head is read as an answer."""
    server.answer = lambda ask: act
    with pytest.raises(MarketDataError) as caught:
        connect(attempts=2).get(["x"])
    assert len(server.asks) == caught.value.attempts <= 2
    server.answer = lambda ask: ok({"path": ask.path})
    assert connect(attempts=1).get_json(["y"]) == {"path": "/v1/y"}


@pytest.mark.fault("N33")
@pytest.mark.parametrize("slicer", [None, (1, 0.0)], ids=["at once", "bytes"])
def test_interim_answers_are_passed_over(server, transport, slicer) -> None:
    """Each request of the connection gets its own answer."""
    once, processing = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 102 Processing\r\n\r\n"
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nContent-Length: 5\r\n\r\n"
    interim_answers = iter([once, processing, hints, (processing + once) * 20])
    server.answer = lambda ask: ok({"path": ask.path}, before=next(interim_answers), slicer=slicer)
    assert [transport.get_json([name])["path"] for name in "abcd"] == ["/v1/a", "/v1/b", "/v1/c", "/v1/d"]
    assert server.connections == 1


@pytest.mark.fault("N33")
@pytest.mark.parametrize("status", [101, 200, 204, 304])
def test_a_connection_on_which_more_arrived_is_not_used_again(server, connect, status) -> None:
    """The next request would get what was left of the answer before."""
    more = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"path": "old"}'
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n" % status
    length = b"Content-Length: 2\r\n\r\n{}" if status == 200 else b"\r\n"
    server.answer = lambda ask: ok({"path": ask.path}, before=b"" if ask.path != "/v1/a" else head + length + more)
    transport = connect(attempts=1)
    with suppress(MarketDataError):
        transport.get_json(["a"])
    assert transport.get_json(["b"]) == {"path": "/v1/b"}


# -- waits


@pytest.mark.parametrize(
    ("refusal", "least"),
    [
        case("N12", refuse(429, "Rate limit exceeded.", Retry_After="7"), 7, name="seconds"),
        # A clock of this machine that is decades off does no harm.
        case("N13", refuse(429, Retry_After=NOON_AND_7, Date=NOON), 7, name="date"),
        case("N19", refuse(503, Retry_After="9"), 9, name="503"),
        *(
            case("N14", refuse(429).with_header("Retry-After", value), 0.5, name=repr(value))
            for value in ("1.5", "-1", "", "0", "soon", "٣".encode().decode("latin-1"), NOON_AND_7)
        ),
        case("N14", refuse(429), 0.5, name="absent"),
    ],
)
def test_a_wait_that_the_service_names_is_waited(server, transport, clock, refusal, least) -> None:
    """It takes at most a second more, or the backoff of throttling where Retry-After says nothing of use."""
    server.script = [refusal, GOOD]
    assert transport.get(["x"]).attempts == 2
    assert least <= clock.slept <= max(least + 1, 1) + 0.01


@pytest.mark.fault("N15")
@pytest.mark.parametrize("value", ["1000000000", "Fri, 31 Dec 9999 23:59:59 GMT", "121"])
def test_a_wait_of_more_than_two_minutes_is_an_error_that_says_until_when(server, transport, clock, value) -> None:
    """Nothing is slept."""
    server.answer = lambda ask: refuse(429, Retry_After=value, Date="Thu, 01 Jan 2026 00:00:00 GMT")
    with pytest.raises(RateLimitError) as caught:
        transport.get(["x"])
    assert caught.value.retry_at is not None
    assert caught.value.retry_at >= 1_767_225_600 + 121
    assert (clock.slept, len(server.asks)) == (0, 1)


@pytest.mark.fault("N16")
def test_an_endless_429_ends(server, transport) -> None:
    """By the number of attempts."""
    server.answer = lambda ask: refuse(429, "Rate limit exceeded. Please try again later.", Retry_After="60")
    with pytest.raises(RateLimitError, match="try again later") as caught:
        transport.get(["x"])
    assert caught.value.attempts == 5


@pytest.mark.fault("N17")
def test_sixteen_threads_share_forty_retries_in_an_outage(server, transport) -> None:
    """An outage does not become a storm of requests."""
    server.answer = lambda ask: refuse(500)

    def get(_: int) -> None:
        with pytest.raises(ServerError):
            transport.get(["x"])

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(get, range(64)))
    assert 4 <= transport.retries <= 40
    assert len(server.asks) == 64 + 1 + transport.retries  # one asks what the key may spend


@pytest.mark.fault("N30")
def test_a_clock_that_jumps_changes_no_wait(server, transport, clock, monkeypatch) -> None:
    """Waits use the monotonic clock."""
    jumps = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    server.script = [refuse(429, Retry_After="7"), refuse(500), GOOD]
    assert transport.get(["x"]).attempts == 3
    assert clock.slept < 20


# -- answers that are refusals, or none of this interface


@pytest.mark.parametrize(
    ("act", "kind", "words", "requests"),
    [
        case("N9", GOOD.with_header("Content-Encoding", "br"), ContractError, "encoded as", 2, name="br"),
        case("N9", GOOD.with_header("Content-Encoding", "gzip, gzip"), ContractError, "encoded as", 2, name="twice"),
        case("N7", Act(body=json.dumps({"z": "z" * 900}).encode()[:-9]), ContractError, "not JSON", 2, name="cut"),
        case("N21", ok({}).with_header("Content-Type", "text/html; x"), ContractError, "text/html", 2, name="login"),
        *(case("N23", Act(status=n), ContractError, str(n), 1, name=str(n)) for n in (204, 206, 299, 304)),
        *(
            case("N25", refuse(status, "Not in your plan."), kind, "Not in your plan.", 1, name=str(status))
            for status, kind in (
                (401, AuthenticationError),
                (403, PlanError),
                (404, NotFoundError),
                (405, RequestError),
                (422, ParameterError),
            )
        ),
    ],
)
def test_an_answer_that_is_no_data_is_its_own_class_of_error(server, transport, act, kind, words, requests) -> None:
    """A refusal is one request; what may be damage on the way is requested once more."""
    server.answer = lambda ask: act
    with pytest.raises(kind, match=words) as caught:
        transport.get_json(["markets", "x", "books"])
    error = caught.value
    assert error.attempts == len(server.asks) == requests
    assert len(str(error)) < 500
    if isinstance(error, RequestError):
        assert (error.status, error.detail) == (act.status, words)
        assert error.url == f"{server.base_url}/v1/markets/x/books"


@pytest.mark.fault("N18")
@pytest.mark.parametrize("status", [502, 503, 504])
def test_the_html_of_a_proxy_is_retried_and_shown_as_text(server, transport, status) -> None:
    """The detail has no tags and at most 200 characters."""
    page = b"<html><style>p{}</style><h1>Bad <b>gateway</b></h1>" + b"<p>more</p>" * 200 + b"</html>"
    server.answer = lambda ask: Act(status=status, body=page).with_header("Content-Type", "text/html")
    with pytest.raises(ServerError) as caught:
        transport.get(["x"])
    assert caught.value.attempts == 5
    assert caught.value.detail.startswith("Bad gateway more")
    assert len(caught.value.detail) <= 200


@pytest.mark.fault("N22")
@pytest.mark.parametrize("kind", ["text/plain", ""])
def test_json_under_another_content_type_is_read_with_one_warning(server, transport, kind) -> None:
    """The warning is for all pages together."""
    oracle, report = Oracle.of_prices(300), Report()
    server.answer = lambda ask: oracle(ask).with_header("Content-Type", kind)
    assert sorted(rows(read(transport, oracle.request(300), report=report))) == expected(oracle.points)
    assert report.warnings == {"content_type_not_json": 1}


@pytest.mark.fault("N24")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server, transport, status) -> None:
    """The key goes nowhere, and the message names scheme and host alone."""
    with FaultServer() as other:
        for address in (other.base_url, server.base_url, ""):
            location = f"{address}/v1/elsewhere?secret=1"
            server.answer = lambda ask, to=location: Act(status=status).with_header("Location", to)  # type: ignore[misc]
            with pytest.raises(RedirectError) as caught:
                transport.get(["x"])
            assert caught.value.attempts == 1
            assert "secret" not in str(caught.value)
        assert other.asks == []
    assert len(server.asks) == 3


PROBLEMS = [{"loc": ["query", "resolution"], "msg": "allowed: 1m, 10m", "type": "enum", "input": "x"}]


@pytest.mark.fault("N26")
@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"detail": "plain"}', "plain"),
        (json.dumps({"detail": PROBLEMS}).encode(), "query.resolution: allowed: 1m, 10m"),
        (b'{"detail": {"a": 1}}', '{"a": 1}'),
        (b'{"detail": null}', '{"detail": null}'),
        (b'{"error": "bad_request", "message": "other"}', "other"),
        (b'["a", {"b": 2}]', '["a", {"b": 2}]'),
        (b"", ""),
        (b"\xff\xfe plain", "plain"),
        (b"[" * 100_000, "[["),
        (json.dumps({"detail": "x" * 1_000_000}).encode(), "xxx"),
    ],
    ids=["text", "problems", "object", "null", "none", "list", "empty", "bytes", "deep", "huge"],
)
def test_a_detail_of_any_shape_becomes_a_short_text(server, transport, body, shown) -> None:
    """It has at most 2,048 characters; problems of parameters keep place, message and type."""
    server.answer = lambda ask: Act(status=422, body=body)
    with pytest.raises(ParameterError) as caught:
        transport.get(["x"])
    assert shown in caught.value.detail
    assert len(caught.value.detail) <= 2048
    problems = list(caught.value.problems)
    assert problems == ([{k: PROBLEMS[0][k] for k in ("loc", "msg", "type")}] if "query" in shown else [])


# -- TLS, proxies and what the environment names


def issued(path: Path, first_day: int, last_day: int) -> Path:
    """A self-signed certificate for 127.0.0.1 that is valid between two days from now, and its key, in one file."""
    pytest.importorskip("cryptography", reason="pip install 'prediction-marketdata[stream]' has cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, here = ec.generate_private_key(ec.SECP256R1()), x509.Name.from_rfc4514_string("CN=here")
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(here, here, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now + dt.timedelta(first_day)).not_valid_after(now + dt.timedelta(last_day))
    made = made.add_extension(host, critical=False).add_extension(x509.BasicConstraints(True, None), critical=True)
    public = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path.write_bytes(key.private_bytes(*forms) + public)
    path.with_name("cert.pem").write_bytes(public)
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    """A certificate that is valid today."""
    return issued(tmp_path_factory.mktemp("tls") / "both.pem", -1, 1)


@pytest.fixture
def trusted(certificate, monkeypatch) -> None:
    """Let the environment vouch for the certificate."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))


@pytest.fixture
def tls(certificate) -> Iterator[Callable[..., str]]:
    """Starts servers that speak TLS; gives their address."""
    listeners: list[socket.socket] = []

    def serve(listener: socket.socket, context: ssl.SSLContext) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, suppress(OSError), context.wrap_socket(sock, server_side=True) as safe:
                safe.recv(65536)
                safe.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")

    def start(newest: ssl.TLSVersion | None = None, shown: Path = certificate) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown)
        if newest is not None:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = newest
        listeners.append(socket.create_server(("127.0.0.1", 0)))
        threading.Thread(target=serve, args=(listeners[-1], context), daemon=True).start()
        return f"https://127.0.0.1:{listeners[-1].getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.fault("N27")
def test_a_certificate_that_nobody_vouches_for_is_refused(tls, connect) -> None:
    """There is no retry, and the variable that names an authority is said."""
    with pytest.raises(NetworkError, match=r"^Nobody whom this machine trusts.*REQUESTS_CA_BUNDLE") as caught:
        connect(tls()).get(["x"])
    assert caught.value.attempts == 1


@pytest.mark.parametrize(("first_day", "last_day", "words"), [(1, 2, "clock behind"), (-2, -1, "clock ahead")])
def test_a_certificate_of_another_day_names_the_clock(tmp_path, monkeypatch, tls, connect, first_day, last_day, words):
    """The clock of this machine may be the one that is wrong."""
    shown = issued(tmp_path / "both.pem", first_day, last_day)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(shown.with_name("cert.pem")))
    with pytest.raises(NetworkError, match=words):
        connect(tls(shown=shown)).get(["x"])


@pytest.mark.fault("N27")
@pytest.mark.usefixtures("trusted")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("host", "newest", "words"),
    [("localhost", None, "certificate"), ("127.0.0.1", ssl.TLSVersion.TLSv1, "TLS")],
    ids=["another host", "TLS 1.0"],
)
def test_another_host_and_old_tls_are_refused(tls, connect, host, newest, words) -> None:
    """Even with a certificate that is trusted; there is no retry."""
    with pytest.raises(NetworkError, match=words) as caught:
        connect(tls(newest).replace("127.0.0.1", host)).get(["x"])
    assert caught.value.attempts == 1


@pytest.mark.fault("N28")
@pytest.mark.parametrize("url", ["http://example.org", "http://10.0.0.1/v1", "http://127.0.0.1.example.org"])
def test_a_key_leaves_this_machine_without_tls_only_if_the_user_says_so(url) -> None:
    """The option is named."""
    with pytest.raises(ConfigError, match="allow_insecure"):
        Transport(url, "k" * 20)
    assert Transport(url, "k" * 20, allow_insecure=True).base_url == url.removesuffix("/v1")


@pytest.mark.fault("N29")
def test_the_bundle_vouches_for_a_stream_too(certificate, monkeypatch) -> None:
    """A recorder takes the certificates that the environment names, as a client does, and no others."""
    from websockets.sync.server import serve

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serve(lambda socket: socket.send("{}"), "127.0.0.1", 0, ssl=context) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"wss://127.0.0.1:{server.socket.getsockname()[1]}"
        channel = SimpleNamespace(
            address=address, headers=dict, subscription=lambda _: [], has_key=False, name="v", pong=None
        )
        ends = []
        for file in (None, certificate.with_name("cert.pem")):
            if file is not None:
                monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
            connections = Connections(channel)  # type: ignore[arg-type]
            connections.open(1, [])
            ends.append(connections.events.get(timeout=10))
            connections.close()
        server.shutdown()
    assert (ends[0].kind, b"certificate verify failed" in ends[0].body) == ("end", True)
    assert (ends[1].kind, ends[1].body) == ("frame", b"{}")


def test_netrc_and_a_proxy_for_http_are_not_used(server, connect, tmp_path, monkeypatch) -> None:
    """The key is the only credential."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    connect().get(["x"])
    assert server.asks[0].header("Authorization") == []


@pytest.mark.fault("N29")
@pytest.mark.usefixtures("trusted")
def test_the_proxy_for_https_is_used_and_does_not_see_the_key(server, tls, connect, monkeypatch) -> None:
    """The bundle of certificates that the environment names is used too."""
    assert connect(tls()).get(["x"]).body == b"{}"
    monkeypatch.setenv("https_proxy", server.base_url)
    server.answer = lambda ask: refuse(403)
    with pytest.raises(NetworkError):
        connect("https://service.invalid", attempts=1).get(["x"])
    assert [a.target for a in server.asks] == ["service.invalid:443"]
    assert server.asks[0].header("X-API-Key") == []


@pytest.mark.fault("N29")
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("https_proxy", "{server}", "The proxy that https_proxy names wants a login (407)"),
        ("https_proxy", "http://127.0.0.1:1", "The proxy that https_proxy names cannot be reached"),
        ("ALL_PROXY", "http://proxy.invalid:1", "The proxy that ALL_PROXY names cannot be reached"),
        ("ALL_PROXY", "socks5://127.0.0.1:1", "The proxy that ALL_PROXY names is a SOCKS proxy, which needs"),
        ("https_proxy", "http://", "The proxy that https_proxy names is not an address"),
        ("REQUESTS_CA_BUNDLE", "/no/such/file.pem", "The file that REQUESTS_CA_BUNDLE names is missing"),
        ("CURL_CA_BUNDLE", __file__, "The file that CURL_CA_BUNDLE names is missing, or is no bundle"),
    ],
    ids=["407", "nobody", "unknown host", "socks", "no address", "no bundle", "no certificates"],
)
@pytest.mark.usefixtures("nobody_invalid")
def test_a_wrong_proxy_or_bundle_is_named(server, tls, connect, monkeypatch, variable, value, words) -> None:
    """There is no retry."""
    server.answer = lambda ask: refuse(407)
    monkeypatch.setitem(sys.modules, "socks", None)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, value.format(server=server.base_url))
    with pytest.raises(NetworkError) as caught:
        connect("https://service.invalid" if "proxy" in variable.lower() else tls()).get(["x"])
    assert words in str(caught.value)
    assert caught.value.attempts == 1


# -- a wrong base_url


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_website_in_place_of_a_service_is_named(connect, server, status) -> None:
    """A web page that refuses a request asks for the address and does not speak of slugs."""
    server.answer = lambda ask: Act(status=status, body=b"<h1>Not here</h1>").with_header("Content-Type", "text/html")
    with pytest.raises(RequestError, match=r"Not here.*web page: is base_url the address of a service") as caught:
        connect(server.base_url).get(["markets", "rain"])
    assert "ids and slugs" not in str(caught.value)


@pytest.mark.parametrize(("path", "asked"), [("/api", ["markets"]), ("/api", ["health"]), ("/v1/markets", ["markets"])])
def test_a_path_in_base_url_that_no_service_has_is_named(connect, server, path, asked) -> None:
    """A listing that is not found means that the address is wrong; a market that is not found does not."""
    server.answer = lambda ask: refuse(404, "Not Found")
    with pytest.raises(NotFoundError, match=r"is base_url right\? It ends before /v1"):
        connect(server.base_url + path).get(asked)
    with pytest.raises(NotFoundError, match="finds ids and slugs"):
        connect(server.base_url).get(["markets", "rain"])
