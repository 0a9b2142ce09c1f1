"""How the stream of each venue is subscribed, kept alive and read; what its messages mean is in `recordings`."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec

from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, not_installed
from marketdata.points.columns import Token
from marketdata.times import DAY, parse_moment

# A message from later than this is damaged: no clock is so wrong.
_FUTURE = DAY
KALSHI_KEY, KALSHI_PRIVATE_KEY = "KALSHI_API_KEY_ID", "KALSHI_PRIVATE_KEY_PATH"


class Head(NamedTuple):
    """What is known of a message before it is decoded.

    ``is_book``: it has whole books, of these ``tokens``. ``ts`` is the venue's time [microseconds], None if it names
    none; that of a book is the time of its last change. ``number`` follows the one before of the same ``stream``.
    ``ended`` is a market that is over. ``is_print``: it has a trade.
    """

    is_book: bool
    ts: int | None
    tokens: tuple[str, ...] = ()
    number: int | None = None
    stream: int | None = None
    ended: str | None = None
    is_print: bool = False


class Channel(Protocol):
    """The stream of one venue."""

    @property
    def name(self) -> str:
        """The venue."""

    @property
    def address(self) -> str:
        """Where it is."""

    @property
    def most_tokens(self) -> int:
        """How many tokens one connection takes."""

    @property
    def has_key(self) -> bool:
        """Whether its connections are signed."""

    @property
    def dates_books(self) -> bool:
        """Whether a book has the venue's time."""

    @property
    def ping(self) -> str | None:
        """The text that asks whether the venue is there; None for a ping of the protocol."""

    @property
    def pong(self) -> str | None:
        """The answer to ``ping``."""

    def headers(self) -> dict[str, str]:
        """Headers of a new connection."""

    def subscription(self, tokens: Sequence[Token]) -> list[str]:
        """The messages that begin the stream of these tokens."""

    def heads(self, frame: bytes, arrival: int) -> list[Head]:
        """The heads of the messages of a frame; ValueError if it is damaged."""

    def prints(self, frame: bytes) -> list[dict[str, Any]]:
        """The messages of a frame that have trades."""


_NOTHING = msgspec.Raw()


class _Message(msgspec.Struct):
    event_type: str | None = None
    asset_id: str | None = None
    market: str | None = None
    timestamp: str | int | None = None
    bids: msgspec.Raw = _NOTHING
    buys: msgspec.Raw = _NOTHING


_messages = msgspec.json.Decoder(list[_Message] | _Message).decode


class PolymarketChannel:
    """The market channel of Polymarket, which needs no key."""

    name, most_tokens, ping, pong = "polymarket", 500, "PING", "PONG"
    dates_books, has_key = True, False

    def __init__(self, address: str) -> None:
        self.address = _checked(address, "/ws/market")

    def headers(self) -> dict[str, str]:
        """None are needed."""
        return {}

    def subscription(self, tokens: Sequence[Token]) -> list[str]:
        """One message, which also asks for best prices and the ends of markets."""
        ids = [token.token_id for token in tokens]
        return [msgspec.json.encode({"assets_ids": ids, "type": "market", "custom_feature_enabled": True}).decode()]

    def heads(self, frame: bytes, arrival: int) -> list[Head]:
        """A frame is a message or a list of them."""
        found = _messages(frame)
        out = []
        for one in found if isinstance(found, list) else [found]:
            ts = None if one.timestamp is None else _sane(parse_moment(one.timestamp), arrival)
            is_book = one.event_type == "book" or (one.event_type is None and bool(bytes(one.bids or one.buys)))
            ended = one.market if one.event_type == "market_resolved" else None
            out.append(Head(is_book, ts, (str(one.asset_id),) if is_book else (), ended=ended,
                            is_print=one.event_type == "last_trade_price"))  # fmt: skip
        return out

    def prints(self, frame: bytes) -> list[dict[str, Any]]:
        """Messages of the kind ``last_trade_price``."""
        found = msgspec.json.decode(frame)
        return [one for one in (found if isinstance(found, list) else [found])
                if one.get("event_type") == "last_trade_price"]  # fmt: skip


class _KalshiBody(msgspec.Struct):
    market_ticker: str | None = None
    ts: str | int | None = None
    ts_ms: int | None = None
    code: int | None = None
    msg: str | None = None


class _KalshiMessage(msgspec.Struct):
    type: str
    sid: int | None = None
    seq: int | None = None
    msg: _KalshiBody | None = None


_kalshi_message = msgspec.json.Decoder(_KalshiMessage).decode


