"""Keys: only their SHA-256 is kept, in memory or in a TOML file of mode 0600.

::

    [plans.pro]
    requests_per_minute = 2000
    resolutions = ["1m", "10m", "1h", "6h", "1d"]
    views = ["books", "prices", "metrics"]
    max_history_days = 365            # left out: without bound

    [[keys]]
    id = "k_1f3a9c"
    hash = "sha256:..."
    plan = "pro"
    created = 2026-01-31T12:00:00Z
    expires = 2027-01-31T12:00:00Z    # left out: never
    revoked = false
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marketdata.errors import ConfigError
from marketdata.service.plans import Grant, Plan

MAX_KEY = 512
RELOAD_SECONDS = 0.25
_log = logging.getLogger("marketdata.service")
_HASH = "sha256:"


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return "mk_" + secrets.token_urlsafe(32)


def digest(key: bytes) -> bytes:
    """What is kept of a key. Keys are random, so one round is enough."""
    return hashlib.sha256(key).digest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a store; never the key itself."""

    key_id: str
    hash: bytes
    plan: str
    organization: str | None = None
    created: dt.datetime | None = None
    expires: dt.datetime | None = None
    revoked: bool = False

    def good(self, now: float) -> bool:
        """Whether the key may be used at this Unix time."""
        return not self.revoked and (self.expires is None or now < self.expires.timestamp())


