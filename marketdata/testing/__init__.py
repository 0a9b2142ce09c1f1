"""Help for tests of code that uses this library: small frames, no waiting, replays without a network."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from marketdata.clock import SYSTEM, Clock
from marketdata.testing.samples import books, markets, metrics, prices, quotes, trades

_STORED_HEADERS = frozenset({"content-type", "date", "retry-after", "location", "x-simulated"})
_CASSETTE_LOCK = threading.Lock()


@contextlib.contextmanager
def no_waiting() -> Iterator[Clock]:
    """Replace waits for the rate limit and between retries by a virtual clock.

    Yields the Clock; its ``slept`` is the virtual time [s]. Threads share it, and timeouts of sockets stay real.

    Examples
    --------
    >>> with no_waiting() as clock:
    ...     clock.sleep(3600)
    >>> clock.slept
    3600.0
    """
    was_virtual, SYSTEM.is_virtual, SYSTEM.slept = SYSTEM.is_virtual, True, 0.0
    try:
        yield SYSTEM
    finally:
        SYSTEM.is_virtual = was_virtual


def vcr_config(*secrets: str) -> dict[str, Any]:
    """Options of vcrpy for cassettes without a key, with bodies as plain text.

    Keys, cookies and unused headers are left out. Requests are matched by method, path and query, so a cassette replays
    at any address. They are sent one at a time, because vcrpy loses concurrent ones.

    Parameters
    ----------
    *secrets : str
        Texts that stars replace in responses.

    Returns
    -------
    dict
        For ``vcr.VCR(**vcr_config())``, ``vcr.use_cassette(path, **vcr_config())`` or the fixture ``vcr_config`` of
        pytest-recording. With ``record_mode="none"`` tests only replay.

    Examples
    --------
    >>> md.testing.vcr_config()["match_on"]
    ['method', 'path', 'query']
    """
    from marketdata.fetch.http.connection import Adapter

    send = Adapter.send

    def send_one_at_a_time(*args: Any, **options: Any) -> Any:
        with _CASSETTE_LOCK:
            return send(*args, **options)

    return {
        "filter_headers": ["x-api-key", "authorization", "proxy-authorization", "cookie"],
        "before_record_response": lambda response: _without_secrets(response, secrets),
        "decode_compressed_response": True,
        "match_on": ["method", "path", "query"],
        "custom_patches": ((Adapter, "send", send_one_at_a_time),),
    }


def _without_secrets(response: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    headers = {n: _replace(v, secrets) for n, v in response["headers"].items() if n.lower() in _STORED_HEADERS}
    body = {**response["body"], "string": _replace(response["body"].get("string", b""), secrets)}
    return {**response, "headers": headers, "body": body}


def _replace(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_replace(v, secrets) for v in value]
    for secret in secrets:
        value = value.replace(secret.encode(), b"***") if isinstance(value, bytes) else value.replace(secret, "***")
    return value


__all__ = ["books", "markets", "metrics", "no_waiting", "prices", "quotes", "trades", "vcr_config"]
