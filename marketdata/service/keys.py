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
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from fastapi import HTTPException
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from marketdata.errors import ConfigError
from marketdata.points.views import INTERFACE_VIEWS, View
from marketdata.resolution import BucketWidth

if TYPE_CHECKING:
    import tomlkit

DEFAULT_REQUESTS_PER_MINUTE = 60_000  # more than one client can send
_Resolution = Annotated[str, AfterValidator(lambda text: BucketWidth.of(text).text)]
_log = logging.getLogger("marketdata.service")


def _served(view: View) -> View:
    if view not in INTERFACE_VIEWS:
        raise ValueError(f"{view!r} is no view of the service; allowed are {', '.join(INTERFACE_VIEWS)}")
    return view


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AccessPlan(_Table):
    """The rights of a key: requests in any 60 s, resolutions, views, and how far back a range may begin [days].

    None for resolutions or ``max_history_days`` sets no limit.
    """

    requests_per_minute: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_REQUESTS_PER_MINUTE
    resolutions: Annotated[tuple[_Resolution, ...] | None, Field(min_length=1)] = None
    views: tuple[Annotated[View, AfterValidator(_served)], ...] = INTERFACE_VIEWS
    max_history_days: Annotated[float | None, Field(gt=0, allow_inf_nan=False, strict=True)] = None

    def allowed(self, resolutions: Sequence[str]) -> list[str]:
        """The given resolutions without the ones that the plan lacks."""
        return [text for text in resolutions if self.resolutions is None or text in self.resolutions]

    def check(self, view: str, resolution: str, start: int, now: float, resolutions: Sequence[str]) -> None:
        """HTTPException 403 for what the plan does not allow; a range may begin exactly at the bound."""
        refused = "Your plan does not allow"
        if view not in self.views:
            raise HTTPException(403, f"{refused} historical {'order books' if view == 'books' else view}")
        if resolution not in (allowed := self.allowed(resolutions)):
            finest, *coarser = allowed or ["none"]
            others = f" (allowed: {', '.join(allowed)})" if coarser else ""
            raise HTTPException(403, f"{refused} {resolution} granularity. Minimum: {finest}{others}")
        days = self.max_history_days
        if days is not None and start < (now - days * 86_400) * 1e6:
            raise HTTPException(403, f"Your plan allows up to the last {days:g} days of historical data")


class KeyEntry(_Table):
    """One key of a store, by its hash."""

    id: Annotated[str, Field(min_length=1)]
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    plan: str
    organization: str | None = None
    created: AwareDatetime | None = None
    expires: AwareDatetime | None = None
    revoked: Annotated[bool, Field(strict=True)] = False


class Keys(_Table):
    """Keys, and the plans that they name."""

    plans: dict[str, AccessPlan] = {}
    keys: list[KeyEntry] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        for entry in self.keys:
            if entry.plan not in self.plans:
                raise ValueError(f"key {entry.id!r} names the plan {entry.plan!r}; {_allowed(self.plans)}")
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

    @classmethod
    def given(cls, keys: Mapping[str, str], plans: Mapping[str, AccessPlan | Mapping[str, Any]] | None) -> Self:
        """Keys by the name of their plan, without a file."""
        if not all(keys):
            raise ConfigError("keys has an empty key; a key is a text that is not empty.")
        entries = [
            {"id": f"key{number}", "hash": digest(key.encode()), "plan": plan}
            for number, (key, plan) in enumerate(keys.items())
        ]
        return cls.read("keys and plans", {"plans": plans or {"local": {}}, "keys": entries})


