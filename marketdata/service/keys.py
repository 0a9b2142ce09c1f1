"""API keys and plans (interface sections 5 and 8): in memory, or in a TOML file that only its owner may read.

A store holds the SHA-256 of each key, never the key.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import logging
import os
import secrets
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)

from marketdata.errors import ConfigError
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.service import errors

if TYPE_CHECKING:
    import tomlkit

DEFAULT_REQUESTS_PER_MINUTE = 60_000  # more than one client can send
_log = logging.getLogger("marketdata.service")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _resolution(text: str) -> str:
    try:
        return BucketWidth.of(text).text
    except ConfigError as problem:
        raise ValueError(str(problem)) from None


class AccessPlan(_Table):
    """The rights of a key.

    Requests in any 60 s, resolutions (None: all that the service has), views, and lookback [days] (None: unlimited).
    """

    requests_per_minute: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_REQUESTS_PER_MINUTE
    resolutions: Annotated[tuple[Annotated[str, AfterValidator(_resolution)], ...] | None, Field(min_length=1)] = None
    views: tuple[View, ...] = tuple(VIEWS)
    max_history_days: Annotated[float | None, Field(gt=0, allow_inf_nan=False, strict=True)] = None

    def allowed(self, resolutions: Sequence[str]) -> list[str]:
        """Those of the service's resolutions that the plan allows, in their order."""
        return [one for one in resolutions if self.resolutions is None or one in self.resolutions]

    def check(self, view: str, resolution: str, start: int, now: float, resolutions: Sequence[str]) -> None:
        """HTTPException 403 for what the plan does not allow; a range may begin exactly at the bound."""
        if view not in self.views:
            raise errors.view_not_allowed(view)
        allowed = self.allowed(resolutions)
        if resolution not in allowed:
            raise errors.resolution_not_allowed(resolution, allowed)
        if self.max_history_days is not None and start < (now - self.max_history_days * 86_400) * 1e6:
            raise errors.lookback_not_allowed(self.max_history_days)


class KeyEntry(_Table):
    """One key of a store, by its hash."""

    id: Annotated[str, Field(min_length=1)]
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    plan: str
    organization: str | None = None
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None
    revoked: StrictBool = False

    def is_valid(self, now: float) -> bool:
        """Whether the key may be used at a Unix time."""
        return not self.revoked and (self.expires is None or now < self.expires.timestamp())


class Keys(_Table):
    """Keys, and the plans that they name."""

    plans: dict[str, AccessPlan] = {}
    keys: list[KeyEntry] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        for entry in self.keys:
            if entry.plan not in self.plans:
                raise ValueError(f"key {entry.id!r} names the plan {entry.plan!r}; {_one_of(self.plans)}")
        if len({entry.id for entry in self.keys}) < len(self.keys):
            raise ValueError("two keys have one id; give each key its own")
        return self

    @classmethod
    def read(cls, what: str, table: Mapping[str, Any]) -> Self:
        """Keys and plans of tables; ConfigError for an entry that is unknown, missing or refused."""
        try:
            return cls.model_validate(table)
        except ValidationError as problem:
            # The value stays out: somebody may have written a key where its hash belongs.
            first = problem.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            reason = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{what} cannot be read: {f'{place}: ' if place else ''}{reason}.") from None


