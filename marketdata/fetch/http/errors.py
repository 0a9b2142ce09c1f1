"""Typed errors of one request, refusals of the service (interface 7) and network failures, and which are retried."""

from __future__ import annotations

import json
import os
import random
import re
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    CursorRejectedError,
    LimitTooSmallError,
    MarketDataError,
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
from marketdata.fetch.http.connection import BUNDLE_VARIABLES, PROXY_VARIABLES
from marketdata.vendors import read_limits, read_plan

# From 520 on: a proxy got no answer of the service behind it.
_RETRYABLE = frozenset({408, 425, 500, 502, 503, 504, *range(520, 531)})
Again = Literal["no", "yes", "soon", "at_once", "once", "throttled", "new_key"]
_BACKOFF_SECONDS: dict[Again, tuple[float, float]] = {
    "soon": (0.1, 0.8),
    "throttled": (1.0, 60.0),
    "at_once": (0.0, 0.0),
}
_MAX_SHOWN_CHARACTERS = 2048
_LONGEST_REFUSAL = 4096  # of a refusal that is read [bytes]
_TEXT_FIELDS = ("detail", "message", "error")
# Fields of a refusal by a venue with status 200.
_REFUSAL_FIELDS = {*_TEXT_FIELDS, "code", "details", "parameter", "retryable", "service", "status", "trace_id", "type"}
_STATUS_BY_WORDS = (
    (429, r"too many|rate.?limit|throttl"),
    (404, r"not.found"),
    (503, r'"retryable": true|"(internal|request_timeout|dependency_unavailable)"'),
    (400, ""),
)
# The first row with this status and a matching detail counts.
_ERRORS_BY_DETAIL: tuple[tuple[int, str, type[RequestError]], ...] = (
    (400, r"limit too small", LimitTooSmallError),
    (400, r"(more than|over|exceeds)\s+\d+\s+tokens|too many tokens", TooManyTokensError),
    (400, r"\bcursor\b", CursorRejectedError),
    (400, "", BadRequestError),
    (401, "", AuthenticationError),
    (403, "", PlanError),
    (404, "", NotFoundError),
    (422, "", ParameterError),
    (429, "", RateLimitError),
)
_OF_A_KEY = (401, 403)
_LISTINGS = tuple(f"/v1/{name}" for name in ("series", "events", "markets", "tags", "health", "usage"))
_TAGS = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


class Failure(NamedTuple):
    """An attempt that failed: the error, whether to retry, and the wait that the service requested [s]."""

    error: MarketDataError
    again: Again = "no"
    wait: float | None = None

    def backoff(self, tried: int, draw: random.Random) -> float:
        """Wait before the next attempt, with jitter [s]: more after a 429, less where nothing answers."""
        if self.wait is not None:
            return self.wait + draw.uniform(0, 1)
        base, cap = _BACKOFF_SECONDS.get(self.again, (0.5, 20.0))
        longest = min(cap, base * 2.0 ** min(tried - 1, 30))
        return draw.uniform(longest / 2 if self.again == "throttled" else 0, longest)


def server_date(value: str | None) -> float | None:
    """Unix seconds of a ``Date`` header [s], None if it is none."""
    with suppress(ValueError, TypeError, OverflowError, IndexError):
        return parsedate_to_datetime(value or "").timestamp()
    return None


def retry_after(value: str | None, date: float | None) -> float | None:
    """Seconds of a ``Retry-After`` header or None; a date counts from the answer's own ``Date``, as clocks skew."""
    text = (value or "").strip()
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return float(text) or None
    moment = server_date(text) if re.match(r"[A-Za-z]{3}", text) else None
    return moment - date if moment is not None and date is not None and moment > date else None


