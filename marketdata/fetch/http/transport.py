"""One request to the service, retried until it is answered, refused, or not worth another attempt."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import requests
import urllib3

from marketdata.clock import SYSTEM, Clock
from marketdata.errors import ConfigError, ContractError, MarketDataError, NetworkError, RateLimitError, RedirectError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.auth import SECRET_LENGTH, KeyProvider, Secret, redact, veiled
from marketdata.fetch.http.connection import ATTEMPT, Policy, new_session, read_body
from marketdata.fetch.http.errors import (
    Again,
    Failure,
    is_temporary,
    network_failure,
    redirect_text,
    refusal,
    refusal_inside,
    retry_after,
    server_date,
)
from marketdata.fetch.http.rate_limit import Pacer, pacer_for
from marketdata.fetch.http.url import check_base_url, target
from marketdata.fetch.plans import PlanLimits, read_usage
from marketdata.vendors import Service, service_at
from marketdata.wire.decode import load

E = TypeVar("E", bound=MarketDataError)
T = TypeVar("T")


_AGENT = "marketdata-python"
# `requests` lets errors of the libraries below it pass; its own are OSErrors.
_LIBRARY_ERRORS = (OSError, ValueError, http.client.HTTPException, urllib3.exceptions.HTTPError)
_RETRIED: dict[type[MarketDataError], Again] = {ContractError: "once", NetworkError: "yes"}
_USAGE = ("usage",)
# Common servers refuse a longer URL [characters].
_LONGEST_CURSOR = 8192
_UNPACED = 50  # requests before it is worth one more to learn the rate


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with status 200; ``date`` is the server's [Unix s], and ``notes`` has harmless diagnostics."""

    body: bytes = field(repr=False)  # it may be long, and may repeat the key
    date: float | None
    attempts: int = 1
    notes: tuple[str, ...] = ()


