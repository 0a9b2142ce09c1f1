"""Kalshi's stream: a signed handshake, snapshots and signed changes, and a sequence without holes."""

from __future__ import annotations

import base64
import json
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from websockets.sync.server import serve

import marketdata as md
from marketdata.errors import AuthenticationError, ConfigError
from marketdata.points.columns import Token
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import KalshiChannel
from marketdata.stream.recorder import Recorder
from marketdata.times import SECOND

T = 1_767_261_600
PATH = "/trade-api/ws/v2"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def environment(key: rsa.RSAPrivateKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of a key, whose private half is in a file."""
    pem, encoding = tmp_path / "key.pem", serialization.Encoding.PEM
    pem.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    monkeypatch.setenv("KALSHI_API_KEY_ID", "an-id")
    monkeypatch.setenv("KALSHI_PRIVATE_KEY_PATH", str(pem))


def message(kind: str, seq: int, **body: Any) -> bytes:
    return json.dumps({"type": kind, "sid": 1, "seq": seq, "msg": {"market_ticker": "KXA-1", **body}}).encode()


SNAPSHOT = {"yes_dollars_fp": [["0.40", "10"]], "no_dollars_fp": [["0.50", "7"]]}


def delta(seq: int, at: float, side: str = "yes", price: str = "0.41", step: str = "5") -> bytes:
    return message("orderbook_delta", seq, side=side, price_dollars=price, delta_fp=step, ts_ms=int((T + at) * 1000))


@pytest.mark.usefixtures("environment")
def test_snapshots_and_changes_become_books_and_a_hole_ends_them() -> None:
    """A change adds to a level of one outcome and of the other; a missing number ends the connection."""
    recorder = Recorder(KalshiChannel("ws://127.0.0.1:1"), BucketWidth.of("1s"))
    recorder.choose({"KXA-1": [Token("KXA-1", f"KXA-1:{side}") for side in ("yes", "no")]}, 0)
    ((number, _),) = recorder.connections(0)
    ahead = 40 * SECOND  # the clock here is ahead of the venue's
    frames = [
        (message("orderbook_snapshot", 1, **SNAPSHOT), 0.2),
        (delta(2, 0.5), 0.5),
        (delta(3, 2.5, step="-2"), 2.5),
    ]
    for frame, at in [*frames, (delta(4, 6.0, "no", "0.55"), 6.0)]:
        assert recorder.frame(number, frame, int((T + at) * SECOND) + ahead) is None
    assert "message 5 is missing" in str(recorder.frame(number, delta(6, 7.0), (T + 7) * SECOND + ahead))
    recorder.end(number, (T + 7) * SECOND + ahead, "a hole")
    got = recorder.take()
    assert got.seen == {"KXA-1": [((T + 1) * SECOND, (T + 5) * SECOND)]}
    yes = got.books.part(1, 2)
    assert yes.tokens[0].token_id == "KXA-1:yes"
    assert yes.bids.best.tolist() == [0.41] * 4
    assert yes.bids.best_size.tolist() == [5, 3, 3, 3]
    assert set(yes.asks.best.tolist()) == {0.5}


@pytest.mark.usefixtures("environment")
def test_each_connection_is_signed(key: rsa.RSAPrivateKey, tmp_path: Path) -> None:
    """The venue can check who asks, and its books are recorded."""
    said = list[Any]()

    def check(connection: Any, request: Any) -> Any:
        headers, pss = request.headers, padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        text = f"{headers['KALSHI-ACCESS-TIMESTAMP']}GET{PATH}".encode()
        try:
            signature = base64.b64decode(headers["KALSHI-ACCESS-SIGNATURE"])
            key.public_key().verify(signature, text, pss, hashes.SHA256())
        except InvalidSignature:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "another key signed this")
        is_known = (headers["KALSHI-ACCESS-KEY"], request.path) == ("an-id", PATH)
        return None if is_known else connection.respond(HTTPStatus.UNAUTHORIZED, "who are you?")

    def stream(socket: Any) -> None:
        said.append(json.loads(socket.recv()))
        socket.send(message("orderbook_snapshot", 1, **SNAPSHOT).decode())
        for n in range(8):
            socket.send(delta(n + 2, n).decode())
        socket.recv()

    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add(markets=[{"market_id": "KXA-1", "slug": "KXA-1", "token_ids": ["KXA-1:yes", "KXA-1:no"],
                          "token_labels": ["Yes", "No"]}])  # fmt: skip
    with serve(stream, "127.0.0.1", 0, process_request=check) as server:
        port = server.socket.getsockname()[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = md.Client("kalshi", hosts={"stream": f"ws://127.0.0.1:{port}", "kalshi": "http://127.0.0.1:9"})
        for report in archive.record(client, "KXA-1", commit_every=0.2):
            if report.books >= 10:
                break
        server.shutdown()
    assert said[0]["cmd"] == "subscribe"
    assert said[0]["params"] == {"channels": ["orderbook_delta", "trade"], "market_tickers": ["KXA-1"]}


@pytest.mark.usefixtures("environment")
def test_a_refused_key_ends_it(tmp_path: Path) -> None:
    """401 is an AuthenticationError at once, not tried again."""
    archive = md.Archive(tmp_path / "archive")
    archive.add(markets=[{"market_id": "KXA-1", "slug": "KXA-1", "token_ids": ["KXA-1:yes", "KXA-1:no"],
                          "token_labels": ["Yes", "No"]}])  # fmt: skip

    def refuse(connection: Any, _: Any) -> Any:
        return connection.respond(HTTPStatus.UNAUTHORIZED, "no")

    with serve(lambda _: None, "127.0.0.1", 0, process_request=refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = md.Client("kalshi", hosts={"stream": f"ws://127.0.0.1:{server.socket.getsockname()[1]}"})
        with pytest.raises(AuthenticationError, match="refused the key: no"):
            next(archive.record(client, "KXA-1"))
        server.shutdown()


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """A variable that is not set, a file that is absent, and one without a key are errors that name them."""
    for content, words in ((None, "cannot be read: No such file"), ("text", "no private key in PEM")):
        path = tmp_path / "key.pem"
        if content is not None:
            path.write_text(content)
        environ = {"KALSHI_API_KEY_ID": "an-id", "KALSHI_PRIVATE_KEY_PATH": str(path)}
        with pytest.raises(ConfigError, match=words):
            KalshiChannel("ws://127.0.0.1:1", environ)
    with pytest.raises(ConfigError, match="KALSHI_PRIVATE_KEY_PATH is not set"):
        KalshiChannel("ws://127.0.0.1:1", {"KALSHI_API_KEY_ID": "an-id"})
