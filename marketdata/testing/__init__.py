"""For tests of code that uses this library: small frames, runs without waiting, replays without a network.

Examples
--------
>>> import time
>>> from marketdata.fetch.clock import SYSTEM
>>> with no_waiting() as clock:
...     SYSTEM.sleep(3600)
>>> clock.slept
3600.0
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from marketdata.fetch.clock import SYSTEM, Clock
from marketdata.testing.samples import books, markets, metrics, prices

# What a replay needs of an answer's head; whatever else a service or a proxy sends is nobody's business.
_HEADERS = frozenset({"content-type", "date", "retry-after", "location", "x-simulated"})
_ONE = threading.Lock()


@contextlib.contextmanager
def no_waiting() -> Iterator[Clock]:
    """Waits of the pacer and between retries move a clock of their own and return at once.

    Deadlines of sockets stay real. Threads that wait side by side share the time that passes.

    Yields
    ------
    Clock
        ``slept`` is the time that was not waited [s].

    Examples
    --------
    >>> import time
    >>> from marketdata.testing import no_waiting
    >>> with no_waiting() as clock:
    ...     began = time.monotonic()
    ...     clock.sleep(60)
    >>> clock.slept, time.monotonic() - began < 5
    (60.0, True)
    """
    SYSTEM.slept = 0.0
    SYSTEM.begin_virtual()
    try:
        yield SYSTEM
    finally:
        SYSTEM.end_virtual()


def vcr_config(*secrets: str) -> dict[str, Any]:
    """Options of vcrpy for cassettes that hold no key and can be read by a person.

    The key's header and cookies stay out, of an answer's headers only those stay that a client reads, and bodies are
    stored as plain text. Requests are matched by method, path and query, so a cassette replays at any address.
    Requests of a client go one after the other meanwhile, for vcrpy loses some that go side by side.

    Parameters
    ----------
    *secrets : str
        Texts that are replaced by stars wherever an answer repeats them, such as the key itself.

    Returns
    -------
    dict
        For ``vcr.VCR(**vcr_config())``, ``vcr.use_cassette(path, **vcr_config())``, or the fixture ``vcr_config`` of
        pytest-recording. It is plain data and functions; vcrpy is not imported.

    Notes
    -----
    Add ``record_mode="none"`` where tests may only replay.

    Examples
    --------
    >>> import tempfile, vcr, marketdata as md
    >>> with tempfile.TemporaryDirectory() as folder, md.serve(md.simulate(events=1, days=0.1)) as service:
    ...     for mode in ("once", "none"):
    ...         with vcr.use_cassette(f"{folder}/health.yaml", record_mode=mode, **vcr_config()):
    ...             print(md.Client(service.base_url, service.api_key).health().status)
    ok
    ok
    """
    from marketdata.fetch.sessions import Adapter

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
