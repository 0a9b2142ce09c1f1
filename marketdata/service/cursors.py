"""Cursors: the position of the next page, signed together with the request that it continues."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fastapi import HTTPException
from itsdangerous import BadData, URLSafeSerializer

from marketdata.errors import ConfigError

Facts = Sequence[str | int | float | None]


def invalid_cursor() -> HTTPException:
    """400 of a cursor that this service did not issue for this request."""
    return HTTPException(400, "Invalid cursor")


class Cursors:
    """Issues and reads cursors; a cursor is valid for a day, with the request for which it was issued.

    It carries no rights: key and plan are checked on every page.
    """

    def __init__(self, secret: bytes, clock: Callable[[], float], lifetime: float = 24 * 3600) -> None:
        if len(secret) < 16:
            raise ConfigError("A cursor secret must have at least 16 bytes; `secrets.token_bytes(32)` makes one.")
        self._secret, self._clock, self._lifetime = secret, clock, lifetime

    def issue(self, facts: Facts, position: int | str) -> str:
        """A cursor for a position of the request with these facts."""
        return self._serializer(facts).dumps([position, int(self._clock())])

    def read(self, facts: Facts, cursor: str) -> int | str:
        """The position of a cursor; HTTPException 400 for one that is foreign, changed or expired."""
        serializer = self._serializer(facts)
        with contextlib.suppress(BadData):
            position, issued_at = serializer.loads(cursor)
            # The last character of a signature has unused bits: only the spelling that was issued is valid.
            is_same = serializer.dumps([position, issued_at]) == cursor
            if is_same and self._clock() - issued_at <= self._lifetime:
                return position  # type: ignore[no-any-return]
        raise invalid_cursor()

    def _serializer(self, facts: Facts) -> URLSafeSerializer:
        signing = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        salt = json.dumps(["marketdata cursor", *facts]).encode()
        return URLSafeSerializer(self._secret, salt=salt, signer_kwargs=signing)


def stored_secret(path: Path) -> bytes:
    """The secret in a file of mode 0600, created at first use; a fresh one, for this process, if that is impossible."""
    with contextlib.suppress(OSError):
        if not path.exists():
            with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix="_") as fresh:
                fresh.write(secrets.token_hex(32))
                fresh.flush()
                os.fsync(fresh.fileno())
                # A link is put-if-absent: two services that start at once read the same, whole secret.
                with contextlib.suppress(FileExistsError):
                    os.link(fresh.name, path)
        text = path.read_bytes().strip()
        if len(text) >= 32:
            return text
    return secrets.token_bytes(32)
