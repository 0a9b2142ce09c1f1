"""One key through everything; then it is looked for in all that was left behind."""

from __future__ import annotations

import base64
import contextlib
import copy
import logging
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import vcr
from reference.faults import HANG_UP, RESET_PEER, Act, Ask, FaultServer, ok, refuse
from reference.oracle import Oracle
from reference.web import raw

import marketdata as md
from marketdata.cli import main
from marketdata.service.server import serve
from marketdata.testing import no_waiting, vcr_config

KEY = "canary-5f1e0c7a9b3d4e68-of-this-suite"
TESTS = str(Path(__file__).parent)


def _forms(key: str) -> dict[str, bytes]:
    """The key as it may be written: plain, wide, in hex, backwards, and in base64 at each of its three offsets."""
    plain = key.encode()
    forms = {"plain": plain, "wide": key.encode("utf-16-le"), "hex": plain.hex().encode(), "backwards": plain[::-1]}
    for lead in range(3):
        coded = base64.b64encode(b"\0" * lead + plain)
        forms[f"base64+{lead}"] = coded[4 if lead else 0 : -4]
    return forms


FORMS = _forms(KEY)


class Evidence:
    """Things that were seen, by name, as bytes."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, bytes]] = []

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, name: str, *things: Any) -> None:
        """All that a person, a log, a pickle or a crash dump may see of things."""
        for thing in things:
            for how, text in _dumps(thing):
                self._seen.append((f"{name}: {how}", text))

    def hits(self) -> list[str]:
        """Where the key was found."""
        return [f"{name} ({form})" for name, data in self._seen for form, key in FORMS.items() if key in data]


def _dumps(thing: Any) -> Iterator[tuple[str, bytes]]:
    if isinstance(thing, bytes):
        yield "bytes", thing
        return
    shown = {"str": str(thing), "repr": repr(thing)}
    if hasattr(thing, "__dict__"):
        shown["vars"] = repr(vars(thing)) + str(vars(thing))
    if isinstance(thing, BaseException):
        shown["traceback"] = with_locals(thing)
    for how, text in shown.items():
        yield how, text.encode("utf-8", "surrogatepass")
    with contextlib.suppress(TypeError, AttributeError, pickle.PicklingError):  # no pickle of it, no key in it
        yield "pickle", pickle.dumps(thing)


def with_locals(error: BaseException) -> str:
    """The traceback as a crash report prints it, the locals of every frame and every cause; without our tests' own."""
    chain = [traceback.TracebackException(type(error), error, error.__traceback__, capture_locals=True)]
    for part in chain:
        part.stack[:] = [frame for frame in part.stack if not frame.filename.startswith(TESTS)]
        chain += [p for p in (part.__cause__, part.__context__, *(part.exceptions or ())) if p is not None]
    return "".join(line for part in chain for line in part.format())


class _Listener(logging.Handler):
    def __init__(self, evidence: Evidence) -> None:
        super().__init__(logging.DEBUG)
        self._evidence = evidence

    def emit(self, record: logging.LogRecord) -> None:
        self._evidence.add(f"log of {record.name}", record.getMessage(), repr(record.args))
        if record.exc_info and record.exc_info[1] is not None:
            self._evidence.add(f"log of {record.name}", record.exc_info[1])


