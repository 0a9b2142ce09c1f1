"""The service in a thread (``serve``) or in the foreground (``run``)."""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from marketdata.errors import ConfigError, MarketDataWarning, warn
from marketdata.points.arguments import whole
from marketdata.service.access import LOOPBACK_NAMES, Access, ip_of
from marketdata.service.auth import Entry, KeyFile, Keys, digest, new_key
from marketdata.service.cache import CACHE_BYTES
from marketdata.service.connections import BACKLOG
from marketdata.service.dependencies import Parts
from marketdata.service.pagination import stored_secret
from marketdata.service.plans import DEFAULT_REQUESTS_PER_MINUTE, AccessPlan
from marketdata.service.workers import Worker, Workers

if TYPE_CHECKING:
    from marketdata.archive import Archive

# Beside the tables of the archive.
CURSOR_FILE = "_cursor.secret"
# The number of the parameter of mallopt in glibc.
_M_MMAP_THRESHOLD = -3


class Service:
    """A service that runs until it is closed, also a context manager; ``api_key`` is None if keys were given."""

    def __init__(self, worker: Worker | Workers, base_url: str, api_key: str | None = None) -> None:
        self.base_url = base_url
        self.api_key = api_key
        self._worker = worker
        worker.start()

    def __repr__(self) -> str:
        return f"<marketdata service at {self.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the running requests, then stop."""
        self._worker.stop()

    def settle(self) -> None:
        """Do nothing but serve in this process."""
        _return_large_blocks()
        self._worker.settle()


def serve(
    archive: Archive,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    keys: str | Path | Keys | Mapping[str, str] | None = None,
    plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None = None,
    requests_per_minute: int = DEFAULT_REQUESTS_PER_MINUTE,
    secret: bytes | None = None,
    cache_bytes: int = CACHE_BYTES,
    trusted_proxies: Sequence[str] = (),
    host_names: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
    workers: int = 1,
) -> Service:
    """Serve an archive over HTTP as the interface has it, in a thread, or in processes of their own.

    Returns a Service with ``.base_url`` and ``.api_key``; ``.close()`` or the end of the ``with`` block stops it.
    ConfigError if keys, plans, proxies or the address are refused; warns if ``host`` can be reached from outside and no
    proxy is named that could encrypt.

    Parameters
    ----------
    archive, host, port
        The archive, and the address; port 0 picks a free one.
    keys : path, Keys, mapping of key to plan name, or None
        Keys of clients; None creates one, which ``.api_key`` shows.
    plans, requests_per_minute : mapping of str to Plan or dict, int
        Plans that ``keys`` names; by default one, ``local``, which allows everything at this rate.
    secret : bytes, optional
        Signs cursors [at least 16 bytes]; by default stored in the archive's folder, so that cursors outlive a restart.
    cache_bytes : int
        Memory for decoded history [bytes], of all processes together.
    trusted_proxies : sequence of str
        Addresses or networks whose ``X-Forwarded-For`` is trusted; by default none.
    host_names : sequence of str
        Allowed names in the Host header, beside loopback ones where the service listens there only.
    clock : callable
        Unix time [s], of ``health`` and of the ``Date`` of every answer.
    workers : int
        1: a thread of this process; more: so many processes (not on Windows), which count the rate of a key together.

    Examples
    --------
    >>> with md.serve(archive) as service:
    ...     md.Client(service.base_url, service.api_key).health()["status"]
    'ok'
    """
    if isinstance(archive, str | Path):
        raise ConfigError(f"serve takes an archive, not a path; pass md.Archive({str(archive)!r}).")
    store, api_key = _keys(keys, plans, requests_per_minute, clock)
    _check_address(host, trusted_proxies, given_keys=keys is not None)
    whole("workers", workers, 1)
    build_one = partial(
        build, archive, store, secret=secret or _secret(archive), cache_bytes=cache_bytes // workers,
        host=host, host_names=host_names, trusted_proxies=trusted_proxies, clock=clock,
    )  # fmt: skip
    if workers == 1:
        return start(build_one(), host, port, api_key)
    listener = _listen(host, port)
    return Service(Workers(listener, workers, build_one), _url(listener), api_key)


def start(access: Access, host: str = "127.0.0.1", port: int = 0, api_key: str | None = None) -> Service:
    """Serve in a thread."""
    listener = _listen(host, port)
    return Service(Worker(access, listener), _url(listener), api_key)


