"""The application run by uvicorn: in a thread (``serve``), or in the foreground (``run``)."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from marketdata.errors import ConfigError, MarketDataWarning, warn
from marketdata.points.arguments import whole
from marketdata.service.application import create_application
from marketdata.service.keys import DEFAULT_REQUESTS_PER_MINUTE, AccessPlan, new_key
from marketdata.service.pages import CACHE_BYTES

if TYPE_CHECKING:
    from fastapi import FastAPI

    from marketdata.archive import Archive

GRACE_SECONDS = 10
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


class Service(AbstractContextManager["Service"]):
    """A service that runs until it is closed, also a context manager.

    ``base_url`` is its address, ``api_key`` its key (None if keys were given), ``application`` what it serves.
    """

    def __init__(
        self, application: FastAPI, listener: socket.socket, api_key: str | None = None, **options: Any
    ) -> None:
        self.application, self.api_key = application, api_key
        host, port = listener.getsockname()[:2]
        self.base_url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        # h11 has a limit for the size of a request head. Lines of the log are written by the application.
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=GRACE_SECONDS,
                **options,
            )
        )
        # In a thread, because in the main thread a server raises the signal that stopped it once more.
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="marketdata-service", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"<marketdata service at {self.base_url}>"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the running requests, then stop."""
        self._server.should_exit = True
        self._thread.join(GRACE_SECONDS + 5)


def serve(
    archive: Archive,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    keys: str | Path | Mapping[str, str] | None = None,
    plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None = None,
    requests_per_minute: int = DEFAULT_REQUESTS_PER_MINUTE,
    secret: bytes | None = None,
    cache_bytes: int = CACHE_BYTES,
    trusted_proxies: Sequence[str] = (),
    host_names: Sequence[str] = (),
    resolutions: Sequence[str] | None = None,
    clock: Callable[[], float] | None = None,
) -> Service:
    """Serve an archive over HTTP as the interface has it, in a thread.

    Returns a Service with ``.base_url`` and ``.api_key``; ``.close()`` or the end of the ``with`` block stops it.
    ConfigError, before the port is bound, if the archive, keys, plans, proxies or the address are refused. Warns if
    ``host`` can be reached from outside and no proxy is named that could encrypt.

    Parameters
    ----------
    archive, host, port
        The archive, and the address; port 0 picks a free one.
    keys : path, mapping of key to plan name, or None
        Keys of clients; None creates one, which ``.api_key`` shows.
    plans, requests_per_minute : mapping of str to dict, int
        Plans that ``keys`` names; by default one, ``local``, which allows everything at this rate.
    secret : bytes, optional
        Signs cursors [at least 16 bytes]; by default stored in the archive's folder, so that cursors outlive a restart.
    cache_bytes : int
        Memory for decoded history [bytes].
    trusted_proxies : sequence of str
        Addresses or networks whose ``X-Forwarded-For`` is trusted; by default none.
    host_names : sequence of str
        Allowed names in the Host header, beside loopback ones where the service listens there only.
    resolutions : sequence of str, optional
        Resolutions that requests may name; by default the five of the interface, and the base of an archive of seconds.
    clock : callable, optional
        Unix time [s], of ``health``, of cursors and of the ``Date`` of every answer.

    Examples
    --------
    >>> with md.serve(archive) as service:
    ...     md.Client(service.base_url, service.api_key).health()["status"]
    'ok'
    """
    _check_address(host, trusted_proxies, given_keys=keys is not None)
    plans = plans or {"local": {"requests_per_minute": requests_per_minute}}
    api_key = None
    if keys is None:
        api_key = new_key()
        keys = {api_key: next(iter(plans))}
    application = create_application(
        archive,
        keys,
        plans=plans,
        secret=secret,
        cache_bytes=cache_bytes,
        host_names=[*LOOPBACK_NAMES, host, *host_names] if _is_loopback(host) else host_names,
        resolutions=resolutions,
        clock=clock,
    )
    listener = _listen(host, port)
    proxies = list(trusted_proxies)
    return Service(application, listener, api_key, forwarded_allow_ips=proxies, date_header=clock is None)


def run(
    archive: Archive,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    say: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Serve an archive over HTTP until SIGINT or SIGTERM; ``say`` gets address and key, ``options`` go to `serve`."""
    end = threading.Event()
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serve(archive, host=host, port=port, **options))
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError):  # in another thread than the first one there are no signals
                stack.callback(signal.signal, number, signal.signal(number, lambda *_: end.set()))
        say(f"Serving {'simulated data' if archive.simulated else 'the archive'} at {service.base_url}")
        if key := service.api_key:
            say(f"Key (shown once): {key}")
            say(f"For another terminal:\n  export MARKETDATA_BASE_URL={service.base_url} MARKETDATA_API_KEY={key}")
            if archive.simulated:
                # This key guards nothing; no other is in an address.
                say(f"For a browser:\n  {service.base_url}/#key={key}")
        while not end.wait(1):  # on Windows a signal is seen between waits only
            pass


def _check_address(host: str, trusted_proxies: Sequence[str], *, given_keys: bool) -> None:
    for proxy in trusted_proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError as problem:
            raise ConfigError(
                "is not an address or network such as 127.0.0.1 or 10.0.0.0/8.", argument="trusted_proxies", value=proxy
            ) from problem
    if _is_loopback(host):
        return
    if not given_keys:
        raise ConfigError(
            "is reachable from outside without a key file; use 127.0.0.1 or give one.",
            argument="host",
            value=host,
            hint="Pass keys=<file> (marketdata keys new makes one).",
        )
    if not trusted_proxies:
        warn(
            f"host={host!r} is reachable from outside, and keys and data travel unencrypted; put a proxy with TLS"
            " before the service and name its address as trusted proxy.",
            MarketDataWarning,
        )


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens: a server that fails to bind ends the process, and we raise a ConfigError."""
    whole("port", port, 0, 65_535)
    # Only with IPPROTO_TCP does asyncio turn Nagle's delay off: 40 ms a page.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, ValueError, TypeError) as problem:
        listener.close()
        raise ConfigError(f"{host}:{port} cannot be bound: {problem}. Choose another port, or 0.") from problem
    return listener
