from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reference.faults import HANG_UP, RESET_PEER, Act, FaultServer, ok, refuse
from reference.oracle import Oracle, expected, fetch, read, rows

from marketdata.clock import Clock
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

Connect = Callable[..., Transport]
GOOD = ok({"a": list(range(500))})
NOON = "Fri, 01 Jan 2100 12:00:00 GMT"
NOON_AND_7 = "Fri, 01 Jan 2100 12:00:07 GMT"


@pytest.mark.fault("N1")
def test_connect_refused(connect: Connect, clock: Clock) -> None:
    """A refused connection is tried five times in less than 2 s, then an error that asks whether a service runs."""
    with pytest.raises(NetworkError, match="refused") as caught:
        connect("http://127.0.0.1:1").get(["x"])
    assert caught.value.attempts == 5
    assert caught.value.__context__ is None
    assert "is a service running there?" in str(caught.value)
    assert 0 < clock.slept < 2


@pytest.fixture
def nobody_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that end in ``.invalid`` have no address, whatever a resolver says of them, and how late it does."""
    real = socket.getaddrinfo

    def found(host: str, *arguments: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):
            raise socket.gaierror(-2, "Name or service not known")
        return real(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.fault("N1")
@pytest.mark.usefixtures("nobody_invalid")
def test_unknown_host(connect: Connect) -> None:
    """A host without an address is tried five times."""
    with pytest.raises(NetworkError) as caught:
        connect("https://service.invalid").get(["x"])
    assert caught.value.attempts == 5


@pytest.mark.fault("N2")
def test_connect_hangs(connect: Connect) -> None:
    """A connection that is never accepted ends after the connect timeout, each time."""
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


def corrupt(data: bytes, at: int) -> bytes:
    """The bytes with one that differs."""
    out = bytearray(data)
    out[at] ^= 0xFF
    return bytes(out)


GZIP = gzip.compress(os.urandom(300).hex().encode())


@pytest.mark.fault("N3", "N4", "N5", "N8", "N9")
@pytest.mark.parametrize(
    "fault",
    [
        RESET_PEER,
        HANG_UP,
        Act(body=GOOD.body, limit_data=100),
        Act(body=GOOD.body, limit_data=100, reset=True),
        Act(body=GOOD.body, framing="chunked", limit_data=300),
        *(GOOD.zipped(corrupt(GZIP, at)) for at in (-6, -2, 40)),
        *(GOOD.zipped(GZIP[:-cut]) for cut in (8, 4, 200)),
    ],
    ids=[
        "reset",
        "closed",
        "cut",
        "cut and reset",
        "no last chunk",
        "crc",
        "length",
        "data",
        "no end",
        "half",
        "short",
    ],
)
def test_an_answer_that_is_cut_or_corrupt_is_requested_again(
    server: FaultServer, transport: Transport, fault: Act
) -> None:
    """A part of an answer is never read, also where its length is right and only its checksum is missing."""
    server.script = [fault, GOOD.zipped()]
    answer = transport.get(["x"])
    assert (answer.attempts, answer.body) == (2, GOOD.body)


@pytest.mark.fault("N3")
def test_stale_keep_alive(server: FaultServer, transport: Transport, clock: Clock) -> None:
    """On a connection that was used before, the first retry is sent at once."""
    server.script = [GOOD, RESET_PEER, GOOD]
    transport.get(["x"])
    assert transport.get(["x"]).attempts == 2
    assert clock.slept == 0


@pytest.mark.fault("N6")
def test_cut_without_length(server: FaultServer, transport: Transport) -> None:
    """A body that ends with its connection shows its cut only as JSON; it is asked for again."""
    server.script = [Act(body=GOOD.body, framing="close", limit_data=300), GOOD]
    assert transport.get_json(["x"]) == json.loads(GOOD.body)
    assert len(server.asks) == 2


@pytest.mark.fault("N7")
def test_truncated_json(server: FaultServer, transport: Transport) -> None:
    """JSON that is cut with the right length is asked for once more, then named with a short start of it."""
    server.answer = lambda ask: Act(body=json.dumps({"key": ask.header("X-API-Key"), "z": "z" * 900}).encode()[:-9])
    with pytest.raises(ContractError, match="not JSON") as caught:
        transport.get_json(["x"])
    assert len(server.asks) == caught.value.attempts == 2
    assert "s3cret" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.fault("N9")
@pytest.mark.parametrize("name", ["br", "deflate", "zstd", "gzip, gzip", "evil"])
def test_unasked_encoding(server: FaultServer, transport: Transport, name: str) -> None:
    """A body in an encoding that was not asked for is off the interface, after one more try."""
    server.answer = lambda ask: GOOD.with_header("Content-Encoding", name)
    with pytest.raises(ContractError, match="encoded as"):
        transport.get(["x"])
    assert len(server.asks) == 2


@pytest.mark.fault("N9")
def test_gzip_undone_on_the_way(server: FaultServer, transport: Transport) -> None:
    """JSON under the name of gzip is JSON: recorders and some proxies unpack a body and leave the header."""
    server.answer = lambda ask: GOOD.zipped(GOOD.body)
    assert transport.get(["x"]).body == GOOD.body
    server.script = [GOOD.zipped(b"1" + GOOD.body)]
    assert transport.get(["x"]).attempts == 2


@pytest.mark.fault("N9")
def test_gzip_of_several_members(server: FaultServer, transport: Transport) -> None:
    """A gzip body may be made of several members; each is proven."""
    server.answer = lambda ask: GOOD.zipped(gzip.compress(b"[1,") + gzip.compress(b"2]"))
    assert transport.get(["x"]).body == b"[1,2]"


@pytest.mark.fault("N10")
@pytest.mark.parametrize(
    "act", [Act(body=b"x" * 100_000), Act(headers=(("X-Long", "x" * 60_000),))], ids=["body", "head"]
)
def test_an_answer_that_drips_ends_at_the_deadline(server: FaultServer, connect: Connect, act: Act) -> None:
    """The attempt ends when its time is over, though no single byte is late."""
    server.answer = lambda ask: replace(act, slicer=(1, 0.005))
    with pytest.raises(NetworkError) as caught:
        connect(total=0.04, silence=0.03, attempts=2).get(["x"])
    assert caught.value.attempts == 2


@pytest.mark.fault("N11")
@pytest.mark.parametrize("act", [Act(body=b"x" * 300_000), ok("0" * 300_000).zipped()], ids=["long", "bomb"])
def test_huge_body(server: FaultServer, connect: Connect, act: Act) -> None:
    """A body larger than the cap is left there and not asked for again."""
    server.answer = lambda ask: act
    with pytest.raises(PayloadTooLargeError) as caught:
        connect(largest_body=100_000).get(["x"])
    assert len(server.asks) == caught.value.attempts == 1


@pytest.mark.fault("N11")
def test_ratio(server: FaultServer, transport: Transport) -> None:
    """A gzip stream that grows a thousandfold is left long before the cap of 64 MiB."""
    server.answer = lambda ask: ok("0" * (8 << 20)).zipped()
    with pytest.raises(PayloadTooLargeError, match="200-fold"):
        transport.get(["x"])
    assert len(server.asks) == 1


@pytest.mark.fault("N12")
def test_retry_after_seconds(server: FaultServer, transport: Transport, clock: Clock) -> None:
    """After a 429 all threads wait what the service asked for, and at most a second more."""
    server.script = [refuse(429, "Rate limit exceeded.", Retry_After="7"), GOOD]
    assert transport.get(["x"]).attempts == 2
    assert 7 <= clock.slept <= 8.01


@pytest.mark.fault("N12")
def test_gate_for_all_threads(server: FaultServer, transport: Transport, clock: Clock) -> None:
    """While the service asked to wait, no thread sends."""
    transport.pacer.pause(50.0)
    began = clock.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: transport.get(["x"]), range(4)))
    assert clock.monotonic() - began >= 50


@pytest.mark.fault("N13")
def test_retry_after_date(server: FaultServer, transport: Transport, clock: Clock) -> None:
    """A date is measured against the answer's own Date, so a clock that is decades off does no harm."""
    server.script = [refuse(429, Retry_After=NOON_AND_7, Date=NOON), GOOD]
    transport.get(["x"])
    assert 7 <= clock.slept <= 8.01