class KeyStore:
    """Keys in memory, or in a file whose changes apply to the next request."""

    def __init__(self, source: Keys | str | Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._path = None if isinstance(source, Keys) else Path(source)
        self._lock = threading.Lock()
        self._stamp = self._current_stamp()
        self._set(source if isinstance(source, Keys) else read_key_file(Path(source)))

    def _set(self, keys: Keys) -> None:
        self.keys = keys
        by_hash: dict[str, list[KeyEntry]] = {}
        for entry in keys.keys:
            by_hash.setdefault(entry.hash, []).append(entry)
        self._by_hash = by_hash

    def find(self, key: bytes) -> tuple[KeyEntry, AccessPlan] | None:
        """The rights of a key; None if it is unknown, expired or revoked in any of its entries.

        It is looked up by its hash, so the time tells nothing about a key that is nearly right.
        """
        entries = self._by_hash.get(digest(key), [])
        if not entries or not all(entry.is_valid(self._clock()) for entry in entries):
            return None
        return entries[0], self.keys.plans[entries[0].plan]

    @property
    def is_stale(self) -> bool:
        """Whether the file was changed since it was read."""
        return self._current_stamp() != self._stamp

    def refresh(self) -> None:
        """Read the file again if it was changed; a file that cannot be read leaves the keys as they are."""
        with self._lock:
            stamp = self._current_stamp()
            if stamp == self._stamp or self._path is None:
                return
            self._stamp = stamp
            if stamp is None:
                _log.error("The key file is gone; no key is valid until it is back.")
                self._set(Keys(plans=self.keys.plans))
                return
            try:
                self._set(read_key_file(self._path))
            except ConfigError as problem:
                _log.error("The key file was not read again; the keys before it stay in use. %s", problem)

    def _current_stamp(self) -> tuple[int, ...] | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        # ctime changes with permissions too: a file that was refused for them is read again.
        return status.st_mtime_ns, status.st_ino, status.st_size, status.st_ctime_ns


def _one_of(plans: Iterable[str]) -> str:
    return f"allowed are {', '.join(sorted(plans)) or 'none'}"


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return "mk_" + secrets.token_urlsafe(32)


def digest(key: bytes) -> str:
    """The stored hash of a key; keys are random, so one round is enough."""
    return "sha256:" + hashlib.sha256(key).hexdigest()


def read_key_file(path: Path) -> Keys:
    """Keys and plans of a file; ConfigError if it is unreadable, readable by others, or invalid."""
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise ConfigError(f"The key file {path.name} is readable by others; run: chmod 600 {path}")
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no key file {path}; `marketdata keys new {path}` makes one.") from None
    except (OSError, UnicodeError) as problem:
        raise ConfigError(f"The key file {path} cannot be read: {problem}.") from problem
    return _parse(path, text)


def _parse(path: Path, text: str) -> Keys:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(f"The key file {path.name} cannot be read: {problem}.") from None
    return Keys.read(f"The key file {path.name}", table)


def create_key_file(path: Path, plan: str) -> None:
    """Create a key file with a plan that allows everything, and no key, unless the file exists."""
    with _edit(path) as document:
        if not document:
            document["plans"] = {plan: {"requests_per_minute": DEFAULT_REQUESTS_PER_MINUTE}}


def add_key(path: Path, plan: str, *, organization: str | None = None) -> tuple[str, KeyEntry]:
    """Create a key and return it, this once, because the file stores its hash only.

    ConfigError if the file has no such plan.
    """
    import tomlkit

    key, created = new_key(), dt.datetime.now(dt.UTC).replace(microsecond=0)
    entry = KeyEntry(
        id="k_" + secrets.token_hex(4), hash=digest(key.encode()), plan=plan, organization=organization, created=created
    )
    with _edit(path) as document:
        plans = document.get("plans", {})
        if plan not in plans:
            raise ConfigError(f"There is no plan {plan!r} in {path.name}; {_one_of(plans)}.")
        document.setdefault("keys", tomlkit.aot()).append(entry.model_dump(exclude_defaults=True))
    return key, entry


def revoke_key(path: Path, key_id: str) -> None:
    """Make a key invalid for ever; ConfigError if the file has no key with this id."""
    with _edit(path) as document:
        tables = document.get("keys", [])
        if key_id not in [table["id"] for table in tables]:
            raise ConfigError(
                f"There is no key {key_id!r} in {path.name}; there are {[str(table['id']) for table in tables]}."
            )
        for table in tables:
            if table["id"] == key_id:
                table["revoked"] = True


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """Change a key file, or make it, while no other process does; comments and order stay."""
    import tomlkit
    from filelock import FileLock, Timeout

    target = path.resolve()
    try:
        with FileLock(f"{target}.lock", timeout=10, mode=0o600) as lock:
            _own_like(Path(lock.lock_file), target)
            before = ""
            if target.exists():
                read_key_file(target)
                before = target.read_text("utf-8")
            document = tomlkit.parse(
                before or "# Keys of the local service: hashes only. Only its owner may read this file (mode 0600).\n\n"
            )
            yield document
            text = tomlkit.dumps(document)
            _parse(target, text)  # nothing is written that could not be read again
            if text != before:
                _replace(target, text)
    except (OSError, Timeout, UnicodeError) as problem:
        raise ConfigError(f"The key file {path} was left as it was: {problem}.") from problem


def _replace(target: Path, text: str) -> None:
    """Replace a file as a whole; its owner and mode stay."""
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        with open(fresh, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            fresh.chmod(target.stat().st_mode & 0o7777)
            _own_like(fresh, target)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)


def _own_like(path: Path, model: Path) -> None:
    """Give a file the owner of another: root, who alone can, must not take the file from its owner."""
    status = (model if model.exists() else model.parent).stat()
    with contextlib.suppress(PermissionError, AttributeError):  # Windows has no such owners
        os.chown(path, status.st_uid, status.st_gid)