class Keys:
    """Keys in memory.

    Parameters
    ----------
    entries : iterable of Entry
        The keys.
    plans : mapping of str to Plan
        The plans that they name.
    clock : callable
        Unix time [seconds].
    """

    def __init__(
        self, entries: Any = (), plans: Mapping[str, Plan] | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._set(tuple(entries), dict(plans or {}))

    def _set(self, entries: tuple[Entry, ...], plans: dict[str, Plan]) -> None:
        for entry in entries:
            if entry.plan not in plans:
                raise ConfigError(f"Key {entry.key_id!r} names the plan {entry.plan!r}; there are {sorted(plans)}.")
        self.entries, self.plans = entries, plans
        self._by_hash = {entry.hash: entry for entry in entries}

    def grant(self, key: bytes) -> Grant | None:
        """What a key may do; None if it is unknown, expired or revoked."""
        found = digest(key[: MAX_KEY + 1])
        entry = self._by_hash.get(found)
        # The same work for every key: one hash, one look-up, one comparison.
        same = hmac.compare_digest(entry.hash if entry else bytes(32), found)
        if entry is None or not same or len(key) > MAX_KEY or not entry.good(self._clock()):
            return None
        return Grant(entry.key_id, self.plans[entry.plan], entry.organization)


class KeyFile(Keys):
    """Keys in a TOML file; a change of the file counts within a second, also on open connections.

    Parameters
    ----------
    path : path
        The file; mode 0600.
    clock : callable
        Unix time [seconds].

    Raises
    ------
    ConfigError
        If the file is missing, readable by others, or not such a file.
    """

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._seen = self._stamp()
        entries, plans = read_key_file(self.path)
        super().__init__(entries, plans, clock=clock)

    def grant(self, key: bytes) -> Grant | None:
        """What a key may do; None if it is unknown, expired or revoked."""
        if time.monotonic() - self._looked > RELOAD_SECONDS:
            self._reload()
        return super().grant(key)

    def _reload(self) -> None:
        with self._lock:
            self._looked = time.monotonic()
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            if stamp is None:
                _log.error("The key file is gone; no key is good until it is back.")
                self._set((), self.plans)
                return
            try:
                self._set(*read_key_file(self.path))
            except ConfigError as problem:
                _log.error("The key file was not read again; the keys before it stay. %s", problem)

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        # The last is new for a change of rights too: a file that was refused for them is read once it is mended.
        return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns

    def add(
        self, plan: str, *, organization: str | None = None, expires: dt.datetime | None = None
    ) -> tuple[str, Entry]:
        """Make a key; it is returned once and only its hash is kept.

        Raises
        ------
        ConfigError
            If the file has no such plan.
        """
        key = new_key()
        with _edit(self.path) as (entries, plans):
            if plan not in plans:
                raise ConfigError(f"There is no plan {plan!r} in {self.path.name}; there are {sorted(plans)}.")
            created = dt.datetime.now(dt.UTC).replace(microsecond=0)
            key_id = "k_" + secrets.token_hex(4)
            entry = Entry(key_id, digest(key.encode()), plan, organization, created, expires)
            entries.append(entry)
        self._seen = None
        self._reload()
        return key, entry

    def revoke(self, key_id: str) -> None:
        """Make a key invalid for ever.

        Raises
        ------
        ConfigError
            If there is no key of this id.
        """
        with _edit(self.path) as (entries, _):
            at = [i for i, entry in enumerate(entries) if entry.key_id == key_id]
            if not at:
                known = [entry.key_id for entry in entries]
                raise ConfigError(f"There is no key {key_id!r} in {self.path.name}; there are {known}.")
            for i in at:
                old = entries[i]
                entries[i] = Entry(
                    old.key_id, old.hash, old.plan, old.organization, old.created, old.expires, revoked=True
                )
        self._seen = None
        self._reload()


def create_key_file(path: str | Path, plans: Mapping[str, Plan]) -> None:
    """A new key file with these plans and no key; one that is there stays as it is."""
    target = Path(path)
    if not target.exists():
        _write(target, [], dict(plans))


def read_key_file(path: Path) -> tuple[tuple[Entry, ...], dict[str, Plan]]:
    """Keys and plans of a file.

    Raises
    ------
    ConfigError
        If it can not be read, is readable by others, or has entries that are not as described above.
    """
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise ConfigError(f"The key file {path.name} is readable by others; run: chmod 600 {path}")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as problem:
        raise ConfigError(f"The key file {path} can not be read: {problem}.") from problem
    named = table.get("plans", {})
    listed = table.get("keys", [])
    if not isinstance(named, dict) or not isinstance(listed, list):
        raise ConfigError(f"The key file {path.name} needs [plans.<name>] tables and [[keys]] entries.")
    plans = {name: Plan.read(name, found) for name, found in named.items()}
    return tuple(_entry(path.name, row) for row in listed), plans


def _entry(file: str, row: Any) -> Entry:
    try:
        if not row["hash"].startswith(_HASH):
            raise ValueError(f"hash must begin with {_HASH!r}")
        found = bytes.fromhex(row["hash"].removeprefix(_HASH))
        if len(found) != 32:
            raise ValueError("hash must have 64 hexadecimal digits")
        times = {name: row.get(name) for name in ("created", "expires")}
        for name, value in times.items():
            if value is not None and (not isinstance(value, dt.datetime) or value.tzinfo is None):
                raise ValueError(f"{name} must be a date and time with a zone")
        organization = row.get("organization")
        return Entry(str(row["id"]), found, str(row["plan"]), organization, **times, revoked=bool(row.get("revoked")))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ConfigError(f"The key file {file} has an entry that can not be read: {problem}.") from None


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[tuple[list[Entry], dict[str, Plan]]]:
    """Read, change and replace the file while no other process does the same."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(ImportError):  # only where there is flock
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        entries, plans = read_key_file(path)
        changed = list(entries)
        yield changed, plans
        _write(path, changed, plans)
    finally:
        os.close(lock)


def _write(path: Path, entries: list[Entry], plans: dict[str, Plan]) -> None:
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(to_toml(entries, plans))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def to_toml(entries: list[Entry], plans: dict[str, Plan]) -> str:
    """The text of a key file."""
    lines = ["# Keys of the local service: hashes only. Keep this file to its owner (mode 0600)."]
    for plan in plans.values():
        lines += ["", f"[plans.{json.dumps(plan.name)}]", f"requests_per_minute = {plan.requests_per_minute}"]
        lines += [f"resolutions = {json.dumps(plan.resolutions)}", f"views = {json.dumps(plan.views)}"]
        if plan.max_history_days is not None:
            lines.append(f"max_history_days = {plan.max_history_days}")
    for entry in entries:
        lines += ["", "[[keys]]", f"id = {json.dumps(entry.key_id)}", f'hash = "{_HASH}{entry.hash.hex()}"']
        lines.append(f"plan = {json.dumps(entry.plan)}")
        if entry.organization is not None:
            lines.append(f"organization = {json.dumps(entry.organization)}")
        lines += [f"{n} = {t.isoformat()}" for n, t in (("created", entry.created), ("expires", entry.expires)) if t]
        lines.append(f"revoked = {str(entry.revoked).lower()}")
    return "\n".join(lines) + "\n"