@pytest.mark.fault("N14")
@pytest.mark.parametrize("value", [None, "1.5", "-1", "", "0", "soon", "٣", NOON_AND_7])
def test_retry_after_invalid(server: FaultServer, transport: Transport, clock: Clock, value: str | None) -> None:
    """Without a usable Retry-After the wait is the throttling backoff."""
    act = refuse(429)
    server.script = [act if value is None else act.with_header("Retry-After", value.encode().decode("latin-1")), GOOD]
    assert transport.get(["x"]).attempts == 2
    assert 0.5 <= clock.slept <= 1.01


@pytest.mark.fault("N15")
@pytest.mark.parametrize("value", ["1000000000", "Fri, 31 Dec 9999 23:59:59 GMT", "121"])
def test_retry_after_far(server: FaultServer, transport: Transport, clock: Clock, value: str) -> None:
    """A wait of more than two minutes is an error that says until when, and no sleep."""
    server.answer = lambda ask: refuse(429, Retry_After=value, Date="Thu, 01 Jan 2026 00:00:00 GMT")
    with pytest.raises(RateLimitError) as caught:
        transport.get(["x"])
    assert caught.value.retry_at is not None
    assert caught.value.retry_at >= 1_767_225_600 + 121
    assert (clock.slept, len(server.asks)) == (0, 1)