@contextlib.contextmanager
def watched() -> Iterator[Evidence]:
    """Every logger at DEBUG and every warning, as evidence."""
    evidence = Evidence()
    listener = _Listener(evidence)
    root = logging.getLogger()
    loggers = [root, *(x for x in logging.Logger.manager.loggerDict.values() if isinstance(x, logging.Logger))]
    before = [(x, x.level, x.propagate) for x in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.propagate = True
    root.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield evidence
        evidence.add("warnings", *(str(w.message) for w in warned))
    finally:
        root.removeHandler(listener)
        for logger, level, propagate in before:
            logger.setLevel(level)
            logger.propagate = propagate


SPAN = ("2025-12-31", "2026-01-01")
YEAR = ("2026-01-01", "2026-01-02", "1m")
VIEWS = ("books", "prices", "metrics")


def html(body: str, status: int = 200) -> Act:
    return Act(status=status, body=body.encode()).with_header("Content-Type", "text/html")


def off(change: dict[str, Any]) -> Callable[[Ask], Act]:
    """An answer off the interface."""
    oracle = Oracle.of_prices(50)
    return lambda ask: ok({**oracle.page(ask), **change}) if ask.path.endswith("/prices") else refuse(404)


FAILURES: dict[str, Callable[[Ask], Act]] = {
    "400": lambda ask: refuse(400, "limit too small for this market. Minimum required: 900"),
    "401": lambda ask: refuse(401, "Invalid or expired API key."),
    "401 echo": lambda ask: refuse(401, f"what is {ask.header('X-API-Key')}?"),
    "403": lambda ask: refuse(403, f"the plan of {ask.header('X-API-Key')[0]} does not allow it"),
    "404": lambda ask: refuse(404, "Market not found: m"),
    "422 echo": lambda ask: refuse(422, [{"loc": ["header", KEY], "msg": KEY, "type": KEY, "input": KEY}]),
    "429": lambda ask: refuse(429, "Rate limit exceeded.", Retry_After="1"),
    "429 for a year": lambda ask: refuse(429, KEY, Retry_After="99999999"),
    "500 echo": lambda ask: html(f"<pre>X-API-Key: {KEY}</pre>", 500),
    "503": lambda ask: refuse(503, "busy", Retry_After=KEY),
    "418": lambda ask: refuse(418, KEY),
    "204": lambda ask: Act(status=204),
    "reset": lambda ask: RESET_PEER,
    "hang up": lambda ask: HANG_UP,
    "no http": lambda ask: Act(raw=KEY.encode() + b"\r\n\r\n"),
    "headers that echo": lambda ask: Act(raw=f"HTTP/1.1 200 OK\r\n{KEY}\r\n{KEY} : {KEY}\r\n\r\n".encode()),
    "cut": lambda ask: Act(body=b"x" * 900, limit_data=5),
    "cut gzip": lambda ask: Act().zipped(b"\x1f\x8b" + KEY.encode()),
    "bomb": lambda ask: ok("0" * (4 << 20)).zipped(),
    "encoded otherwise": lambda ask: Act().with_header("Content-Encoding", KEY),
    "login page": lambda ask: html(f"<form>{KEY}</form>"),
    "redirect": lambda ask: Act(status=302).with_header("Location", f"http://{KEY}@evil.example/{KEY}?{KEY}"),
    "cut json": lambda ask: Act(body=b'{"market_id": "'),
    "json that echoes": lambda ask: ok([KEY]),
    "other market": off({"resolution": KEY}),
    "no data": off({"data": KEY}),
    "wrong values": off({"data": {"Yes": [{"t": KEY, "p": KEY}]}}),
    "wrong cursor": off({"metadata": {"count": 100, "limit": 200, "next_cursor": {KEY: KEY}}}),
    "cursor without end": off({"metadata": {"count": 100, "limit": 200, "next_cursor": KEY}}),
}


@pytest.fixture
def evidence() -> Iterator[Evidence]:
    """Collect all output, and search it for the key at the end."""
    with watched() as out:
        yield out
    assert out.hits() == []


@pytest.fixture(scope="module")
def archive() -> md.Archive:
    return md.simulate(events=1, days=0.05, markets=1, levels=2)


@pytest.fixture
def service(archive: md.Archive, evidence: Evidence) -> Iterator[Any]:
    """A service that knows the key."""
    with serve(archive, keys={KEY: "all"}, plans={"all": {"requests_per_minute": 100_000}}) as running:
        yield running
        evidence.add("service", running)


def hits(name: str, thing: Any) -> list[str]:
    evidence = Evidence()
    evidence.add(name, thing)
    return evidence.hits()


def test_a_leak_is_noticed() -> None:
    """In any of its forms, in a log, a warning, a pickle or the locals of a frame, the key is found."""

    class Loose:
        def __repr__(self) -> str:
            return KEY

    for name, form in FORMS.items():
        assert hits(name, b"..." + form + b"..."), name
    assert len(hits("held", {"key": KEY})) == 3
    error = ValueError("x")
    error.where = Loose()  # type: ignore[attr-defined]
    assert hits("error", error)
    space: dict[str, Any] = {}
    exec(compile("def raises(key):\n    raise ValueError('x')", "elsewhere.py", "exec"), space)
    with pytest.raises(ValueError, match="x") as caught:
        space["raises"](KEY)
    assert KEY in with_locals(caught.value)
    with watched() as seen:
        logging.getLogger("urllib3.some.where").debug("header %s", KEY)
        warnings.warn(KEY, stacklevel=1)
    assert sum("log of urllib3.some.where" in hit for hit in seen.hits()) == 6
    assert sum("warnings" in hit for hit in seen.hits()) == 3


@pytest.mark.fault("K1", "K5")
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_client_that_fetches_holds_no_key(service: Any, evidence: Evidence, kind: Any, tmp_path: Path) -> None:
    """Neither a client that fetches everything, nor its frames, plans and reports hold the key."""
    client = md.Client(service.base_url, KEY, frame=kind)
    markets = client.markets()
    slug = str(markets["slug"][0])
    found = [markets, client.series(), client.events(), client.tokens(slug), client.tags(), client.market(slug)]
    found += [client.usage(), client.health(), client.plan("books", slug, *SPAN, "1m")]
    for view in VIEWS:
        frame = getattr(client, view)(slug, *SPAN, "1m")
        assert len(frame) > 0
        found += [frame, frame.md.report, *getattr(client, f"iter_{view}")(slug, *SPAN, "10m")]
    for thing in found:
        evidence.add(type(thing).__name__, thing)
        evidence.add("html", getattr(thing, "_repr_html_", str)())
        evidence.add("attrs", getattr(thing, "attrs", None))
    for frame in found:
        if isinstance(frame, pd.DataFrame | pl.DataFrame):
            path = tmp_path / "frame.parquet"
            write = frame.to_parquet if isinstance(frame, pd.DataFrame) else frame.write_parquet
            write(path)
            evidence.add("parquet", path.read_bytes(), repr(pq.read_schema(path).metadata))
    transport = client._source.transport
    evidence.add("client", client, copy.copy(client), transport, transport.keys, transport.pacer, transport._session)
    assert len(evidence) > 200


@pytest.mark.fault("K2", "K3", "K8")
@pytest.mark.parametrize("failure", FAILURES)
def test_no_error_shows_the_key(evidence: Evidence, failure: str) -> None:
    """Whatever a service answers, even with the key in its words, the error shows it nowhere."""
    with FaultServer(FAILURES[failure]) as server, no_waiting():
        client = md.Client(server.base_url, KEY, frame="polars")
        for call in (client.health, lambda: client.prices("m", *YEAR), client.usage, client.markets):
            try:
                evidence.add("answer", call())
            except md.MarketDataError as error:
                evidence.add(type(error).__name__, error, error.partial, error.resume)
        evidence.add("client", client)
        assert server.asks
        assert all(ask.header("X-API-Key") == [KEY] for ask in server.asks)
        assert all(KEY not in ask.target for ask in server.asks)


def _caught(call: Callable[[], Any]) -> Any:
    try:
        call()
    except md.MarketDataError as error:
        return error
    raise AssertionError("it failed before")


def test_a_refused_connection_shows_no_key(evidence: Evidence) -> None:
    """If nobody listens at the address, the error and its causes hold no header."""
    for base_url in ("http://127.0.0.1:9", "https://127.0.0.1:9"):
        with no_waiting():
            evidence.add("error", _caught(md.Client(base_url, KEY).health))


def test_a_redirect_sends_the_key_to_no_other_host(evidence: Evidence) -> None:
    """A second host to which a service points hears nothing at all."""
    with FaultServer() as other:
        where = other.base_url.replace("127.0.0.1", "localhost") + "/v1/health"
        for status in (301, 302, 303, 307, 308):
            answer = Act(status=status).with_header("Location", where)
            with FaultServer(lambda ask, answer=answer: answer) as server:
                client = md.Client(server.base_url, KEY)
                evidence.add("error", _caught(client.health))
                with pytest.raises(md.errors.RedirectError):
                    client.prices("m", *YEAR)
        assert other.asks == []


@pytest.mark.fault("K2")
def test_an_interrupt_shows_no_key(evidence: Evidence) -> None:
    """A Ctrl-C while pages are on their way shows no key in any frame that it passes."""
    oracle = Oracle.of_prices(1440)
    presses = iter(["once"])

    def answer(ask: Ask) -> Act:
        if "cursor" in ask.params and next(presses, None):
            os.kill(os.getpid(), signal.SIGINT)
        return oracle(ask) if ask.path.endswith("/prices") else refuse(404)

    with FaultServer(answer) as server:
        client = md.Client(server.base_url, KEY)
        with pytest.raises(KeyboardInterrupt) as caught:
            client.prices("slug", *YEAR)
        evidence.add("stop", caught.value, caught.value.partial, caught.value.resume)  # type: ignore[attr-defined]


@pytest.mark.fault("K2")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_interrupt_while_a_connection_is_opened_shows_no_key(
    evidence: Evidence, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Whatever the handler of a signal raises, the frames of the libraries below are gone."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("urllib3.util.connection.create_connection", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        md.Client(f"{scheme}://127.0.0.1:1", KEY).health()
    evidence.add("stop", caught.value)


@pytest.mark.fault("K4")
def test_a_malformed_key_is_refused_unshown(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that no header can carry is refused without being shown, wherever it comes from."""
    for key in (KEY + "\n", KEY + " ", KEY + "é", f"{KEY}\r\nX-Evil: 1", "\0" + KEY):
        evidence.add("text", _caught(lambda key=key: md.Client("https://service.invalid", key)))
        evidence.add("callable", _caught(lambda key=key: md.Client("https://service.invalid", lambda: key)))
        if "\0" not in key:
            monkeypatch.setenv("MARKETDATA_API_KEY", key)
            evidence.add("environment", _caught(lambda: md.Client("https://service.invalid")))


@pytest.mark.fault("K7")
def test_an_address_with_a_key_is_refused_unshown(evidence: Evidence) -> None:
    """An address with the key in it is refused without being repeated."""
    for url in (
        f"https://{KEY}@host",
        f"https://user:{KEY}@host",
        f"https://host?api_key={KEY}",
        f"https://host#{KEY}",
    ):
        error = _caught(lambda url=url: md.Client(url, "another-key-0123456789"))
        evidence.add("error", str(error), repr(error), repr(vars(error)), pickle.dumps(error))


def test_a_refused_argument_shows_no_key(evidence: Evidence) -> None:
    """Who gets another argument wrong finds no key in the report of the crash."""
    for given in ({"base_url": "ftp://host"}, {"frame": "arrow"}, {"page_limit": 0}, {"base_url": None}):
        arguments: dict[str, Any] = {"base_url": "https://service.invalid", **given}
        evidence.add("error", _caught(lambda arguments=arguments: md.Client(api_key=KEY, **arguments)))


@pytest.mark.fault("K3")
def test_a_pickled_client_holds_no_key(evidence: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickles and copies of a client hold no key, whatever gave it."""
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    for client in (md.Client("https://service.invalid"), md.Client("https://service.invalid", KEY)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            evidence.add("pickle", pickle.dumps(client, protocol))
        evidence.add("copy", copy.deepcopy(client))


@pytest.mark.fault("K5")
def test_an_archive_holds_no_key(service: Any, evidence: Evidence, tmp_path: Path) -> None:
    """No byte of an archive that was pulled with it: files, their decoded values and metadata, the log of commits."""
    client = md.Client(service.base_url, KEY)
    slug = str(client.markets()["slug"][0])
    pulled = md.Archive(tmp_path / "archive")
    evidence.add("pull", pulled.pull(client, slug, start=SPAN[0], end=SPAN[1]))
    evidence.add("archive", pulled, pulled.coverage(), pulled.verify(), pulled.books(slug, *SPAN, "1h"))
    files = [path for path in (tmp_path / "archive").rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix == ".parquet"]) >= 4
    for path in files:
        evidence.add(path.name, path.read_bytes(), str(path))
        if path.suffix == ".parquet" and "_delta_log" not in path.parts:
            table = pq.ParquetFile(path)
            evidence.add(path.name, repr(table.metadata.metadata), repr(table.schema_arrow.metadata))
            evidence.add(path.name, repr(table.read().to_pydict()))


def test_a_refused_pull_leaves_no_key(evidence: Evidence, tmp_path: Path) -> None:
    """A pull that is refused leaves neither the key nor a file with it."""
    with FaultServer(lambda ask: refuse(401, f"{KEY} is no key")) as server:
        pulled = md.Archive(tmp_path / "archive")
        client = md.Client(server.base_url, KEY)
        evidence.add("error", _caught(lambda: pulled.pull(client, "m", start=SPAN[0], end=SPAN[1])))
    for path in (tmp_path / "archive").rglob("*"):
        evidence.add(path.name, path.read_bytes() if path.is_file() else b"", str(path))


@pytest.mark.fault("K5")
def test_a_cassette_holds_no_key(archive: md.Archive, tmp_path: Path) -> None:
    """A recording with the house's options has no key, even of a service that repeats it; nor has any of the suite."""
    with (
        serve(archive, keys={KEY: "local"}) as service,
        vcr.use_cassette(str(tmp_path / "good.yaml"), **vcr_config(KEY)),
    ):
        client = md.Client(service.base_url, KEY)
        client.prices(str(client.markets()["slug"][0]), *SPAN, "1h")
    with (
        FaultServer(lambda ask: refuse(400, KEY).with_header("Location", KEY)) as server,
        vcr.use_cassette(str(tmp_path / "echo.yaml"), **vcr_config(KEY)),
    ):
        _caught(md.Client(server.base_url, KEY).health)
    files = [*tmp_path.iterdir(), *(Path(__file__).parent / "cassettes").rglob("*.yaml")]
    assert len(files) > 2
    seen = Evidence()
    for path in files:
        seen.add(path.name, path.read_bytes())
    assert seen.hits() == []


def test_the_service_repeats_no_key(service: Any, evidence: Evidence) -> None:
    """Who sends the key at the wrong place, or asks for what fails, finds it in no answer, and the log has none."""
    for target, headers in (
        (f"/v1/health?api_key={KEY}", ""),
        (f"/v1/health?api_key={KEY}", f"Authorization: Bearer {KEY}\r\n"),
        ("/v1/health", f"Cookie: key={KEY}\r\n"),
        ("/v1/health", f"X-API-Key: {KEY}x\r\n"),
        ("/v1/health", f"X-API-Key: {KEY}\r\nX-API-Key: {KEY}\r\n"),
        ("/v1/usage", f"X-API-Key: {KEY}\r\n"),
        ("/v1/nowhere", f"X-API-Key: {KEY}\r\n"),
        ("/v1/markets/m/books?resolution=2h", f"X-API-Key: {KEY}\r\n"),
        ("/v1/markets/m/books?limit=0&cursor=x", f"X-API-Key: {KEY}\r\n"),
    ):
        request = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n"
        status, head, body = raw(service.base_url, request.encode())
        assert status in (200, 401, 404, 422)
        evidence.add(f"{status}", repr(head), body)


FETCH = ["fetch", "books", "no-such-market", "--start", SPAN[0], "--end", SPAN[1], "--resolution", "1h"]


def test_no_command_prints_the_key(
    service: Any, evidence: Evidence, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that is given the key in the environment prints it nowhere, whether it works or not."""
    monkeypatch.setenv("MARKETDATA_API_KEY", KEY)
    for words, url, works in ((["usage"], None, True), (FETCH, None, False), (["usage"], f"https://{KEY}@host", False)):
        monkeypatch.setenv("MARKETDATA_BASE_URL", url or service.base_url)
        assert (main(words) == 0) is works
        output = capsys.readouterr()
        evidence.add("output", output.out, output.err)
        assert output.out or output.err
