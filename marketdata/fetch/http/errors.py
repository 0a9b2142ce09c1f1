"""Typed errors of one request: refusals of the service (interface 7) and network failures."""

from __future__ import annotations

import json
import os
import re
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
import urllib3

from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    CursorRejectedError,
    LimitTooSmallError,
    NetworkError,
    NotFoundError,
    ParameterError,
    PlanError,
    RateLimitError,
    RequestError,
    ServerError,
    TooManyTokensError,
)
from marketdata.fetch.http.auth import SECRET_LENGTH, redact
from marketdata.fetch.http.connection import BUNDLES, PROXIES
from marketdata.fetch.http.retry import Again, Failure

# Characters of an answer that a message shows.
_LONGEST = 2048
_CLASSES: dict[int, type[RequestError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PlanError,
    404: NotFoundError,
    422: ParameterError,
    429: RateLimitError,
}
_MINIMUM = re.compile(r"limit too small.*?minimum required:\s*(\d{1,9})\b", re.IGNORECASE | re.DOTALL | re.ASCII)
_TOO_SMALL = re.compile(r"limit too small", re.IGNORECASE)
_TOO_MANY = re.compile(r"(more than|over|exceeds)\s+\d+\s+tokens|too many tokens", re.IGNORECASE)
_CURSOR = re.compile(r"\bcursor\b", re.IGNORECASE)
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def refusal(status: int, body: bytes, content_type: str, url: str, key: str) -> RequestError:
    """The error of a status that is not 200; ``detail`` whole, up to 2 kB, and without the key."""
    if len(key) < SECRET_LENGTH and key in map(unquote, urlsplit(url).path.split("/")):
        key = ""  # the very name that was requested: the address shows it

    def shown(value: object, longest: int = _LONGEST) -> str:
        return (redact(str(value), key) if key else str(value))[:longest]

    raw = _detail(body, content_type)
    said = _text(raw)
    detail, kind = shown(said), _kind(status, said)
    text = f"{status}: {detail or 'no detail'} ({url})"
    error = kind(text, status=status, detail=detail, url=url, hint=_hint(status, url))
    if isinstance(error, LimitTooSmallError):
        found = _MINIMUM.search(said)
        error.minimum = int(found[1]) if found else None
    if isinstance(error, ParameterError) and isinstance(raw, list):
        error.problems = [
            {
                "loc": [shown(x, 200) for x in _loc(p)],
                "msg": shown(p["msg"]),
                "type": shown(p.get("type", ""), 200),
            }
            for p in raw[:50]
            if isinstance(p, dict) and "msg" in p
        ]
    return error


def _hint(status: int, url: str) -> str:
    if status == 401:
        return "Is it the key of this service? It comes from api_key=... or MARKETDATA_API_KEY."
    if status == 404 and "/v1/markets/" in url:
        return "client.markets(search=...) finds ids and slugs."
    if status == 404 and "/v1/tokens/" in url:
        return "client.tokens(market) has the ids of the tokens of a market."
    return ""


def _kind(status: int, detail: str) -> type[RequestError]:
    if status == 400:
        if _TOO_SMALL.search(detail):
            return LimitTooSmallError
        if _TOO_MANY.search(detail):
            return TooManyTokensError
        if _CURSOR.search(detail):
            return CursorRejectedError
    if status >= 500:
        return ServerError
    return _CLASSES.get(status, RequestError)


def _detail(body: bytes, content_type: str) -> Any:
    if "html" not in content_type:
        try:
            top = json.loads(body.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            top = None
        if isinstance(top, dict) and "detail" in top:
            return top["detail"]
        if top is not None:
            return top
    plain = _TAGS.sub(" ", body[:65536].decode("utf-8", "replace"))
    return " ".join(plain.split())[:200]


def _text(detail: Any) -> str:
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list) and detail and all(isinstance(p, dict) and "msg" in p for p in detail):
        return "; ".join(f"{'.'.join(map(str, _loc(p)))}: {p['msg']}" for p in detail[:50])
    return json.dumps(detail, ensure_ascii=False)[: 4 * _LONGEST]


def _loc(problem: dict[str, Any]) -> list[Any]:
    loc = problem.get("loc")
    return loc[:10] if isinstance(loc, list) else [loc]


_UNREACHABLE = {"ConnectionRefusedError": "connection refused", "gaierror": "unknown host name"}
# What OpenSSL calls bytes that begin no record of TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def redirect_text(status: int, location: str) -> str:
    """Names scheme and host of a redirect, nothing more of it."""
    parts = urllib3.util.parse_url(location) if "://" in location[:10] else None
    where = f"{parts.scheme}://{parts.host}" if parts else "another path of the same host"
    return f"The answer is a redirect ({status}) to {where[:200]}; it was not followed. Is base_url right?"


def _of_environment(causes: list[BaseException]) -> tuple[str, Again] | None:
    """What is wrong with the proxy or the CA bundle that the environment names, and whether a retry can help."""
    said = " ".join(map(str, causes))
    bundle, proxy = _variable(BUNDLES), f"the proxy that {_variable(PROXIES)} names"
    if "TLS CA certificate bundle" in said or "NO_CERTIFICATE_OR_CRL_FOUND" in said:
        return f"the file that {bundle} names is missing, or is no bundle of CA certificates", "no"
    if "SOCKS support" in said:
        return f"{proxy} is a SOCKS proxy, which needs a library: pip install 'requests[socks]'", "no"
    if any(isinstance(c, requests.exceptions.InvalidProxyURL) for c in causes):
        return f"{proxy} is not an address such as http://host:port", "no"
    if (refused := re.search(r"Tunnel connection failed: (\d{3})", said)) is not None:
        if refused[1] == "407":
            return f"{proxy} wants a login (407); write it as http://user:password@host:port", "no"
        return f"{proxy} did not connect to the service ({refused[1]})", "no" if refused[1] < "500" else "yes"
    if not any(isinstance(c, requests.exceptions.ProxyError) or "SOCKS" in type(c).__name__ for c in causes):
        return None
    if any(isinstance(c, TimeoutError) for c in causes):
        return f"{proxy} took too long", "yes"
    return f"{proxy} cannot be reached ({_UNREACHABLE.get(type(causes[-1]).__name__, type(causes[-1]).__name__)})", "no"


def _variable(names: tuple[str, ...]) -> str:
    return next((name for name in names if os.environ.get(name)), "the system")


def network_failure(problem: Exception, url: str) -> Failure:
    """A network error in our words: those of the libraries may contain headers."""
    causes: list[BaseException] = []
    seen: BaseException | None = problem
    while seen is not None and len(causes) < 12:
        causes.append(seen)
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    again: Again = "yes"
    if (of_environment := _of_environment(causes)) is not None:
        words, again = of_environment
    elif any(isinstance(c, ssl.SSLCertVerificationError) or type(c).__name__ == "CertificateError" for c in causes):
        words, again = "the certificate of the service is not valid for it", "no"
    elif url.startswith("https:") and any(isinstance(c, ssl.SSLError) and c.reason in _NOT_TLS for c in causes):
        words, again = "the service does not speak TLS; is its address http:// instead of https://?", "no"
    elif any(isinstance(c, ssl.SSLError) and "VERSION" in str(c.reason) for c in causes):
        words, again = "the service offers no version of TLS that is safe", "no"
    elif any(isinstance(c, TimeoutError | requests.Timeout) for c in causes):
        words = "the answer took too long"
    elif type(causes[-1]).__name__ in _UNREACHABLE:
        # A wrong address is reported soon; an answer that is only late is waited for.
        words, again = f"{_UNREACHABLE[type(causes[-1]).__name__]}; is a service running there?", "soon"
    else:
        words = {
            "ConnectionResetError": "the connection was reset",
            "RemoteDisconnected": "the connection was closed before the answer",
            "IncompleteRead": "the answer was cut",
        }.get(type(causes[-1]).__name__, f"the exchange failed ({type(causes[-1]).__name__})")
    error = NetworkError(f"{words[0].upper()}{words[1:]} ({url}).")
    error.url = url
    return Failure(error, again)