@pytest.mark.fault("N16")
def test_429_for_ever(server: FaultServer, transport: Transport) -> None:
    """An endless 429 ends by attempts, or sooner by the deadline of the call."""
    server.answer = lambda ask: refuse(429, "Rate limit exceeded. Please try again later.", Retry_After="60")
    with pytest.raises(RateLimitError, match="try again later") as caught:
        transport.get(["x"])
    assert caught.value.attempts == 5
    with pytest.raises(RateLimitError) as caught:
        transport.get(["x"], deadline=100.0)
    assert caught.value.attempts == 2


@pytest.mark.fault("N17")
def test_single_500(server: FaultServer, transport: Transport) -> None:
    """One 500 is tried again; a server that keeps failing is left after five attempts."""
    server.script = [refuse(500, "Failed to fetch data."), GOOD]
    assert transport.get(["x"]).attempts == 2
    server.answer = lambda ask: refuse(500, "Failed to fetch data.")
    with pytest.raises(ServerError, match="Failed to fetch data") as caught:
        transport.get(["x"])
    assert caught.value.attempts == 5


@pytest.mark.fault("N17")
def test_outage_does_not_become_a_storm(server: FaultServer, transport: Transport) -> None:
    """In an outage sixteen threads share forty retries at most."""
    server.answer = lambda ask: refuse(500)

    def ask(_: int) -> int:
        with pytest.raises(ServerError):
            transport.get(["x"])
        return 1

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(ask, range(64))) == 64
    assert 4 <= transport.retries <= 40
    assert len(server.asks) == 64 + 1 + transport.retries  # one asks what the key may spend


@pytest.mark.fault("N18")
@pytest.mark.parametrize("status", [502, 503, 504])
def test_proxy_html(server: FaultServer, transport: Transport, status: int) -> None:
    """The HTML of a proxy is tried again by its status; its text is shown without tags, cut at 200 characters."""
    page = Act(
        status=status, body=b"<html><style>p{}</style><h1>Bad <b>gateway</b></h1>" + b"<p>more</p>" * 200 + b"</html>"
    )
    server.answer = lambda ask: page.with_header("Content-Type", "text/html")
    with pytest.raises(ServerError) as caught:
        transport.get(["x"])
    assert caught.value.attempts == 5
    assert caught.value.detail.startswith("Bad gateway more")
    assert len(caught.value.detail) <= 200


