"""For tests of code that uses this library: small frames, runs without waiting, replays without a network."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from marketdata.clock import SYSTEM, Clock
from marketdata.testing.samples import books, markets, metrics, prices

# The headers of an answer that a replay needs; no other is stored.
_HEADERS = frozenset({"content-type", "date", "retry-after", "location", "x-days", "x-simulated"})
# Recorded answers are sent one after the other: a cassette is not made for threads.
_ONE = threading.Lock()


@contextlib.contextmanager
def no_waiting() -> Iterator[Clock]:
    """Waits for the rate limit and between retries advance a virtual clock and return at once.

    Yields the Clock; ``slept`` is the virtual time [s]. Timeouts of sockets stay real; threads share the virtual time.

    Examples
    --------
    >>> with no_waiting() as clock:
    ...     clock.sleep(3600)
    >>> clock.slept
    3600.0
    """
    SYSTEM.slept = 0.0
    SYSTEM.begin_virtual()
    try:
        yield SYSTEM
    finally:
        SYSTEM.end_virtual()


def vcr_config(*secrets: str) -> dict[str, Any]:
    """Options of vcrpy for cassettes without a key, with bodies as plain text.

    Returns a dict for ``vcr.VCR(**vcr_config())``, ``vcr.use_cassette(path, **vcr_config())`` or the fixture
    ``vcr_config`` of pytest-recording; with ``record_mode="none"`` tests only replay. Keys, cookies and unused headers
    are left out; ``secrets`` are texts that stars replace in answers. Requests are matched by method, path and query,
    so that a cassette replays at any address, and sent one at a time, since vcrpy loses concurrent ones.

    Examples
    --------
    >>> md.testing.vcr_config()["match_on"]
    ['method', 'path', 'query']
    """
    from marketdata.fetch.http.connection import Adapter

    return {
        "filter_headers": ["x-api-key", "authorization", "proxy-authorization", "cookie"],
        "before_record_response": lambda answer: _scrubbed(answer, secrets),
        "decode_compressed_response": True,
        "match_on": ["method", "path", "query"],
        "custom_patches": ((Adapter, "send", _one_after_the_other(Adapter.send)),),
    }


def _one_after_the_other(send: Callable[..., Any]) -> Callable[..., Any]:
    def sent(*args: Any, **options: Any) -> Any:
        with _ONE:
            return send(*args, **options)

    return sent


def _scrubbed(answer: dict[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    headers = {n: _without(v, secrets) for n, v in answer["headers"].items() if n.lower() in _HEADERS}
    body = {**answer["body"], "string": _without(answer["body"].get("string", b""), secrets)}
    return {**answer, "headers": headers, "body": body}


def _without(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_without(v, secrets) for v in value]
    for secret in secrets:
        value = value.replace(secret.encode(), b"***") if isinstance(value, bytes) else value.replace(secret, "***")
    return value


__all__ = ["books", "markets", "metrics", "no_waiting", "prices", "vcr_config"]
