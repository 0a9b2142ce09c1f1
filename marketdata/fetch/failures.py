"""What one attempt came to, when it did not come to an answer; in our words, without the library's errors."""

from __future__ import annotations

import ssl
from typing import Literal, NamedTuple

import requests
import urllib3

from marketdata.errors import (
    ConfigError,
    ContractError,
    MarketDataError,
    NetworkError,
    PayloadTooLargeError,
    RedirectError,
    RequestError,
)

# What OpenSSL calls bytes that begin no record of TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")
Again = Literal["no", "yes", "at_once", "once", "throttled", "new_key"]


class Failure(NamedTuple):
    """An attempt that failed: the error, whether to try again, and how long the service asked to wait [s]."""

    error: MarketDataError
    again: Again = "no"
    wait: float | None = None


def again_after(error: MarketDataError) -> Again:
    """Whether an error that reading raised is worth another attempt."""
    if isinstance(error, PayloadTooLargeError | RedirectError | RequestError | ConfigError):
        return "no"
    return "once" if isinstance(error, ContractError) else "yes"


def redirect_text(status: int, location: str) -> str:
    """Names scheme and host of a redirect, nothing more of it."""
    parts = urllib3.util.parse_url(location) if "://" in location[:10] else None
    where = f"{parts.scheme}://{parts.host}" if parts else "another path of the same host"
    return f"The answer is a redirect ({status}) to {where[:200]}; it was not followed. Is base_url right?"


def network_failure(problem: Exception, url: str) -> Failure:
    """A network error in our words: those of the libraries may hold headers."""
    causes: list[BaseException] = []
    seen: BaseException | None = problem
    while seen is not None and len(causes) < 12:
        causes.append(seen)
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    again: Again = "yes"
    if any(isinstance(c, ssl.SSLCertVerificationError) or type(c).__name__ == "CertificateError" for c in causes):
        words, again = "the certificate of the service is not valid for it", "no"
    elif url.startswith("https:") and any(isinstance(c, ssl.SSLError) and c.reason in _NOT_TLS for c in causes):
        words, again = "the service does not speak TLS; is its address http:// instead of https://?", "no"
    elif any(isinstance(c, ssl.SSLError) and "VERSION" in str(c.reason) for c in causes):
        words, again = "the service offers no version of TLS that is safe", "no"
    elif any(isinstance(c, TimeoutError | requests.Timeout) for c in causes):
        words = "the answer took too long"
    else:
        words = {
            "ConnectionRefusedError": "the connection was refused",
            "ConnectionResetError": "the connection was reset",
            "gaierror": "the host name is unknown",
            "RemoteDisconnected": "the connection was closed before the answer",
            "IncompleteRead": "the answer was cut",
        }.get(type(causes[-1]).__name__, f"the exchange failed ({type(causes[-1]).__name__})")
    error = NetworkError(f"No complete answer came: {words} ({url}).")
    error.url = url
    return Failure(error, again)