@pytest.mark.fault("N19")
def test_503_retry_after(server: FaultServer, transport: Transport, clock: Clock) -> None:
    """A 503 that says how long to wait is obeyed as a 429 is."""
    server.script = [refuse(503, Retry_After="9"), GOOD]
    transport.get(["x"])
    assert 9 <= clock.slept <= 10.01


@pytest.mark.fault("N20")
def test_408(server: FaultServer, transport: Transport) -> None:
    """A request timeout of the server is tried again."""
    server.script = [refuse(408), GOOD]
    assert transport.get(["x"]).attempts == 2


@pytest.mark.fault("N21")
def test_login_page(server: FaultServer, transport: Transport) -> None:
    """A page of HTML with status 200 is asked for once more, then named by its type."""
    server.answer = lambda ask: ok({}).with_header("Content-Type", "text/html; charset=utf-8")
    with pytest.raises(ContractError, match="text/html"):
        transport.get(["x"])
    assert len(server.asks) == 2


@pytest.mark.fault("N22")
@pytest.mark.parametrize("kind", ["text/plain", ""])
def test_content_type(server: FaultServer, transport: Transport, kind: str) -> None:
    """JSON under another name is read, with one warning for the whole walk."""
    oracle = Oracle.of_prices(300)
    server.answer = lambda ask: oracle(ask).with_header("Content-Type", kind)
    report = Report()
    assert sorted(rows(read(transport, oracle.request(300), report=report))) == expected(oracle.points)
    assert report.warnings == {"content_type_not_json": 1}


@pytest.mark.fault("N23")
@pytest.mark.parametrize("status", [204, 206, 304, 299])
def test_unknown_success(server: FaultServer, transport: Transport, status: int) -> None:
    """Any other success than 200 is off the interface, and not asked for again."""
    server.answer = lambda ask: Act(status=status)
    with pytest.raises(ContractError, match=str(status)):
        transport.get(["x"])
    assert len(server.asks) == 1


@pytest.mark.fault("N24")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["other", "same", "relative"])
def test_redirect(server: FaultServer, transport: Transport, status: int, where: str) -> None:
    """A redirect is refused and the key goes nowhere; the message names scheme and host alone."""
    with FaultServer() as other:
        location = {"other": other.base_url, "same": server.base_url, "relative": ""}[where] + "/v1/elsewhere?secret=1"
        server.answer = lambda ask: Act(status=status).with_header("Location", location)
        with pytest.raises(RedirectError) as caught:
            transport.get(["x"])
        assert other.asks == []
    assert len(server.asks) == 1
    assert "secret" not in str(caught.value)


@pytest.mark.fault("N25")
@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationError), (403, PlanError), (404, NotFoundError), (422, ParameterError), (405, RequestError)],
)
def test_refusals(server: FaultServer, transport: Transport, status: int, kind: type[RequestError]) -> None:
    """A refusal is one request and its own class, the detail whole."""
    server.answer = lambda ask: refuse(status, "Your plan does not allow historical order books.")
    with pytest.raises(kind) as caught:
        transport.get(["markets", "x", "books"])
    error = caught.value
    assert (error.status, error.attempts, len(server.asks)) == (status, 1, 1)
    assert error.detail == "Your plan does not allow historical order books."
    assert error.url == f"{server.base_url}/v1/markets/x/books"


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
def test_detail(server: FaultServer, transport: Transport, body: bytes, shown: str) -> None:
    """Whatever shape an error body has, it becomes a text of at most 2 kB."""
    server.answer = lambda ask: Act(status=422, body=body)
    with pytest.raises(ParameterError) as caught:
        transport.get(["x"])
    assert shown in caught.value.detail
    assert len(caught.value.detail) <= 2048
    problems = list(caught.value.problems)
    assert problems == ([{k: PROBLEMS[0][k] for k in ("loc", "msg", "type")}] if "query" in shown else [])


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate and its key for 127.0.0.1, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(path), "-out", str(path.with_name("cert.pem"))]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("openssl makes the certificate of this test, and is not here")
    path.write_bytes(path.read_bytes() + path.with_name("cert.pem").read_bytes())
    return path