def refusal(
    status: int, body: bytes, content_type: str, url: str, key: str, now: float, *, has_key: bool = True
) -> RequestError:
    """The error of a status that is not 200; ``detail`` whole, up to 2 kB, and without the key.

    ``now`` is the time of the answer [Unix s]. A service that takes no key, which ``has_key`` says, has no plan.
    """
    if len(key) < SECRET_LENGTH and key in map(unquote, urlsplit(url).path.split("/")):
        key = ""  # it is the name that was requested, which the address shows anyway

    def shown(value: object, longest: int = _MAX_SHOWN_CHARACTERS) -> str:
        return (redact(str(value), key) if key else str(value))[:longest]

    raw = _detail(body, content_type)
    items = raw[:50] if isinstance(raw, list) else []
    problems = [p for p in items if isinstance(p, dict) and "msg" in p]
    for p in problems:
        p["loc"] = p["loc"][:10] if isinstance(p.get("loc"), list) else [p.get("loc")]
    if problems and len(problems) == len(items):
        said = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in problems)
    else:
        said = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)[: 4 * _MAX_SHOWN_CHARACTERS]
    detail = shown(said)
    may_pass = is_temporary(status, body, has_key=has_key)
    kind: type[RequestError] = ServerError if status >= 500 or may_pass else RequestError
    for code, words, of_detail in reversed(_ERRORS_BY_DETAIL if has_key or status not in _OF_A_KEY else ()):
        kind = of_detail if code == status and re.search(words, said, re.IGNORECASE) else kind
    text = f"{status}: {detail or 'no detail'} ({url})"
    error = kind(
        text, status=status, detail=detail, url=url, hint=_hint(kind, status, url, content_type, has_key=has_key)
    )
    if isinstance(error, BadRequestError):
        read_limits(error, said)
    if isinstance(error, PlanError):
        read_plan(error, said, now)
    if isinstance(error, ParameterError):
        error.problems = [
            {"loc": [shown(x, 200) for x in p["loc"]], "msg": shown(p["msg"]), "type": shown(p.get("type", ""), 200)}
            for p in problems
        ]
    return error


def is_temporary(status: int, body: bytes, *, has_key: bool) -> bool:
    """Whether another attempt may be answered.

    Without a key, 401 and 403 are no matter of a key or plan: a page with them is one of a proxy before the venue.
    """
    return status in _RETRYABLE or (not has_key and status in _OF_A_KEY and _json(body) is None)


def refusal_inside(body: bytes) -> int | None:
    """The status that a venue means by an answer with 200 that has nothing but an error; None for another answer."""
    if len(body) > _LONGEST_REFUSAL or not any(b'"%s"' % name in body for name in (b"error", b"message")):
        return None
    with suppress(ValueError, RecursionError):
        top = json.loads(body)
        if isinstance(top, dict) and (top.get("error") or (top.get("message") and top.keys() <= _REFUSAL_FIELDS)):
            said = json.dumps(top)
            return next(status for status, words in _STATUS_BY_WORDS if re.search(words, said, re.IGNORECASE))
    return None


def _hint(kind: type[RequestError], status: int, url: str, content_type: str, *, has_key: bool) -> str:
    if not has_key and status in _OF_A_KEY:
        return "The venue takes no key: a proxy before it refused this address. Try later, or from another network."
    if "html" in content_type and status < 500:
        return "The answer is a web page: is base_url the address of a service, and is there a proxy in between?"
    if kind is TooManyTokensError:  # the record of the market did not say which tokens it has
        return "client.token_books and client.token_prices take the ids of tokens."
    if status == 401:
        return "Is it the key of this service? It comes from api_key=... or the environment."
    if status == 451:
        return "The venue does not answer from the country of this address, by its law or by its terms."
    path = urlsplit(url).path
    if status == 404 and (path.count("/v1/") > 1 or path.endswith(_LISTINGS)):
        return "Every service of the interface has this path: is base_url right? It ends before /v1."
    if status == 404 and "/v1/markets/" in url:
        return "client.markets(search=...) finds ids and slugs."
    if status == 404 and "/v1/tokens/" in url:
        return "client.tokens(market) has the ids of the tokens of a market."
    return ""


def _detail(body: bytes, content_type: str) -> Any:
    """The message of a body: what its fields say, else all of it as JSON, or the start of its text."""
    if "html" not in content_type and (top := _json(body)) is not None:
        return _sentence(top)
    plain = _TAGS.sub(" ", body[:65536].decode("utf-8", "replace"))
    return " ".join(plain.split())[:200]


def _sentence(top: Any) -> Any:
    """The first of `_TEXT_FIELDS`, with the details beside it; an object inside of it as a sentence too."""
    said = next((top[name] for name in _TEXT_FIELDS if top.get(name)), None) if isinstance(top, dict) else None
    if not isinstance(top, dict) or said is None:
        return top
    said, more = _sentence(said) if isinstance(said, dict) else said, top.get("details")
    if isinstance(said, dict):
        return said.get("code") or said
    return f"{said}: {_listed(more)}" if more and isinstance(said, str) else said


