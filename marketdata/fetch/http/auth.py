"""The source of the API key, which is never shown."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable
from typing import TypeVar, cast
from urllib.parse import quote

from marketdata.errors import ConfigError
from marketdata.vendors import API_KEY

_HINT = f"Pass api_key=... or set {API_KEY}."
SECRET_LENGTH = 16  # shorter keys may be words that occur in a text by chance
T = TypeVar("T")


def mask(key: str) -> str:
    """The key as it may be shown: its last four characters if it has 16 or more."""
    return "…" + key[-4:] if len(key) >= SECRET_LENGTH else "***"


def redact(text: str, key: str, *, is_data: bool = False) -> str:
    """The text without the key.

    A key of 16 characters or more is removed everywhere. A shorter one may be a word, so it is removed as
    a whole token but not as part of a slug or a path. In a text that quotes data, it is removed only as the value of a
    header or a parameter.

    >>> redact("Market not found: latest-test-1. Is test your key?", "test")
    'Market not found: latest-test-1. Is *** your key?'
    >>> redact("token 'test' was '1'; X-API-Key: test", "test", is_data=True)
    "token 'test' was '1'; X-API-Key: ***"
    """
    if len(key) >= SECRET_LENGTH:
        return text.replace(key, "***").replace(quote(key, safe=""), "***")
    before = r"(key[\"']?\s*[:=]\s*\[?[\"']?|[?&][\w-]+=)" if is_data else r"(?<![\w.~%/-])()"
    return re.sub(rf"(?i:{before}){re.escape(key)}(?![\w~%/-]|\.\w)", r"\1***", text)


class Secret(str):
    """A text that is masked wherever it is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(mask(str.__str__(self)))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (mask(str.__str__(self)),)


def veiled(source: T) -> T:
    """The same, masked if it is a text: for frames whose locals a crash report may print."""
    return cast(T, Secret(source)) if isinstance(source, str) else source


def check_key(key: object) -> Secret:
    """The key, if it is ASCII without spaces, as headers need; else a ConfigError that does not show it."""
    key = veiled(key)
    if not isinstance(key, str):
        raise ConfigError(f"is a {type(key).__name__}; it must be a text.", argument="api_key")
    if not key:
        raise ConfigError("is empty.", argument="api_key", hint=_HINT)
    if not all("!" <= c <= "~" for c in key):
        raise ConfigError(
            "contains a space, a line break or a character beyond ASCII; was it copied whole and alone?",
            argument="api_key",
        )
    return Secret(key)


class KeyProvider:
    """The key from a text, a callable, or (None) the environment, read again after a 401; no pickle has the key.

    The environment variable is MARKETDATA_API_KEY, or else the ``variable`` of a vendor. A vendor receives
    its own key only.
    """

    __slots__ = ("_key", "_lock", "_source", "_variable")

    def __init__(self, source: str | Callable[[], str] | None = None, variable: str = API_KEY) -> None:
        source = veiled(source)
        self._variable = variable
        self._lock = threading.Lock()
        self._key: Secret | None = None
        self._source: Secret | Callable[[], str] | None = None  # also while a key is refused: a crash report shows it
        if source is not None:
            self._source = source if callable(source) else check_key(source)

    def get(self) -> Secret:
        """The key; ConfigError if there is none, or a header cannot carry it."""
        with self._lock:
            if self._key is None:
                self._key = self._read()
            return self._key

    def refresh(self, refused: Secret) -> Secret:
        """The key from its source again, as it may have been rotated; once for all requests that had this one."""
        with self._lock:
            if self._key is refused:
                self._key = self._read()
            return self._key or refused

    def digest(self, base_url: str) -> str:
        """A name for this key at this address, from which the key cannot be read back."""
        return hashlib.sha256(f"{base_url}\n{str.__str__(self.get())}".encode()).hexdigest()

    def _read(self) -> Secret:
        source: str | Callable[[], str] | None = self._source
        if source is None:
            source = veiled(os.environ.get(API_KEY) or os.environ.get(self._variable))
        if source is None:
            hint = _HINT if self._variable == API_KEY else f"Pass api_key=... or set {self._variable}."
            raise ConfigError("is missing.", argument="api_key", hint=hint)
        return check_key(source() if callable(source) else source)

    def __repr__(self) -> str:
        source = self._source if isinstance(self._source, str | None) else "a callable"
        return f"KeyProvider({source!r})"

    def __reduce__(self) -> tuple[type[KeyProvider], tuple[Callable[[], str] | None, str]]:
        return KeyProvider, (self._source if callable(self._source) else None, self._variable)