@pytest.fixture
def tls(certificate: Path) -> Iterator[Callable[..., str]]:
    """Starts servers that speak TLS; gives their address."""
    listeners: list[socket.socket] = []

    def start(newest: ssl.TLSVersion | None = None) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if newest is not None:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = newest
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    try:
                        with context.wrap_socket(sock, server_side=True) as safe:
                            safe.recv(65536)
                            safe.sendall(
                                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
                            )
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        return f"https://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.fault("N27")
def test_certificate_invalid(tls: Callable[..., str], connect: Connect) -> None:
    """A certificate that nobody vouches for ends the request, without a retry."""
    with pytest.raises(NetworkError, match="certificate") as caught:
        connect(tls()).get(["x"])
    assert caught.value.attempts == 1


@pytest.mark.fault("N27")
def test_host_mismatch(
    tls: Callable[..., str], connect: Connect, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for another host ends the request, without a retry."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
    with pytest.raises(NetworkError, match="certificate") as caught:
        connect(tls().replace("127.0.0.1", "localhost")).get(["x"])
    assert caught.value.attempts == 1


@pytest.mark.fault("N27")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_tls(tls: Callable[..., str], connect: Connect, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that speaks TLS 1.0 alone is not talked to."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
    with pytest.raises(NetworkError, match="TLS") as caught:
        connect(tls(ssl.TLSVersion.TLSv1)).get(["x"])
    assert caught.value.attempts == 1


@pytest.mark.fault("N28")
@pytest.mark.parametrize("url", ["http://example.org", "http://10.0.0.1/v1", "http://127.0.0.1.example.org"])
def test_http_beyond_this_machine(url: str) -> None:
    """Without TLS the key leaves this machine only if the user says so."""
    with pytest.raises(ConfigError, match="allow_insecure"):
        Transport(url, "k" * 20)
    assert Transport(url, "k" * 20, allow_insecure=True).base_url == url.removesuffix("/v1")


@pytest.mark.fault("N29")
def test_netrc_and_http_proxy(
    server: FaultServer, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither netrc nor a proxy for plain http is used."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    connect().get(["x"])
    assert server.asks[0].header("Authorization") == []


@pytest.mark.fault("N29")
def test_https_proxy_and_bundle(
    server: FaultServer, tls: Callable[..., str], connect: Connect, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For https the proxy and the CA bundle of the environment are used, and the proxy does not see the key."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate.with_name("cert.pem")))
    assert connect(tls()).get(["x"]).body == b"{}"
    monkeypatch.setenv("https_proxy", server.base_url)
    server.answer = lambda ask: refuse(403)
    with pytest.raises(NetworkError):
        connect("https://service.invalid", attempts=1).get(["x"])
    assert [a.target for a in server.asks] == ["service.invalid:443"]
    assert server.asks[0].header("X-API-Key") == []


@pytest.mark.fault("N29")
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"https_proxy": "{server}"}, "The proxy that https_proxy names wants a login (407)"),
        ({"https_proxy": "http://127.0.0.1:1"}, "The proxy that https_proxy names cannot be reached"),
        ({"ALL_PROXY": "http://proxy.invalid:1"}, "The proxy that ALL_PROXY names cannot be reached"),
        (
            {"ALL_PROXY": "socks5://127.0.0.1:1"},
            "The proxy that ALL_PROXY names is a SOCKS proxy, which needs",
        ),
        ({"https_proxy": "http://"}, "The proxy that https_proxy names is not an address"),
        ({"REQUESTS_CA_BUNDLE": "/no/such/file.pem"}, "The file that REQUESTS_CA_BUNDLE names is missing"),
        ({"CURL_CA_BUNDLE": __file__}, "The file that CURL_CA_BUNDLE names is missing, or is no bundle"),
    ],
    ids=["407", "nobody", "unknown host", "socks", "no address", "no bundle", "no certificates"],
)
@pytest.mark.usefixtures("nobody_invalid")
def test_environment(
    server: FaultServer,
    tls: Callable[..., str],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    said: str,
) -> None:
    """The error names the variable of the environment, and there is no retry."""
    server.answer = lambda ask: refuse(407)
    monkeypatch.setitem(sys.modules, "socks", None)
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "REQUESTS_CA_BUNDLE", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(server=server.base_url))
    address = "https://service.invalid" if any("PROXY" in name.upper() for name in variables) else tls()
    with pytest.raises(NetworkError) as caught:
        connect(address).get(["x"])
    assert said in str(caught.value)
    assert caught.value.attempts == 1


