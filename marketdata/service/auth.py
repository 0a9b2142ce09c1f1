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
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AwareDatetime, Field

from marketdata.errors import ConfigError
from marketdata.service.plans import AccessPlan, EntryError, Table

if TYPE_CHECKING:
    import tomlkit

# Bytes of a key, far above those that are made here, so that hashing one costs little. How long a file of keys is not
# looked at again [s]: a revocation counts within a second.
MAX_KEY = 512
RELOAD_SECONDS = 0.25
_log = logging.getLogger("marketdata.service")
# What stands before a hash in the file, so that another kind could follow.
_HASH = "sha256:"


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


class _KeyTable(Table):
    id: str
    hash: str = Field(pattern=f"^{_HASH}[0-9a-fA-F]{{64}}$")
    plan: str
    organization: str | None = None
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None
    revoked: bool = False


class _FileTable(Table):
    plans: dict[str, Any] = Field(default_factory=dict)
    keys: list[Any] = Field(default_factory=list)


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

    @classmethod
    def read(cls, table: Any) -> Entry:
        """A key from its table in the key file; EntryError if an entry is missing, unknown or of another type."""
        named = isinstance(table, Mapping) and "id" in table
        found = _KeyTable.read(f"Key {table['id']!r}" if named else "A key", table)
        return cls(found.pop("id"), bytes.fromhex(found.pop("hash").removeprefix(_HASH)), **found)

    @property
    def ends(self) -> float:
        """The Unix time from which on the key is invalid."""
        return -math.inf if self.revoked else math.inf if self.expires is None else self.expires.timestamp()


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
            if entry.plan not in plans:
                raise ConfigError(f"Key {entry.key_id!r} names the plan {entry.plan!r}; {_allowed(plans)}")
        self.entries, self.plans = entries, plans
        # Of two entries of one key the stricter counts: the revoked one, else the one that expires first.
        ends = {entry.hash: (entry, entry.ends) for entry in sorted(entries, key=lambda e: e.ends, reverse=True)}
        self._by_hash: dict[bytes, tuple[Entry | None, float]] = dict(ends)

    @property
    def is_stale(self) -> bool:
        """Whether there are newer keys, which ``refresh`` reads."""
        return False

    def refresh(self) -> None:
        """Read the newest keys; those before them stay in use meanwhile."""

    def grant(self, key: bytes) -> Grant | None:
        """The rights of a key by the newest keys; None if it is unknown, expired or revoked."""
        if self.is_stale:
            self.refresh()
        return self.find(key)

    def find(self, key: bytes) -> Grant | None:
        """The rights of a key by the keys that were read last."""
        found = hashlib.sha256(key[: MAX_KEY + 1]).digest()
        entry, ends = self._by_hash.get(found, (None, 0.0))
        # The same work for every key: one hash, one look-up, one comparison.
        same = hmac.compare_digest(entry.hash if entry else bytes(32), found)
        if entry is None or not same or len(key) > MAX_KEY or self._clock() >= ends:
            return None
        return Grant(entry.key_id, self.plans[entry.plan], entry.organization)


