"""How to ask each venue: one module per venue, and `connect`, which finds it by name or address."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from marketdata.errors import ConfigError
from marketdata.fetch.http.auth import KeyProvider, veiled
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.source import Source
from marketdata.fetch.sources.interface import Interface
from marketdata.vendors import ADDRESSES, VENUES, default_address


def connect(
    service: str | None,
    api_key: str | Callable[[], str] | KeyProvider | None = None,
    *,
    hosts: str | Mapping[str, str] | None = None,
    allow_insecure: bool = False,
    **options: str | None,
) -> Source:
    """The source with a name, or at the address of a service; by default the one that the environment names.

    ``options`` are the arguments of a venue, None if they are not given.
    """
    api_key = veiled(api_key)
    given = {name: value for name, value in options.items() if value is not None}
    service = default_address(os.environ) if service is None else service
    if isinstance(service, str) and service in VENUES:
        if api_key is not None:
            raise ConfigError(f"is refused: {service} takes no key.", argument="api_key")
        venue: Any = import_module(f"{__name__}.{service}")
        hosts = hosts if hosts is not None else os.environ.get(f"MARKETDATA_{service.upper()}_URL") or None
        _refuse(service, given, venue.OPTIONS)
        source: Source = venue.SOURCE(_chosen(service, venue.HOSTS, hosts), allow_insecure=allow_insecure, **given)
        return source
    _refuse("a service", given, ())
    if hosts is not None:
        raise ConfigError(f"is for {' and '.join(VENUES)}; give a service its address instead.", argument="hosts")
    is_name = isinstance(service, str) and ":" not in service and service not in ADDRESSES
    if is_name and (near := difflib.get_close_matches(str(service), [*VENUES, *ADDRESSES], 1)):
        raise ConfigError(f"is no name of a service; did you mean {near[0]!r}?", argument="base_url", value=service)
    address = service if not isinstance(service, str) else ADDRESSES.get(service, service)
    return Interface(Transport(address, api_key, allow_insecure=allow_insecure))


def _refuse(service: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """ConfigError for an option that a service does not have."""
    for name in given:
        if name not in allowed:
            hint = f"It has {', '.join(allowed)}." if allowed else "It has no options."
            raise ConfigError(f"is no option of {service}.", argument=name, hint=hint)


def _chosen(venue: str, own: Mapping[str, str], given: str | Mapping[str, str] | None) -> dict[str, str]:
    """The addresses of a venue: its own, one for all of its hosts, or some by name."""
    if given is None:
        return dict(own)
    if isinstance(given, str):
        return dict.fromkeys(own, given)
    if unknown := sorted(set(given) - set(own)):
        hint = f"The hosts of {venue} are {', '.join(own)}."
        raise ConfigError(f"names {unknown[0]!r}, which {venue} does not have.", argument="hosts", hint=hint)
    return {**own, **given}
