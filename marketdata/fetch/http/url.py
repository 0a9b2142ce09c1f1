"""Addresses of the service, and paths that no slug can change."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import quote, urlencode, urlsplit

from marketdata.errors import ConfigError
from marketdata.vendors import ADDRESSES, BASE_URL, VENDORS, VENUES, default_address

# Characters of an id or slug (interface 4.1).
_LONGEST = 200
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)


def check_base_url(base_url: str | None, *, allow_insecure: bool = False) -> str:
    """Scheme, host, port and path of the service, without ``/v1`` and trailing slash.

    ConfigError for a user, password, query or fragment, another scheme than https, and ``http`` beyond this machine
    unless ``allow_insecure``.
    """

    def refused(problem: str, hint: str = "") -> ConfigError:
        return ConfigError(problem, argument="base_url", hint=hint)

    given = base_url if base_url is not None else default_address(os.environ)
    if not isinstance(given, str | None):
        raise refused(f"is a text such as 'https://host', not {type(given).__name__}.")
    if not given:
        keys = " or ".join(str(vendor.key_variable) for vendor in VENDORS)
        hint = (
            f"Pass base_url=... or set {BASE_URL}. With {keys} the address is known. "
            "Without a key there are md.Client('polymarket'), md.Client('kalshi') and, simulated, "
            "md.serve(md.simulate())."
        )
        raise refused("is missing.", hint)
    try:
        parts = urlsplit(given.strip())
        port, host = parts.port, parts.hostname or ""
    except ValueError:
        raise refused("is not an address; it looks like 'https://host'.") from None
    if "@" in parts.netloc:
        raise refused("contains a user or a password; give the address alone, the key is another argument.")
    if parts.scheme not in ("https", "http"):
        # The value is not shown, because it may be the key, given in the wrong place.
        names = ", ".join((*VENUES, *ADDRESSES))
        where = "for a service on this machine, as in 'http://127.0.0.1:8000'"
        raise refused(f"is no name of a service ({names}), and no address with https://, or http:// {where}.")
    if "?" in given or "#" in given:
        raise refused("contains a query or a fragment; give scheme, host and path alone.")
    netloc_host = f"[{host}]" if ":" in host else host
    if not _HOST.fullmatch(netloc_host):
        raise refused("has no valid host; it looks like 'https://host'.")
    if parts.scheme == "http" and not allow_insecure and not is_loopback(host):
        hint = "Pass allow_insecure=True to send it all the same."
        raise refused(f"is http to {host}: the key would travel unencrypted; use https.", hint)
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    if quote(path, safe="/-._~") != path or any(s in (".", "..") for s in path.split("/")):
        raise refused("has a path that would have to be rewritten; give a plain one.")
    return f"{parts.scheme}://{netloc_host}{f':{port}' if port is not None else ''}{path}"


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def check_segment(segment: str) -> str:
    """An id or slug as one segment of a path (interface 4.1): 1 to 200 characters, not ``.`` or ``..``."""
    if not isinstance(segment, str):
        raise ConfigError(f"An id or slug is a text, not {type(segment).__name__}; write it in quotes.")
    if not 1 <= len(segment) <= _LONGEST:
        raise ConfigError(f"An id or slug has 1 to {_LONGEST} characters; this one has {len(segment)}.")
    if segment in (".", ".."):
        raise ConfigError(f"{segment!r} is not an id or slug: it would change the path.")
    try:
        segment.encode()
    except UnicodeEncodeError:
        raise ConfigError("An id or slug holds half a character (a lone surrogate).") from None
    return segment


def target(segments: Sequence[str], params: Mapping[str, object] | None, prefix: str = "/v1") -> str:
    """Path and query, each segment and value quoted whole: "a/b" becomes ``/v1/markets/a%2Fb/books?limit=200``."""
    path = "/".join(quote(check_segment(s), safe="") for s in segments)
    query = urlencode({k: v for k, v in (params or {}).items() if v is not None}, quote_via=quote, safe="", doseq=True)
    return f"{prefix}/{path}?{query}".removesuffix("?")
