"""Cursors: opaque, signed, and good for one request only.

A cursor is ``<key id>.<issued>.<position>.<signature>``. The signature covers the facts of the request
(view, market, resolution, range), which are not inside: a cursor that is shown with another request is
refused. It carries no rights; plan and rate are those of the key that shows it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from itsdangerous import Signer

from marketdata.errors import ConfigError
from marketdata.service.errors import invalid_cursor

LIFETIME = 24 * 3600
MAX_LENGTH = 512
_SHAPE = re.compile(r"([0-9a-f]{8})\.([0-9]{1,12})\.(-?[0-9a-f]{1,40})\.[A-Za-z0-9_-]{43}", re.ASCII)

Facts = Sequence[str | int | float | None]


class Cursors:
    """Gives and reads cursors.

    Parameters
    ----------
    secrets_ : sequence of bytes
        Secrets that are accepted; the first one signs.
    lifetime : float
        How long a cursor is good [seconds].
    clock : callable
        Unix time [seconds].
    """

    def __init__(
        self, secrets_: Sequence[bytes], *, lifetime: float = LIFETIME, clock: Callable[[], float] = time.time
    ) -> None:
        if not secrets_ or min(map(len, secrets_)) < 16:
            raise ConfigError("A cursor secret must have at least 16 bytes; `secrets.token_bytes(32)` makes one.")
        self._secrets = {hashlib.sha256(b"id" + s).hexdigest()[:8]: s for s in secrets_}
        self._first = next(iter(self._secrets))
        self._lifetime = lifetime
        self._clock = clock

    def give(self, facts: Facts, position: str) -> str:
        """A cursor for this position (a number or hexadecimal text) of the request with these facts."""
        return self._sign(self._first, facts, f"{self._first}.{int(self._clock())}.{position}")

    def read(self, facts: Facts, cursor: str) -> str:
        """The position of a cursor that was given for these facts.

        Raises
        ------
        HTTPException
            400 ``Invalid cursor`` for every other text, and for an expired one.
        """
        match = _SHAPE.fullmatch(cursor) if len(cursor) <= MAX_LENGTH else None
        if match is None or match[1] not in self._secrets:
            raise invalid_cursor()
        # The whole text is compared, so that no other spelling of the same signature is good.
        expected = self._sign(match[1], facts, cursor.rpartition(".")[0])
        if not hmac.compare_digest(expected.encode(), cursor.encode()):
            raise invalid_cursor()
        if self._clock() - int(match[2]) > self._lifetime:
            raise invalid_cursor()
        return match[3]

    def _sign(self, key_id: str, facts: Facts, value: str) -> str:
        salt = json.dumps(["marketdata cursor", *facts]).encode()
        signer = Signer(self._secrets[key_id], salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
        return signer.sign(value).decode()


def kept_secret(path: Path) -> bytes:
    """The secret in a file of mode 0600, made at first use; it outlives the service.

    Where nothing can be written the secret lives as long as the process: cursors then end with it.
    """
    with suppress(OSError):
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            # A link is put-if-absent: of two services that start at once both read the same secret.
            with suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
        found = path.read_text(encoding="ascii").strip()
        if len(found) >= 32:
            return found.encode()
    return secrets.token_bytes(32)