class KeyStore:
    """Keys in memory, or in a file whose changes apply to the next request."""

    def __init__(self, source: Keys | Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._path = source if isinstance(source, Path) else None
        stamp = self._current_stamp()
        # One tuple, because a thread that reads an older file must not leave its keys under a newer stamp.
        self._current = stamp, read_key_file(source) if isinstance(source, Path) else source

    def find(self, key: bytes) -> tuple[KeyEntry, AccessPlan] | None:
        """The entry of a key and its plan; None if it is unknown, expired or revoked in any of its entries.

        Hashes are compared, so the time that it takes tells nothing about a key that is nearly right.
        """
        keys, hashed, now = self._current[1], digest(key), self._clock()
        entries = [entry for entry in keys.keys if entry.hash == hashed]
        if not entries or any(e.revoked or (e.expires and e.expires.timestamp() <= now) for e in entries):
            return None
        return entries[0], keys.plans[entries[0].plan]

    @property
    def is_stale(self) -> bool:
        """Whether the file was changed since it was read."""
        return self._current_stamp() != self._current[0]

    def refresh(self) -> None:
        """Read the file again; a file that cannot be read leaves the keys as they are."""
        stamp, keys = self._current_stamp(), self._current[1]
        if stamp is None or self._path is None:
            keys = Keys()
            _log.error("The key file is gone; no key is valid until it is back.")
        else:
            try:
                keys = read_key_file(self._path)
            except ConfigError as problem:
                _log.error("The key file was not read again; the keys before it stay in use. %s", problem)
        self._current = stamp, keys

    def _current_stamp(self) -> tuple[int, ...] | None:
        with contextlib.suppress(OSError):
            if self._path is not None:
                status = self._path.stat()
                # ctime changes with permissions too: a file that was refused for them is read again.
                return status.st_mtime_ns, status.st_ino, status.st_size, status.st_ctime_ns
        return None


def _allowed(names: Iterable[str]) -> str:
    return f"allowed are {', '.join(sorted(names)) or 'none'}"


def new_key() -> str:
    """A fresh key of 256 random bits."""
    return "mk_" + secrets.token_urlsafe(32)


def digest(key: bytes) -> str:
    """The stored hash of a key; keys are random, so one round is enough."""
    return "sha256:" + hashlib.sha256(key).hexdigest()


def read_key_file(path: Path) -> Keys:
    """Keys and plans of a file; ConfigError if it is unreadable, readable by others, or invalid."""
    try:
        mode, text = path.stat().st_mode, path.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"There is no key file {path}; `marketdata keys new {path}` makes one.") from None
    except (OSError, UnicodeError) as problem:
        raise ConfigError(f"The key file {path} cannot be read: {problem}.") from problem
    if os.name == "posix" and mode & 0o077:
        raise ConfigError(f"The key file {path.name} is readable by others; run: chmod 600 {path}")
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(f"The key file {path.name} cannot be read: {problem}.") from None
    return Keys.read(f"The key file {path.name}", table)


def add_key(path: Path, plan: str | None = None, *, organization: str | None = None) -> tuple[str, KeyEntry]:
    """Create a key and return it, this once, because the file stores its hash only.

    A new file gets the plan, by default ``local``, which allows everything. ConfigError if a file lacks the plan, or
    has several and ``plan`` is None.
    """
    import tomlkit

    key = new_key()
    with _edit(path) as document:
        if not document:
            document["plans"] = {plan or "local": {"requests_per_minute": DEFAULT_REQUESTS_PER_MINUTE}}
        plans = list(document.get("plans", {}))
        if plan is None and len(plans) == 1:
            plan = str(plans[0])
        if plan is None or plan not in plans:
            problem = "is missing" if plan is None else f"{plan!r} does not exist in {path.name}"
            raise ConfigError(f"{problem}; {_allowed(plans)}.", argument="plan")
        entry = KeyEntry(
            id="k_" + secrets.token_hex(4),
            hash=digest(key.encode()),
            plan=plan,
            organization=organization,
            created=dt.datetime.now(dt.UTC).replace(microsecond=0),
        )
        document.setdefault("keys", tomlkit.aot()).append(entry.model_dump(exclude_defaults=True))
    return key, entry


def revoke_key(path: Path, key_id: str) -> None:
    """Make a key invalid for ever; ConfigError if the file has no key with this id."""
    with _edit(path) as document:
        entries = {str(entry["id"]): entry for entry in document.get("keys", [])}
        if key_id not in entries:
            raise ConfigError(f"There is no key {key_id!r} in {path.name}; there are {list(entries)}.")
        entries[key_id]["revoked"] = True


@contextlib.contextmanager
def _edit(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """Change a key file, or make it, while no other process does; comments, order and owner stay."""
    import tomlkit
    from filelock import FileLock, Timeout

    target = path.resolve()
    fresh = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        with FileLock(f"{target}.lock", timeout=10, mode=0o600) as lock:
            fresh.touch(0o600, exist_ok=False)
            # Root must not take the files from their owner; only root can, and Windows has no such owners.
            with contextlib.suppress(PermissionError, AttributeError):
                status = (target if target.exists() else target.parent).stat()
                for file_path in (fresh, lock.lock_file):
                    os.chown(file_path, status.st_uid, status.st_gid)
            text = "# Keys of the local service: hashes only. Only its owner may read this file (mode 0600).\n\n"
            if target.exists():
                read_key_file(target)
                text = target.read_text("utf-8")
            document = tomlkit.parse(text)
            yield document
            with fresh.open("w", encoding="utf-8") as file:
                file.write(tomlkit.dumps(document))
                file.flush()
                os.fsync(file.fileno())  # a power cut must not leave an empty file
            read_key_file(fresh)  # no file is replaced by one that could not be read
            fresh.replace(target)
    except (OSError, Timeout, UnicodeError) as problem:
        raise ConfigError(f"The key file {path} was left as it was: {problem}.") from problem
    finally:
        fresh.unlink(missing_ok=True)
