"""API keys and their plans (interface section 5): only their SHA-256, in memory or in a TOML file of mode 0600."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import hmac
import logging
import math
import os
import re
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, StrictBool

from marketdata.errors import ConfigError
from marketdata.service.plans import AccessPlan, read_table

if TYPE_CHECKING:
    import tomlkit

# Bytes of a key, far above those that are made here, so that hashing one costs little.
MAX_KEY = 512
_log = logging.getLogger("marketdata.service")
# The prefix of a hash in the file, so that another kind could follow.
_HASH = "sha256:"
_COMMENT = "# Keys of the local service: hashes only. Only its owner may read it (mode 0600).\n\n"


@dataclass(frozen=True, slots=True)
class Grant:
    """The sender of a request: the name of a key (never the key) and its plan."""

    key_id: str
    plan: AccessPlan
    organization: str | None = None


def _allowed(plans: Iterable[str]) -> str:
    return f"allowed are {', '.join(sorted(plans))}."


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return "mk_" + secrets.token_urlsafe(32)


def digest(key: bytes) -> bytes:
    """The stored hash of a key; keys are random, so one round is enough."""
    return hashlib.sha256(key).digest()


def _hash_of(text: Any) -> bytes:
    if not isinstance(text, str) or re.fullmatch(f"{_HASH}[0-9a-fA-F]{{64}}", text, re.ASCII) is None:
        raise ValueError(f"it should match the pattern {_HASH} and 64 hexadecimal digits")
    return bytes.fromhex(text.removeprefix(_HASH))


_Time = Annotated[AwareDatetime | None, Field(strict=True)]


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a store; never the key itself."""

    id: str
    hash: Annotated[bytes, BeforeValidator(_hash_of)]
    plan: str
    organization: str | None = None
    created: _Time = None
    expires: _Time = None
    revoked: StrictBool = False

    def check(self, plans: Iterable[str]) -> None:
        """ConfigError if the key names none of these plans."""
        if self.plan not in plans:
            raise ConfigError(f"Key {self.id!r} names the plan {self.plan!r}; {_allowed(plans)}")

    @property
    def ends(self) -> float:
        """The Unix time from which on the key is invalid."""
        return -math.inf if self.revoked else math.inf if self.expires is None else self.expires.timestamp()


@dataclass(frozen=True, slots=True)
class _File:
    """The tables of a key file, before they are read."""

    plans: dict[str, Any] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=list)