def run(
    archive: Archive,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    say: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Serve an archive over HTTP until SIGINT or SIGTERM; ``say`` gets address and key; ``options`` as `serve`."""
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serve(archive, host=host, port=port, **options))
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # in another thread than the first one there are none
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: end.set()))
        service.settle()  # before the address is known: first answers do not share the processor with this
        say(f"Serving {'simulated data' if archive.simulated else 'the archive'} at {service.base_url}")
        if key := service.api_key:
            say(f"Key (shown once): {key}")
            say(f"For another terminal:\n  export MARKETDATA_BASE_URL={service.base_url} MARKETDATA_API_KEY={key}")
            if archive.simulated:
                # This key guards nothing; no other is in an address.
                say(f"For a browser:\n  {service.base_url}/#key={key}")
        while not end.wait(1):  # on Windows a signal is seen between waits only
            pass


def work() -> None:
    """Be one of several workers: what to answer with comes by the standard input, whose end is the sign to stop."""
    build_one = pickle.load(sys.stdin.buffer)  # noqa: S301  from the process that started this one
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the process that started this one gets them too
    listener = socket.socket(fileno=int(sys.argv[1]))
    with Service(Worker(build_one(), listener), _url(listener)) as service:
        service.settle()
        sys.stdout.write("\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()


def _return_large_blocks() -> None:
    """Have glibc return blocks from 1 MB on to the system, or each thread keeps those of its largest pages."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 2**20)


def build(
    archive: Archive,
    keys: Keys,
    *,
    secret: bytes | None = None,
    cache_bytes: int = CACHE_BYTES,
    host: str = "127.0.0.1",
    host_names: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    clock: Callable[[], float] = time.time,
    folder: Path | None = None,
) -> Access:
    """The whole service but its connections; processes with one ``folder`` count requests together."""
    parts = Parts(archive, secret or _secret(archive), cache_bytes=cache_bytes, clock=clock, folder=folder)
    hosts = LOOPBACK_NAMES | {host.lower(), *host_names} if _is_loopback(host) else set(host_names) or None
    return Access(parts, keys, hosts=hosts, trusted_proxies=trusted_proxies)


def _keys(
    given: str | Path | Keys | Mapping[str, str] | None,
    plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None,
    requests_per_minute: int,
    clock: Callable[[], float],
) -> tuple[Keys, str | None]:
    tables = plans or {"local": {"requests_per_minute": requests_per_minute}}
    named = {n: p if isinstance(p, AccessPlan) else AccessPlan.read(n, p) for n, p in tables.items()}
    if isinstance(given, Keys):
        return given, None
    if isinstance(given, str | Path):
        return KeyFile(given, clock=clock), None
    if given is None:
        key = new_key()
        return Keys([Entry("local", digest(key.encode()), next(iter(named)))], named, clock=clock), key
    if not all(given):
        raise ConfigError("keys has an empty key; a key is a text that is not empty.")
    entries = [Entry(f"key{i}", digest(k.encode()), plan) for i, (k, plan) in enumerate(given.items())]
    return Keys(entries, named, clock=clock), None


def _check_address(host: str, trusted_proxies: Sequence[str], *, given_keys: bool) -> None:
    for proxy in trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as problem:
            raise ConfigError(
                "is not an address or network such as 127.0.0.1 or 10.0.0.0/8.", argument="trusted_proxy", value=proxy
            ) from problem
    if not given_keys and not _is_loopback(host):
        raise ConfigError(
            "is reachable from outside without a key file; use 127.0.0.1 or give one.",
            argument="host",
            value=host,
            hint="Pass keys=<file> (marketdata keys new makes one).",
        )
    if not trusted_proxies and not _is_loopback(host):
        warn(
            f"host={host!r} is reachable from outside, and keys and data travel unencrypted; put a proxy with TLS"
            " before the service and name its address as trusted proxy.",
            MarketDataWarning,
        )


def _is_loopback(host: str) -> bool:
    found = ip_of(host)
    return host == "localhost" or (found is not None and found.is_loopback)


def _listen(host: str, port: int) -> socket.socket:
    whole("port", port, 0, 65_535)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only with IPPROTO_TCP does asyncio turn Nagle's delay off: 40 ms a page.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, ValueError, TypeError) as problem:
        listener.close()
        raise ConfigError(f"{host}:{port} cannot be bound: {problem}. Choose another port, or 0.") from problem
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _secret(archive: Archive) -> bytes:
    """The secret beside the tables of the archive, a new one for an object store."""
    if "://" in archive.location:
        return secrets.token_bytes(32)
    return stored_secret(Path(archive.location, CURSOR_FILE))