class KalshiChannel:
    """Books and trades of Kalshi; every connection is signed with a key.

    The id of the key and the file of its private half are in the environment variables KALSHI_API_KEY_ID and
    KALSHI_PRIVATE_KEY_PATH.
    """

    name, most_tokens, ping, pong = "kalshi", 1000, None, None
    dates_books, has_key = False, True
    channels = ("orderbook_delta", "trade")

    def __init__(self, address: str, environ: Mapping[str, str] | None = None) -> None:
        self.address = _checked(address, "/trade-api/ws/v2")
        environ = os.environ if environ is None else environ
        missing = [name for name in (KALSHI_KEY, KALSHI_PRIVATE_KEY) if not environ.get(name)]
        if missing:
            raise ConfigError(
                f"The stream of kalshi needs a key, and {' and '.join(missing)} is not set: {KALSHI_KEY} is the id of "
                f"a key of your account, and {KALSHI_PRIVATE_KEY} the file of its private half in PEM. archive.follow "
                "records its books without a key, once a minute."
            )
        self._id, self._key = environ[KALSHI_KEY], _private_key(environ[KALSHI_PRIVATE_KEY])

    def headers(self) -> dict[str, str]:
        """The signature of this moment."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        at = str(int(SYSTEM.time() * 1000))
        text = f"{at}GET{urlsplit(self.address).path}".encode()
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        signature = base64.b64encode(self._key.sign(text, pss, hashes.SHA256())).decode()
        return {
            "KALSHI-ACCESS-KEY": self._id, "KALSHI-ACCESS-TIMESTAMP": at, "KALSHI-ACCESS-SIGNATURE": signature
        }  # fmt: skip

    def subscription(self, tokens: Sequence[Token]) -> list[str]:
        """One message for all channels."""
        tickers = [*dict.fromkeys(token.market_id for token in tokens)]
        params = {"channels": list(self.channels), "market_tickers": tickers}
        return [msgspec.json.encode({"id": 1, "cmd": "subscribe", "params": params}).decode()]

    def heads(self, frame: bytes, arrival: int) -> list[Head]:
        """A frame is one message; an error is a ValueError, after which the connection begins anew."""
        one = _kalshi_message(frame)
        body = one.msg or _KalshiBody()
        if one.type == "error":
            raise ValueError(f"kalshi answered with error {body.code}: {body.msg}")
        given = body.ts_ms if body.ts_ms is not None else body.ts
        ts = None if given is None else _sane(parse_moment(given), arrival)
        is_book = one.type == "orderbook_snapshot"
        tokens = tuple(f"{body.market_ticker}:{side}" for side in ("yes", "no")) if is_book else ()
        number = one.seq if one.type in ("orderbook_snapshot", "orderbook_delta") else None
        return [Head(is_book, ts, tokens, number, one.sid, is_print=one.type == "trade")]

    def prints(self, frame: bytes) -> list[dict[str, Any]]:
        """The body of the message."""
        return [msgspec.json.decode(frame)["msg"]]


def _sane(ts: int, arrival: int) -> int:
    if ts > arrival + _FUTURE:
        raise ValueError("a message is from the future")
    return ts


def _private_key(path: str) -> Any:
    """The private key of a file in PEM; ConfigError if it is none."""
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise not_installed("The stream of kalshi", "cryptography", "stream") from None
    try:
        return load_pem_private_key(Path(path).expanduser().read_bytes(), None)
    except (OSError, ValueError, TypeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is no private key in PEM without a password"
        raise ConfigError(f"{KALSHI_PRIVATE_KEY} names {path!r}, which cannot be read: {reason}.") from None


def _checked(address: str, path: str) -> str:
    """The address of a stream; an address without a path, or of http, gets the venue's path and ws."""
    parts = urlsplit(address)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.hostname:
        raise ConfigError(
            "is no address of a stream; one begins with wss:// or ws://.", argument="stream", value=address
        )
    if scheme == "ws" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(
            "is not encrypted, so that others could change what is recorded; use wss://, or ws:// on this machine.",
            argument="stream", value=address,
        )  # fmt: skip
    return parts._replace(scheme=scheme, path=parts.path if parts.path not in ("", "/") else path).geturl()


CHANNELS: dict[str, type[PolymarketChannel | KalshiChannel]] = {
    "polymarket": PolymarketChannel, "kalshi": KalshiChannel
}  # fmt: skip


def channel_of(service: str, address: str | None) -> Channel:
    """The stream of a venue at an address; ConfigError for a service without one."""
    if service not in CHANNELS or address is None:
        what = f"{service or 'This service'} has no stream; {' and '.join(CHANNELS)} have one."
        raise ConfigError(what, hint="archive.follow asks a service again and again.")
    return CHANNELS[service](address)