class KeyFile(Keys):
    """Keys in a TOML file of mode 0600, whose changes apply within a second; ConfigError if it cannot be used."""

    def __init__(self, path: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._seen = self._stamp()
        entries, plans = read_key_file(self.path)
        super().__init__(entries, plans, clock=clock)

    def __reduce__(self) -> Any:
        """Another process reads the file itself."""
        return functools.partial(KeyFile, clock=self._clock), (self.path,)

    @property
    def is_stale(self) -> bool:
        """Whether the file was changed; it is looked at a few times a second."""
        now = time.monotonic()
        if now - self._looked <= RELOAD_SECONDS:
            return False
        self._looked = now
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
        key = new_key()
        created = dt.datetime.now(dt.UTC).replace(microsecond=0)
        entry = Entry("k_" + secrets.token_hex(4), digest(key.encode()), plan, organization, created, expires)
        with _edit(self.path) as document:
            plans = document.get("plans", {})
            if plan not in plans:
                raise ConfigError(f"There is no plan {plan!r} in {self.path.name}; {_allowed(plans)}")
            _append(document, entry)
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
    import tomlkit

    with _locked(Path(path)) as target:
        if target.exists():
            return
        document = tomlkit.document()
        document.add(tomlkit.comment("Keys of the local service: hashes only. Only its owner may read it (mode 0600)."))
        document.add(tomlkit.nl())
        tables = tomlkit.table(is_super_table=True)
        for plan in plans.values():
            table = tomlkit.table()
            table["requests_per_minute"] = plan.requests_per_minute
            table["resolutions"], table["views"] = list(plan.resolutions), list(plan.views)
            if plan.max_history_days is not None:
                table["max_history_days"] = plan.max_history_days
            tables[plan.name] = table
        document["plans"] = tables
        _replace(target, tomlkit.dumps(document))


def read_key_file(path: Path) -> tuple[tuple[Entry, ...], dict[str, AccessPlan]]:
    """Keys and plans of a file; ConfigError, with the line, if it is unreadable, readable by others, or invalid."""
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
    place: tuple[str | int, ...] = ()
    try:
        found = _FileTable.read(f"The key file {file}", document)
        plans = {}
        for name, table in found["plans"].items():
            place = "plans", name
            plans[name] = AccessPlan.read(name, table)
        entries: list[Entry] = []
        places: dict[str, int] = {}
        for number, table in enumerate(found["keys"]):
            place = "keys", number
            entries.append(Entry.read(table))
            key_id, plan = entries[-1].key_id, entries[-1].plan
            if plan not in plans:
                raise EntryError(f"Key {key_id!r} names the plan {plan!r}; {_allowed(plans)}", "plan")
            if (first := places.setdefault(key_id, number)) != number:
                line = _line_of(text, ("keys", first, "id"))
                raise EntryError(f"Another key, of line {line}, has the id {key_id!r}; give each key its own.", "id")
    except EntryError as problem:
        line = _line_of(text, place if problem.entry is None else (*place, problem.entry))
        raise ConfigError(f"{file}, line {line}: {problem}") from None
    return tuple(entries), plans


def _line_of(text: str, place: tuple[str | int, ...]) -> int:
    """The line of an entry: the shortest beginning of the file that has it."""
    lines = text.split("\n")

    def has(count: int) -> bool:
        table: Any = None
        # A beginning that ends within a value of several lines is extended to the end of that value.
        while table is None:
            try:
                table = tomllib.loads("\n".join(lines[:count]) + "\n")
            except tomllib.TOMLDecodeError:
                if count >= len(lines):
                    return True
                count += 1
        for part in place:
            try:
                table = table[part]
            except (KeyError, IndexError, TypeError):
                return False
        return True

    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if has(middle) else (middle + 1, high)
    return low


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """The resolved file, while no other process edits it."""
    target = path.resolve()
    try:
        lock = os.open(target.with_name(target.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as problem:
        raise ConfigError(f"The key file {path} cannot be edited: {problem.strerror} in {target.parent}.") from problem
    try:
        with contextlib.suppress(ImportError):  # only where there is flock
            import fcntl

            _give(lock, target if target.exists() else target.parent)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield target
    finally:
        os.close(lock)


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """Read, change and replace the file; comments and order stay."""
    import tomlkit

    with _locked(path) as target:
        read_key_file(target)
        document = tomlkit.parse(target.read_bytes().decode("utf-8"))
        yield document
        # Nothing is written that could not be read again.
        try:
            text = tomlkit.dumps(document)
            text.encode()
            _parse(target.name, text)
        except (ConfigError, UnicodeError) as problem:
            raise ConfigError(f"The key file {path.name} was left as it was: {problem}") from problem
        _replace(target, text)


def _append(document: tomlkit.TOMLDocument, entry: Entry) -> None:
    import tomlkit.items

    values = {
        "id": entry.key_id,
        "hash": _HASH + entry.hash.hex(),
        "plan": entry.plan,
        "organization": entry.organization,
        "created": entry.created,
        "expires": entry.expires,
        "revoked": entry.revoked,
    }
    given = {name: value for name, value in values.items() if value is not None}
    listed: Any = document.get("keys")
    if isinstance(listed, tomlkit.items.Array):
        table: Any = tomlkit.inline_table()
        table.update(given)
        listed.append(table)
        return
    table = tomlkit.table()
    table.update(given)
    table.trivia.indent = "\n"
    if listed is None:
        listed = document["keys"] = tomlkit.aot()
    listed.append(table)


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
    except BaseException as problem:
        fresh.unlink(missing_ok=True)
        if isinstance(problem, OSError):
            text = f"The key file {target.name} was left as it was; it cannot be written: {problem.strerror}."
            raise ConfigError(text) from problem
        raise


def _give(descriptor: int, like: Path) -> None:
    """Give a file the owner of another one, so that a file edited by root stays its owner's."""
    if os.name != "posix":
        return
    wanted, own = like.stat(), os.fstat(descriptor)
    if (wanted.st_uid, wanted.st_gid) != (own.st_uid, own.st_gid):
        # Only root can change the owner.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