class Keys:
    """Keys in memory, and the plans that they name."""

    def __init__(
        self,
        entries: Any = (),
        plans: Mapping[str, AccessPlan] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._set(tuple(entries), dict(plans or {}))

    def _set(self, entries: tuple[Entry, ...], plans: dict[str, AccessPlan]) -> None:
        for entry in entries:
            entry.check(plans)
        self.entries, self.plans = entries, plans
        # If a key has two entries the stricter counts: the revoked one, else the one that expires first.
        ends = {entry.hash: (entry, entry.ends) for entry in sorted(entries, key=lambda e: e.ends, reverse=True)}
        self._by_hash: dict[bytes, tuple[Entry | None, float]] = dict(ends)

    @property
    def is_stale(self) -> bool:
        """Whether there are newer keys, which ``refresh`` reads."""
        return False

    def refresh(self) -> None:
        """Read the newest keys; those before them stay in use meanwhile."""

    def find(self, key: bytes) -> Grant | None:
        """The rights of a key by the keys that were read last; None if it is unknown, expired or revoked."""
        found = hashlib.sha256(key[: MAX_KEY + 1]).digest()
        entry, ends = self._by_hash.get(found, (None, 0.0))
        # The same work for every key: one hash, one look-up, one comparison.
        same = hmac.compare_digest(entry.hash if entry else bytes(32), found)
        if entry is None or not same or len(key) > MAX_KEY or self._clock() >= ends:
            return None
        return Grant(entry.id, self.plans[entry.plan], entry.organization)


class KeyFile(Keys):
    """Keys in a TOML file of mode 0600, whose changes apply to the next request; ConfigError if it cannot be used."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._seen = self._stamp()
        entries, plans = read_key_file(self.path)
        super().__init__(entries, plans, clock=clock)

    def __reduce__(self) -> Any:
        """Another process reads the file itself."""
        return functools.partial(KeyFile, clock=self._clock), (self.path,)

    @property
    def is_stale(self) -> bool:
        """Whether the file was changed: a look takes a hundredth of the time of a page."""
        return self._stamp() != self._seen

    def refresh(self) -> None:
        """Read the file again if it was changed; those who come meanwhile use the keys before."""
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            if stamp is None:
                _log.error("The key file is gone; no key is valid until it is back.")
                self._set((), self.plans)
                return
            try:
                self._set(*read_key_file(self.path))
            except ConfigError as problem:
                _log.error("The key file was not read again; the keys before it stay in use. %s", problem)

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        # ctime changes with permissions too: a file that was refused for them is read again.
        return found.st_mtime_ns, found.st_ino, found.st_size, found.st_ctime_ns

    def add(
        self, plan: str, *, organization: str | None = None, expires: dt.datetime | None = None
    ) -> tuple[str, Entry]:
        """Create a key, returned this once, as only its hash is stored; ConfigError if the file has no such plan."""
        import tomlkit

        key = new_key()
        created = dt.datetime.now(dt.UTC).replace(microsecond=0)
        entry = Entry("k_" + secrets.token_hex(4), digest(key.encode()), plan, organization, created, expires)
        with _edit(self.path) as document:
            plans = document.get("plans", {})
            if plan not in plans:
                raise ConfigError(f"There is no plan {plan!r} in {self.path.name}; {_allowed(plans)}")
            table = {**asdict(entry), "hash": _HASH + entry.hash.hex()}
            listed = document.setdefault("keys", tomlkit.aot())
            listed.append({name: value for name, value in table.items() if value is not None})
            listed[-1].trivia.indent = "\n"
        self.refresh()
        return key, entry

    def revoke(self, key_id: str) -> None:
        """Make a key invalid for ever; ConfigError if there is none with this id."""
        with _edit(self.path) as document:
            listed: list[Any] = document.get("keys", [])
            found = [table for table in listed if table["id"] == key_id]
            if not found:
                known = [str(table["id"]) for table in listed]
                raise ConfigError(f"There is no key {key_id!r} in {self.path.name}; there are {known}.")
            for table in found:
                table["revoked"] = True
        self.refresh()


def create_key_file(path: str | Path, plans: Mapping[str, AccessPlan]) -> None:
    """Create a key file with these plans and no key, unless it exists."""
    with _edit(Path(path)) as document:
        if not document:
            tables = {plan.name: asdict(plan) for plan in plans.values()}
            document["plans"] = {
                name: {field: value for field, value in table.items() if field != "name" and value is not None}
                for name, table in tables.items()
            }


def read_key_file(path: Path) -> tuple[tuple[Entry, ...], dict[str, AccessPlan]]:
    """Keys and plans of a file; ConfigError if it is unreadable, readable by others, or invalid."""
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise ConfigError(f"The key file {path.name} is readable by others; run: chmod 600 {path}")
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError as problem:
        hint = "there is no such file; marketdata keys new makes one."
        raise ConfigError(f"The key file {path} cannot be read: {hint}") from problem
    except (OSError, UnicodeError) as problem:
        raise ConfigError(f"The key file {path} cannot be read: {problem}.") from problem
    return _parse(path.name, text)


def _parse(file: str, text: str) -> tuple[tuple[Entry, ...], dict[str, AccessPlan]]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(f"The key file {file} cannot be read: {problem}.") from problem
    entries: dict[str, Entry] = {}
    try:
        found = read_table(_File, "it", document)
        plans = {name: AccessPlan.read(name, table) for name, table in found.plans.items()}
        for number, table in enumerate(found.keys, 1):
            named = isinstance(table, Mapping) and "id" in table
            entry = read_table(Entry, f"Key {table['id']!r}" if named else f"Key number {number}", table)
            entry.check(plans)
            if entry.id in entries:
                raise ConfigError(f"Two keys have the id {entry.id!r}; give each key its own.")
            entries[entry.id] = entry
    except ConfigError as problem:
        raise ConfigError(f"The key file {file} cannot be read: {problem}") from None
    return tuple(entries.values()), plans


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """Read, change and replace the file, or make it, while no other process edits it; comments and order stay."""
    import tomlkit

    target = path.resolve()
    try:
        lock = os.open(target.with_name(target.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise ConfigError(f"The key file {path} cannot be edited: {problem.strerror} in {target.parent}.") from problem
    with os.fdopen(lock, "rb"):
        with contextlib.suppress(ImportError):  # only where there is flock
            import fcntl

            _give(lock, target if target.exists() else target.parent)
            fcntl.flock(lock, fcntl.LOCK_EX)
        before = ""
        if target.exists():
            read_key_file(target)
            before = target.read_bytes().decode("utf-8")
        document = tomlkit.parse(before or _COMMENT)
        yield document
        # Nothing is written that could not be read again.
        try:
            text = tomlkit.dumps(document)
            text.encode()
            _parse(target.name, text)
        except (ConfigError, UnicodeError) as problem:
            raise ConfigError(f"The key file {path.name} was left as it was: {problem}") from problem
        if text != before:
            _replace(target, text)


def _replace(target: Path, text: str) -> None:
    """Replace the content of a file, with the same owner and mode; ConfigError if there is no room or right for it."""
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            if target.exists():
                _give(descriptor, target)
                fresh.chmod(target.stat().st_mode & 0o7777)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(target)
    except OSError as problem:
        raise ConfigError(
            f"The key file {target.name} was left as it was; it cannot be written: {problem.strerror}."
        ) from problem
    finally:
        fresh.unlink(missing_ok=True)


def _give(descriptor: int, like: Path) -> None:
    """Give a file the owner of another one: only root can, and has to, so that the file stays its owner's."""
    with contextlib.suppress(PermissionError, AttributeError):  # Windows has no such owners
        os.fchown(descriptor, like.stat().st_uid, like.stat().st_gid)