def _listed(details: Any) -> str:
    """Details in words: a text, a list of them, or an object by its names."""
    if isinstance(details, dict):
        return ", ".join(f"{name}: {_listed(value)}" for name, value in details.items())
    return ", ".join(map(_listed, details)) if isinstance(details, list) else str(details)


def _json(body: bytes) -> Any:
    """The value of JSON, None for another body."""
    with suppress(ValueError, RecursionError):
        return json.loads(body.decode("utf-8-sig"))
    return None


def redirect_text(status: int, location: str) -> str:
    """Names scheme and host of a redirect, nothing more of it."""
    parts = urlsplit(location)
    where = f"{parts.scheme}://{parts.hostname}" if parts.hostname else "another path of the same host"
    return f"The answer is a redirect ({status}) to {where[:200]}; it was not followed. Is base_url right?"


# The first row whose pattern matches the error or one of its causes counts.
_FAILURES: tuple[tuple[str, str, Again], ...] = (
    ("certificate bundle|NO_CERT", "the file that {bundle} names is missing, or is no bundle of certificates", "no"),
    ("SOCKS support", "{proxy} is a SOCKS proxy, which needs a library: pip install 'requests[socks]'", "no"),
    ("^InvalidProxyURL", "{proxy} is not an address such as http://host:port", "no"),
    ("Tunnel.* failed: 407", "{proxy} wants a login (407); write it as http://user:password@host:port", "no"),
    (r"Tunnel.* failed: (?P<last>[0-4]\d\d)", "{proxy} did not connect to the service ({last})", "no"),
    (r"Tunnel.* failed: (?P<last>\d{3})", "{proxy} did not connect to the service ({last})", "yes"),
    (r"(?s)^(ProxyError|\w*SOCKS).*^\w*Timeout", "{proxy} took too long", "yes"),
    (r"(?s)^(ProxyError|\w*SOCKS).*^gaierror", "{proxy} cannot be reached (unknown host name)", "no"),
    (r"^(ProxyError|\w*SOCKS)", "{proxy} cannot be reached ({last})", "no"),
    (
        "certificate is not yet valid",
        "the certificate of the service is not valid yet by the clock of this machine; is that clock behind?",
        "no",
    ),
    (
        "certificate has expired",
        "the certificate of the service has expired by the clock of this machine; is that clock ahead?",
        "no",
    ),
    (
        "self-signed certificate|unable to get local issuer",
        "nobody whom this machine trusts vouches for the certificate; REQUESTS_CA_BUNDLE names an authority of yours",
        "no",
    ),
    ("^(SSLCertVerificationError|CertificateError)", "the certificate of the service is not valid for it", "no"),
    # The server answered without TLS.
    ("WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER_FAILURE", "the service does not speak TLS; is it http://?", "no"),
    (r"^SSLError: .*VERSION", "the service offers no version of TLS that is safe", "no"),
    (r"^\w*Timeout", "the answer took too long", "yes"),
    # A wrong address is reported soon; an answer that is only late is waited for.
    ("^ConnectionRefusedError", "connection refused; is a service running there?", "soon"),
    ("^gaierror", "unknown host name; is a service running there?", "soon"),
    ("^(ConnectionReset|RemoteDis|IncompleteRead)", "the connection was closed before the end of the answer", "yes"),
    ("", "the exchange failed ({last})", "yes"),
)


def network_failure(problem: Exception, url: str) -> Failure:
    """A network error in our words, as texts of libraries may contain headers."""
    causes: list[BaseException] = []
    seen: BaseException | None = problem
    while seen is not None and len(causes) < 12:
        causes.append(seen)
        inner = getattr(seen, "reason", None) or (seen.args[0] if seen.args else None)
        seen = inner if isinstance(inner, BaseException) else seen.__cause__ or seen.__context__
    said = "\n".join(f"{type(cause).__name__}: {' '.join(str(cause).split())}" for cause in causes)
    every = ((re.search(pattern, said, re.MULTILINE), words, again) for pattern, words, again in _FAILURES)
    match, words, again = next((match, words, again) for match, words, again in every if match is not None)
    bundle, proxy = (
        next((name for name in variables if os.environ.get(name)), "the system")
        for variables in (BUNDLE_VARIABLES, PROXY_VARIABLES)
    )
    last = {"last": type(causes[-1]).__name__, **match.groupdict()}
    words = words.format(bundle=bundle, proxy=f"the proxy that {proxy} names", **last)
    error = NetworkError(f"{words[0].upper()}{words[1:]} ({url}).")
    error.url = url
    return Failure(error, again)