class Transport:
    """Requests to one address with one key (interface 5, 7); arguments as for `Client`, else a ConfigError.

    A ``service`` that has no variable for a key is asked without one. ``pacer`` is by default the one of this process
    for this key. ``policy`` has attempts, deadlines and caps.
    ``latency`` is the smoothed time from request to whole answer [s], None before the first.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | Callable[[], str] | KeyProvider | None = None,
        *,
        service: Service | None = None,
        pacer: Pacer | None = None,
        clock: Clock = SYSTEM,
        policy: Policy | None = None,
        allow_insecure: bool = False,
        seed: int | None = None,
    ) -> None:
        api_key = veiled(api_key)
        self.base_url = check_base_url(base_url, allow_insecure=allow_insecure)
        self.service = service or service_at(self.base_url)
        self.keys: KeyProvider | None = None
        if self.service.key_variable is not None:
            self.keys = api_key if isinstance(api_key, KeyProvider) else KeyProvider(api_key, self.service.key_variable)
            self.keys.get()
        self.policy = policy or Policy()
        self._retries_unanswered = 0
        name = self.base_url if self.keys is None else self.keys.digest(self.base_url)
        self.pacer = pacer if pacer is not None else pacer_for(name)
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311 jitter, not a secret
        self._session = new_session(self.base_url)
        self.latency: float | None = None
        self.limits = PlanLimits()  # of the last answer of usage
        self._dated: tuple[float, float] | None = None
        self._usage_requested = False
        self._count = threading.Lock()
        self.requests, self.retries = 0, 0

    @property
    def server_time(self) -> float | None:
        """Unix seconds by the ``Date`` of the last answer, None if it had none; never ahead of the service."""
        return None if self._dated is None else self._dated[0] + self._clock.monotonic() - self._dated[1]

    @property
    def _key(self) -> Secret:
        """The key, empty where the service takes none."""
        return Secret("") if self.keys is None else self.keys.get()

    def get(
        self,
        segments: Sequence[str],
        params: Mapping[str, object] | None = None,
        *,
        content: object = None,
        stop: threading.Event | None = None,
        once: bool = False,
        counts: Report | None = None,
    ) -> Answer:
        """The answer to ``GET <segments>?<params>`` below the version, or to a POST of ``content`` as JSON.

        The ids and slugs of ``segments`` are passed as they are; parameters that are None are left out. ``once`` allows
        no retry, ``stop`` ends waits, and ``counts`` is filled in. RequestError if the service refuses; NetworkError if
        no complete answer comes; ContractError if it is no JSON with status 200.
        """
        path = target(segments, params, self.service.prefix)
        if self.requests >= _UNPACED and not self.pacer.known:
            self.learn_limits()
        failures = list[Failure]()
        while True:
            self.pacer.wait(stop)
            if stop is not None and stop.is_set():
                raise NetworkError("The request was given up before it was sent.")
            with self._count:
                for count in (self, counts) if counts is not None else (self,):
                    count.requests += 1
                    count.retries += bool(failures)
            outcome = self._attempt(path, len(failures) + 1, content)
            if not isinstance(outcome, Failure) or outcome.again not in ("yes", "soon", "at_once"):
                self._retries_unanswered = 0
            if not isinstance(outcome, Failure):
                return outcome
            failures.append(outcome)
            if once or not self._wait_to_retry(failures, stop):
                outcome.error.attempts = len(failures)
                raise outcome.error

    def read(
        self,
        segments: Sequence[str],
        params: Mapping[str, object] | None,
        decode: Callable[[Answer], T],
        *,
        content: object = None,
        stop: threading.Event | None = None,
        counts: Report | None = None,
    ) -> T:
        """Return what ``decode`` makes of an answer. An answer that it refuses is requested once more; see `get`."""
        tried = 0
        while True:
            answer = self.get(segments, params, content=content, stop=stop, counts=counts)
            tried += answer.attempts
            try:
                return decode(answer)
            except ContractError as error:
                if tried > answer.attempts:
                    error.attempts = tried
                    raise self.redacted(error) from None
                for count in (self, counts) if counts is not None else (self,):
                    count.retries += 1
                self._clock.sleep(Failure(error, "once").backoff(1, self._random), stop)

    def get_json(
        self,
        segments: Sequence[str],
        params: Mapping[str, object] | None = None,
        check: Callable[[Any], T] = lambda top: top,
    ) -> T:
        """The result of ``check`` for the JSON of an answer; for errors see `read`."""
        return self.read(segments, params, lambda answer: check(load(answer.body)))

    def redacted(self, error: E) -> E:
        """The error without the key, and without the frames below it, which have bytes of an answer."""
        key = str.__str__(self._key)
        error.__traceback__ = error.__context__ = error.__cause__ = None
        if key:
            error.args = tuple(redact(a, key, is_data=True) if isinstance(a, str) else a for a in error.args)
        return error

    def check_cursor(self, cursor: str | None) -> None:
        """ContractError for a cursor that is too long, or repeats the key, which must not be in an address."""
        if cursor is not None and len(cursor) > _LONGEST_CURSOR:
            raise ContractError(f"next_cursor has {len(cursor)} characters; no cursor is that long.")
        key = str.__str__(self._key)
        if cursor is not None and len(key) >= SECRET_LENGTH and key in cursor:
            raise ContractError("next_cursor repeats the API key; it is not sent back.")

    def learn_limits(self) -> None:
        """Request ``usage`` and apply its limits to the pacer; at most once, and without an error."""
        with self._count:  # of threads that come together one requests it
            if self.pacer.known or self._usage_requested or self.keys is None:
                return
            self._usage_requested = True
        with contextlib.suppress(MarketDataError):
            # One try is enough, because refusals tell the rate too.
            self.follow(load(self.get(_USAGE, once=True).body))

    def follow(self, usage: Any) -> None:
        """Take in what an answer of ``usage`` says, and tell the pacer."""
        self.limits = limits = read_usage(usage)
        if limits.requests_per_minute is not None:
            reset_in = None if limits.reset_at is None else limits.reset_at - self._clock.time()
            self.pacer.allow(limits.requests_per_minute, limits.remaining, reset_in)

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def _wait_to_retry(self, failures: list[Failure], stop: threading.Event | None) -> bool:
        """Wait for one more attempt, if there shall be one."""
        *before, (_, again, wait) = failures
        is_second = again in ("once", "new_key") and any(failure.again == again for failure in before)
        if again == "no" or is_second or len(failures) >= self.policy.attempts:
            return False
        self._retries_unanswered += 1  # no lock: a few retries more or less do no harm
        if self._retries_unanswered > self.policy.retries:
            return False
        if again == "new_key":
            return True
        seconds = failures[-1].backoff(len(failures), self._random)
        if (wait or 0.0) > self.policy.longest_wait:
            return False
        if again == "throttled" or wait is not None:
            self.pacer.pause(seconds, refused=again == "throttled")
        else:
            self._clock.sleep(seconds, stop)
        return True

    def _attempt(self, path: str, tried: int, content: object) -> Answer | Failure:
        """The answer to one request, or a Failure, to which no error of a library is chained."""
        # Errors of libraries contain the header with the key.
        whole, policy, key = self.base_url + path, self.policy, self._key
        url = whole.partition("?")[0]
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": _AGENT}
        headers |= {"X-API-Key": key} if key else {}
        began = time.monotonic()
        ATTEMPT.set((began + policy.total, policy.silence))
        try:
            method = "GET" if content is None else "POST"
            prepared = self._session.prepare_request(requests.Request(method, whole, headers=headers, json=content))
            if prepared.url != whole:
                raise ConfigError("The path would be changed on its way; this id or slug cannot be requested.")
            timeout = (policy.connect, policy.silence)
            with self._session.send(prepared, stream=True, allow_redirects=False, timeout=timeout) as response:
                status, head = response.status_code, response.headers
                if 300 <= status < 400 and status != 304:
                    raise RedirectError(redirect_text(status, head.get("Location", "")))
                encoding = head.get("Content-Encoding", "")
                body = read_body(response.raw, encoding, policy)
        except MarketDataError as error:
            self.redacted(error)
            if isinstance(error, NetworkError):
                error.url = url
            return Failure(error, _RETRIED.get(type(error), "no"))
        except _LIBRARY_ERRORS as problem:
            failed = network_failure(problem, url)
            if self.latency is not None and tried == 1 and failed.again == "yes":
                self._session.close()  # it was answered before: idle connections may have been closed meanwhile
                return failed._replace(again="at_once")
            return failed
        except BaseException as stop:
            # A signal handler may raise where libraries hold the key as bytes; a crash report shows their locals.
            raise stop.with_traceback(None) from None
        date, seconds = server_date(head.get("Date")), time.monotonic() - began
        kind = head.get("Content-Type", "").partition(";")[0].strip().lower()
        self._dated = None if date is None else (date, self._clock.monotonic())
        if self.keys is None and status == 200 and (inside := refusal_inside(body)) is not None:
            status = inside
        if status != 200 or kind in ("text/html", "application/xhtml+xml"):
            return self._refused(status, head, kind, body, url, key, date)
        self.latency = seconds if self.latency is None else 0.9 * self.latency + 0.1 * seconds
        notes = () if kind == "application/json" or kind.endswith("+json") else ("content_type_not_json",)
        return Answer(body, date, tried, notes)

    def _refused(
        self, status: int, head: Mapping[str, str], kind: str, body: bytes, url: str, key: Secret, date: float | None
    ) -> Failure:
        if status == 200:
            text = f"The answer is {kind}, not JSON: is there a login page or a proxy in between? ({url})"
            return Failure(ContractError(text), "once")
        if status < 400:
            return Failure(ContractError(f"The answer has the status {status}; the interface knows 200 ({url})."))
        now = date if date is not None else self._clock.time()
        has_key = self.keys is not None
        error = refusal(status, body, kind, url, str.__str__(key), now, has_key=has_key)
        wait = retry_after(head.get("Retry-After"), date)
        if isinstance(error, RateLimitError):
            error.retry_at = now + wait if wait is not None else None
            return Failure(error, "throttled", wait)
        if is_temporary(status, body, has_key=has_key):
            return Failure(error, "yes", wait)
        if status == 401 and self.keys is not None:
            with contextlib.suppress(ConfigError):  # a provider that has no key any more has no new one
                if str.__str__(self.keys.refresh(key)) != str.__str__(key):
                    return Failure(error, "new_key")
        return Failure(error)

    def __repr__(self) -> str:
        # A crash report may show a transport that is only partly made.
        return f"Transport({getattr(self, 'base_url', None)!r}, {getattr(self, 'keys', None)!r})"

    def __reduce__(self) -> tuple[Callable[..., Transport], tuple[str, KeyProvider | None]]:
        # The address was allowed when this transport was made.
        options: dict[str, Any] = {"policy": self.policy, "allow_insecure": True, "service": self.service}
        return partial(Transport, **options), (self.base_url, self.keys)
