"""Cursors: the position of the next page, signed together with the request that it continues."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from itsdangerous import BadData, URLSafeSerializer

from marketdata.errors import ConfigError
from marketdata.service import errors

Facts = Sequence[str | int | float | None]


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
        return self._sign(facts, [position, int(self._clock())])

    def read(self, facts: Facts, cursor: str) -> int | str:
        """The position of a cursor; HTTPException 400 for one that is foreign, changed or expired."""
        try:
            payload: list[Any] = self._serializer(facts).loads(cursor)
        except BadData:
            raise errors.invalid_cursor() from None
        position: int | str = payload[0]
        # The last character of a signature has unused bits: only the spelling that was issued is valid.
        if self._sign(facts, payload) != cursor or self._clock() - payload[1] > self._lifetime:
            raise errors.invalid_cursor()
        return position

    def _sign(self, facts: Facts, payload: list[int | str]) -> str:
        return self._serializer(facts).dumps(payload)

    def _serializer(self, facts: Facts) -> URLSafeSerializer:
        signing = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        return URLSafeSerializer(
            self._secret, salt=json.dumps(["marketdata cursor", *facts]).encode(), signer_kwargs=signing
        )


def stored_secret(path: Path) -> bytes:
    """The secret in a file of mode 0600, created at first use; a fresh one, for this process, if that is impossible."""
    with contextlib.suppress(OSError):
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            with open(fresh, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            # A link is put-if-absent: two services that start at once read the same, whole secret.
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
        text = path.read_bytes().strip()
        if len(text) >= 32:
            return text
    return secrets.token_bytes(32)