@pytest.mark.fault("N30")
def test_clock_jumps(server: FaultServer, transport: Transport, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of the machine that jumps while waiting changes no wait."""
    jumps = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps)))
    server.script = [refuse(429, Retry_After="7"), refuse(500), GOOD]
    assert transport.get(["x"], deadline=60.0).attempts == 3
    assert clock.slept < 20


@pytest.mark.fault("N31")
def test_keyboard_interrupt(server: FaultServer, transport: Transport) -> None:
    """Ctrl-C leaves at once, what arrived is kept, and the rest is fetched later without asking for it again."""
    oracle = Oracle.of_prices(2000)
    server.answer = oracle
    fetching = fetch(transport, oracle.request(2000), workers=2)
    got: list[Any] = []

    def press() -> None:
        for arrival in fetching:
            got.append(arrival)
            if len(got) == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        press()
    rest, resume = fetching.stop()
    got += rest
    more = list(fetch(transport, *resume.windows, workers=2))
    assert got
    assert sorted(rows([*got, *more])) == expected(oracle.points)
    asked = [a.target for a in server.asks if a.path.endswith("/prices")]
    assert len(asked) <= 20 + 2 + 2  # what was on its way when the key was pressed, and one cut more on each side


def test_fifty_threads(server: FaultServer, transport: Transport) -> None:
    """Fifty threads on one transport each get the answer to their own question."""
    server.answer = lambda ask: ok({"path": ask.path})
    with ThreadPoolExecutor(50) as pool:
        names = [f"n{i}" for i in range(300)]
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
        Act(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 9000),
        Act(raw=b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 9000),
        Act(raw=b"not http at all\r\n\r\n"),
        Act(raw=b"HTTP/1.1 abc\r\n\r\n"),
    ],
    ids=["two lengths", "long header", "many headers", "switch", "endless 100", "endless 103", "no http", "no status"],
)
def test_odd_headers(server: FaultServer, connect: Connect, act: Act) -> None:
    """Headers off the rules are a typed error, never a hang."""
    server.answer = lambda ask: act
    with pytest.raises(MarketDataError):
        connect(attempts=2).get(["x"])


INTERIM = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" * 20,
]


@pytest.mark.fault("N33")
@pytest.mark.parametrize("before", INTERIM, ids=["100", "102", "103", "many"])
@pytest.mark.parametrize("slicer", [None, (1, 0.0)], ids=["at once", "bytes"])
def test_interim_answers(
    server: FaultServer, transport: Transport, before: bytes, slicer: tuple[int, float] | None
) -> None:
    """Interim answers are passed over, and each request of the connection gets its own answer."""
    server.answer = lambda ask: ok({"path": ask.path}, before=before, slicer=slicer)
    assert [transport.get_json([name])["path"] for name in "abc"] == ["/v1/a", "/v1/b", "/v1/c"]
    assert server.connections == 1


@pytest.mark.fault("N33")
@pytest.mark.parametrize("status", [101, 200, 204, 304])
def test_connections_with_something_unread(server: FaultServer, connect: Connect, status: int) -> None:
    """A connection on which more came than the answer is not used again."""
    more = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"path": "old"}'
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n" % status
    length = b"Content-Length: 2\r\n\r\n{}" if status == 200 else b"\r\n"
    server.answer = lambda ask: ok({"path": ask.path}, before=b"" if ask.path != "/v1/a" else head + length + more)
    transport = connect(attempts=1)
    with contextlib.suppress(MarketDataError):
        transport.get_json(["a"])
    assert transport.get_json(["b"]) == {"path": "/v1/b"}
