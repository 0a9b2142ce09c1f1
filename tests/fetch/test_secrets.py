from __future__ import annotations

import copy
import http.client
import inspect
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import vcr
from reference.faults import HANG_UP, RESET_PEER, Act, Ask, FaultServer, ok, refuse
from reference.oracle import Oracle, expected, read, rows

from marketdata.clock import Clock
from marketdata.errors import (
    AuthenticationError,
    ConfigError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    NotFoundError,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.auth import KeyProvider, Secret, check_key, mask, redact
from marketdata.fetch.http.rate_limit import _BY_KEY, Pacer
from marketdata.fetch.http.transport import Transport

KEY = "s3cret-key-0123456789-abcd"
FAULTS: dict[str, Callable[[Ask], Act]] = {
    "reset": lambda ask: RESET_PEER,
    "closed": lambda ask: HANG_UP,
    "echo in a detail": lambda ask: refuse(400, f"what is {ask.header('X-API-Key')}"),
    "echo in problems": lambda ask: refuse(422, [{"loc": ["header", KEY], "msg": KEY, "type": KEY, "input": KEY}]),
    "echo in a page": lambda ask: Act(body=f"[{KEY}]".encode()),
    "echo in html": lambda ask: Act(status=502, body=f"<b>{KEY}</b>".encode()).with_header("Content-Type", "text/html"),
    "redirect": lambda ask: Act(status=302).with_header("Location", f"http://{KEY}@evil.example/{KEY}"),
    "no json": lambda ask: Act(body=b"{"),
    "cut": lambda ask: Act(body=b"x" * 50, limit_data=5),
    "bomb": lambda ask: ok("0" * (4 << 20)).zipped(),
}


def frames(error: BaseException) -> str:
    """A traceback with the locals of every frame below the test's own."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    shown = traceback.TracebackException(type(error), error, below, capture_locals=True)
    return "".join(shown.format())


def everything(value: Any) -> str:
    """All that a person, a log or a crash dump may see of an object."""
    held = vars(value) if hasattr(value, "__dict__") else ""
    dumps = [repr(value), str(value), repr(held), str(held)]
    if isinstance(value, BaseException):
        dumps += [frames(value), repr(pickle.dumps(value)), repr(value.__cause__), repr(value.__context__)]
    return "\n".join(dumps)


@pytest.mark.fault("K1")
def test_repr(transport: Transport, server: FaultServer) -> None:
    """No representation of a transport, its parts or its errors shows more than four characters of the key."""
    transport.get(["x"])
    for thing in (transport, transport.keys, transport.pacer, transport._sessions, transport.policy):
        assert KEY not in everything(thing)
    assert "…abcd" in repr(transport)
    assert (mask("x" * 15), mask("0123456789abcdef")) == ("***", "…cdef")


@pytest.mark.fault("K2")
@pytest.mark.parametrize("fault", FAULTS)
def test_tracebacks_and_logs(
    server: FaultServer, transport: Transport, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No error shows the key, neither in a traceback with locals nor in a pickle nor in a log at DEBUG."""
    server.answer = FAULTS[fault]
    with pytest.raises(MarketDataError) as caught:
        transport.get_json(["x"])
    assert KEY not in everything(caught.value)
    assert KEY not in caplog.text


@pytest.mark.fault("K2")
def test_interrupted(server: FaultServer, transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while the answer is read passes the frames of the HTTP library, and even their locals are masked."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(http.client.HTTPResponse, "begin", press)
    with pytest.raises(KeyboardInterrupt) as caught:
        transport.get(["x"])
    shown = frames(caught.value)
    assert "urlopen" in shown
    assert KEY not in shown


@pytest.mark.fault("K3")
def test_pickles(server: FaultServer, transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of a transport holds no key; what it makes reads the environment again."""
    data = pickle.dumps(transport)
    assert KEY.encode() not in data
    with pytest.raises(ConfigError, match="MARKETDATA_API_KEY"):
        pickle.loads(data)
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    assert pickle.loads(data).get(["x"]).body == b"{}"
    assert copy.deepcopy(transport).base_url == transport.base_url
    assert KEY.encode() not in pickle.dumps(Secret(KEY))


@pytest.mark.fault("K3")
def test_errors_hold_no_request(server: FaultServer, transport: Transport) -> None:
    """An error keeps plain data alone."""
    server.answer = lambda ask: refuse(401, "Invalid or expired API key.")
    with pytest.raises(AuthenticationError) as caught:
        transport.get(["x"])
    assert {type(v) for v in vars(caught.value).values()} <= {int, str, float, type(None)}


@pytest.mark.fault("K4")
@pytest.mark.parametrize(
    "key", ["", " ", "abc def", "abc\n", "abc\r\nX-Evil: 1", "schlüssel", "key\x00", "\ts3cret", "\u043aey"]
)
def test_malformed_key(key: str) -> None:
    """A key that no header can carry is a ValueError before any request, and is not shown."""
    with pytest.raises(ValueError, match="api_key") as caught:
        Transport("https://service.invalid", key)
    assert isinstance(caught.value, ConfigError)
    assert not key.strip() or key.strip() not in str(caught.value)


@pytest.mark.fault("K4")
def test_other_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key comes from a text, a callable or the environment, and from nowhere else."""
    monkeypatch.delenv("MARKETDATA_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="api_key is missing"):
        KeyProvider().get()
    with pytest.raises(ConfigError, match="int"):
        check_key(5)
    with pytest.raises(ConfigError):
        KeyProvider(lambda: "two words").get()
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    assert KeyProvider().get() == KeyProvider(lambda: KEY).get() == KEY


@pytest.mark.fault("K5")
def test_what_is_kept(server: FaultServer, clock: Clock, tmp_path: Path) -> None:
    """Neither a cassette nor pages, reports or positions hold the key."""
    oracle = Oracle.of_prices(300)
    server.answer = oracle
    cassette = tmp_path / "walk.yaml"
    report = Report()
    with vcr.use_cassette(str(cassette), filter_headers=["X-API-Key"], record_mode="once"):
        transport = Transport(server.base_url, KEY, pacer=Pacer(clock=clock), clock=clock)
        recorded = read(transport, oracle.request(300), report=report)
        transport.close()
    asked = len(server.asks)
    with vcr.use_cassette(str(cassette), filter_headers=["X-API-Key"], record_mode="none"):
        transport = Transport(server.base_url, "another-key-0123456789", pacer=Pacer(clock=clock), clock=clock)
        replayed = read(transport, oracle.request(300))
        transport.close()
    assert len(server.asks) == asked == 3
    assert [len(c.columns) for c in replayed] == [len(c.columns) for c in recorded] == [600]
    assert KEY not in cassette.read_text()
    assert KEY.encode() not in pickle.dumps((recorded, report))


@pytest.mark.fault("K6")
@pytest.mark.parametrize("slug", [".", "..", "", "x" * 201, "\ud800"])
def test_slug_refused(server: FaultServer, transport: Transport, slug: str) -> None:
    """A slug that would change the path, or has no length the interface allows, is refused before any request."""
    with pytest.raises(ConfigError):
        transport.get(["markets", slug, "books"])
    assert server.asks == []


@pytest.mark.fault("K6")
@pytest.mark.parametrize(
    ("slug", "quoted"),
    [
        ("a/b", "a%2Fb"),
        ("x/books", "x%2Fbooks"),
        ("...", "..."),
        ("../../usage", "..%2F..%2Fusage"),
        ("%2e%2e", "%252e%252e"),
        ("a?limit=1", "a%3Flimit%3D1"),
        ("a#b", "a%23b"),
        ("a b+c", "a%20b%2Bc"),
        ("\x00\r\n", "%00%0D%0A"),
        ("é", "%C3%A9"),
        ("e\u0301", "e%CC%81"),
        ("~-_.", "~-_."),
        ("\\..\\", "%5C..%5C"),
        ("x" * 200, "x" * 200),
        ("😀" * 200, "%F0%9F%98%80" * 200),
    ],
)
def test_slug_is_one_segment(server: FaultServer, transport: Transport, slug: str, quoted: str) -> None:
    """Any other slug is one segment of the path, as it is."""
    transport.get(["markets", slug, "books"])
    assert server.asks[0].target == f"/v1/markets/{quoted}/books"


@pytest.mark.fault("K7")
@pytest.mark.parametrize(
    "url",
    [
        "https://user:pass@host",
        "https://user@host",
        "https://host?key=1",
        "https://host/v1?",
        "https://host#part",
        "ftp://host",
        "file:///etc/passwd",
        "host",
        "",
        "https://",
        "https://ho st",
        "https://host/../x",
        "https://host:port",
        "https://[::1",
        "javascript:alert(1)",
    ],
)
def test_base_url_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address with a user, a query, a fragment or another scheme is refused, without showing a password."""
    monkeypatch.delenv("MARKETDATA_BASE_URL", raising=False)
    with pytest.raises(ConfigError) as caught:
        Transport(url, KEY)
    assert "pass@" not in str(caught.value)


@pytest.mark.fault("K7")
@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://host", "https://host"),
        ("https://host/", "https://host"),
        ("https://host/v1", "https://host"),
        ("https://host/v1/", "https://host"),
        ("https://host:8443/data/v1", "https://host:8443/data"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:80/v1", "http://[::1]:80"),
    ],
)
def test_base_url_taken(url: str, base: str) -> None:
    """A trailing slash or version is dropped."""
    assert Transport(url, KEY).base_url == base


@pytest.mark.fault("K8")
def test_key_in_the_header_alone(server: FaultServer, transport: Transport) -> None:
    """The key travels in one X-API-Key header, never in the address, and no parameter would take it."""
    transport.get(["x"], {"a": "b"})
    ask = server.asks[0]
    assert ask.header("X-API-Key") == [KEY]
    assert KEY not in ask.target
    assert "api_key" not in inspect.signature(transport.get).parameters
    assert all(KEY not in v for n, v in ask.headers if n != "X-API-Key")


@pytest.mark.fault("K8")
def test_registry_of_pacers(server: FaultServer) -> None:
    """Clients of one key share a pacer; it is found by a digest, never by the key."""
    one, two, three = (Transport(server.base_url, k) for k in (KEY, KEY, "another-key-0123456789"))
    assert one.pacer is two.pacer
    assert one.pacer is not three.pacer
    assert all(KEY not in name for name in _BY_KEY)


@pytest.mark.fault("N36")
@pytest.mark.parametrize("key", ["test", "Yes", "price", "tokens"])
def test_a_key_that_is_a_common_word(server: FaultServer, clock: Clock, key: str) -> None:
    """Data is never redacted: a short key that data holds by chance takes no letter of it."""
    oracle = Oracle.of_prices(30, ["Yes", "latest"])
    server.answer = oracle
    transport = Transport(server.base_url, key, pacer=Pacer(clock=clock), clock=clock)
    (chunk,) = read(transport, oracle.request(30), strict=True)
    assert {token.token_label for token in chunk.columns.tokens} == {"Yes", "latest"}
    assert sorted(rows([chunk])) == expected(oracle.points)
    transport.close()


@pytest.mark.fault("N36", "K2")
@pytest.mark.parametrize("key", ["test", "a", "market", "limit", "t.k"])
def test_a_short_key_in_the_text_of_an_error(server: FaultServer, clock: Clock, key: str) -> None:
    """A short key goes from a refusal where it stands alone, and takes no letter of a slug, a name or a word."""
    transport = Transport(server.base_url, key, pacer=Pacer(clock=clock), clock=clock)

    def said(detail: str, *asked: str) -> str:
        server.answer = lambda ask: refuse(404, detail)
        with pytest.raises(NotFoundError) as caught:
            transport.get(asked or ["x"])
        assert caught.value.detail in str(caught.value)
        return caught.value.detail

    for slug in (f"{key}-1", f"1-{key}", f"la{key}st-{key}-11", f"x_{key}", f"v1/{key}/books", f"{key}.{key}"):
        assert said(f"Market not found: {slug}", "markets", slug, "books").endswith(slug)
        assert said(f"Not found: {slug}.") == f"Not found: {slug}."
    assert said(f"Not found: {key}", "markets", key, "books") == f"Not found: {key}"
    for held in ("X-API-Key: {}", "?api_key={}&x=1", "key '{}'.", '["{}"]', "({})", "{}"):
        assert said(held.format(key)) == held.format("***")
    transport.close()


@pytest.mark.fault("N36", "K2")
@pytest.mark.parametrize("key", ["test", "a", "market", "limit"])
def test_a_short_key_changes_no_class_of_error(server: FaultServer, clock: Clock, key: str) -> None:
    """What a refusal means is read before it is redacted, and data that an error quotes stays whole."""
    transport = Transport(server.base_url, key, pacer=Pacer(clock=clock), clock=clock)
    server.answer = lambda ask: refuse(400, "limit too small for a market. Minimum required: 12")
    with pytest.raises(LimitTooSmallError) as small:
        transport.get(["x"])
    assert small.value.minimum == 12
    text = f"token '{key}' was '1', not {key}; the label {key}"
    echoed = f"{text} (X-API-Key: {key}) http://h/v1?key={key}"
    assert str(transport.redacted(ContractError(echoed))) == f"{text} (X-API-Key: ***) http://h/v1?key=***"
    transport.close()


@pytest.mark.fault("K2")
def test_a_long_key_goes_wherever_it_stands() -> None:
    """A key of 16 characters is taken out of the middle of words, quoted or not, and out of data."""
    key = "0123/456789+abcdef"
    for is_data in (True, False):
        shown = redact(f"a{key}b {quote(key, safe='')}c", key, is_data=is_data)
        assert shown == "a***b ***c"
