"""Pages of history, and the cursors that lead from one page to the next.

A page has whole buckets, in time order, up to a number of points (token x bucket). A cursor has the start of the next
bucket, so nothing is repeated or skipped while an archive grows. It is ``<issued>.<position>.<signature>``,
with a signature over view, market, resolution and range: with another request it is refused. It carries no rights.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from itsdangerous import Signer
from starlette.responses import Response

from marketdata.errors import ConfigError
from marketdata.points.columns import Data
from marketdata.points.views import View
from marketdata.service import errors
from marketdata.service.cache import CACHE_BYTES, Cache, CachedChunk, Subject, chunk_ranges
from marketdata.times import Range

if TYPE_CHECKING:
    from marketdata.archive import Archive

# Chunks with points, and time [s], that one request may read before it answers with a cursor: others have their turn.
MAX_READS = 24
MAX_SECONDS = 0.5
# Markets, and ranges of theirs, of which the record and what is stored are kept for the next page.
CACHED = 1_024


@dataclass(slots=True)
class ServedPage:
    """The points of a page, in time order; ``position``: where the next one begins [microseconds], or None."""

    parts: list[Data] = field(default_factory=list)
    count: int = 0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class KeptPage:
    """An answer, which may be given again ``until`` a time, while the versions are the same; the cursor behind it."""

    view: View
    resolution: str
    start: int
    versions: tuple[int, int]
    until: float
    following: str | None
    response: Response
    # Memory, roughly [bytes].
    nbytes: int


class Pages:
    """Pages of an archive, from cached chunks."""

    def __init__(self, source: Archive, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._source = source
        self.cache = Cache(cache_bytes)
        # The pages of a pagination are of one market and one range.
        self._market = lru_cache(CACHED)(lambda _, id_or_slug: self._find_market(id_or_slug))
        self._stored = lru_cache(CACHED)(lambda _, *asked: source.stored_ranges(*asked))

    def versions(self, view: View) -> tuple[int, int]:
        """A value that changes with the points of a view, and with a record."""
        return self._source.version("markets"), self._source.version(view)

    def is_current(self, kept: KeptPage, now: float) -> bool:
        """Whether an answer may be given again."""
        return now < kept.until and self.versions(kept.view) == kept.versions

    def market(self, id_or_slug: str) -> tuple[str, dict[str, str]]:
        """The id of a market, and label to token id, which is not to be changed; HTTPException 404 without one."""
        return self._market(self._source.version("markets"), id_or_slug)

    def _find_market(self, id_or_slug: str) -> tuple[str, dict[str, str]]:
        record = self._source.find_market(id_or_slug)
        if record is None:
            raise errors.market_not_found(id_or_slug)
        return str(record["id"]), labels_of(record)

    def page(self, subject: Subject, rng: Range, limit: int, position: int | None = None) -> ServedPage:
        """The page from ``position`` (the start of a bucket) on, with at most ``limit`` points.

        ``rng`` selects base points, which are then aggregated: a bucket that it cuts is of a part of its points.
        HTTPException 400 if one bucket has more points than the limit.
        """
        version = self._source.version(subject.view)
        stored = self._stored(version, subject.view, subject.market_id, rng)
        width = subject.resolution.micros
        first = rng.start // width * width if position is None else position
        page, reads, begun = ServedPage(), 0, time.monotonic()
        for seen, cell in enumerate(chunk_ranges(stored, subject, rng, max(first, rng.start))):
            if reads >= MAX_READS or (seen and time.monotonic() - begun > MAX_SECONDS):
                page.position = cell.start
                return page
            chunk, was_read = self.cache.get((version, subject, cell), partial(self._read, subject, cell))
            reads += was_read and len(chunk.columns) > 0
            low, high = np.searchsorted(chunk.buckets, (first, rng.end)).tolist()
            edges = chunk.edges
            fits = int(np.searchsorted(edges, edges[low] + limit - page.count, side="right")) - 1
            stop = min(fits, high)
            if stop > low:
                page.parts.append(chunk.columns.take(np.sort(chunk.order[edges[low] : edges[stop]])))
                page.count += len(page.parts[-1])
                first = int(chunk.buckets[stop - 1]) + width
            if stop < high:
                if not page.count:
                    raise errors.limit_too_small(int(edges[low + 1] - edges[low]))
                page.position = first
                return page
        return page

    def _read(self, subject: Subject, rng: Range) -> CachedChunk:
        view, market_id, token_id, resolution, _ = subject
        return CachedChunk(self._source.columns(view, market_id, rng, resolution, token_id))


def labels_of(market: dict[str, Any]) -> dict[str, str]:
    """Label to token id of a market; of two tokens with one label the later one has its id as label."""
    out: dict[str, str] = {}
    tokens: Sequence[dict[str, Any]] = market.get("tokens") or ()
    labels = {str(token["label"]) for token in tokens if token.get("label") is not None}
    for token in tokens:
        token_id = str(token["id"])
        label = token.get("label")
        name = token_id if label is None or str(label) in out else str(label)
        while name in out or (name in labels and name != str(label)):
            name += "'"  # an id that is the label of another token
        out[name] = token_id
    return out


# Time for which a cursor is valid [s]: a fetch may be continued on the same day. Its characters: it is part of a URL.
LIFETIME = 24 * 3600
MAX_LENGTH = 512
_SHAPE = re.compile(r"([0-9]{1,12})\.(-?[0-9a-f]{1,40})\.[A-Za-z0-9_-]{43}", re.ASCII)

Facts = Sequence[str | int | float | None]


class Cursors:
    """Issues and reads cursors, signed with a secret, for ``lifetime`` [seconds]."""

    def __init__(self, secret: bytes, *, lifetime: float = LIFETIME, clock: Callable[[], float] = time.time) -> None:
        if len(secret) < 16:
            raise ConfigError("A cursor secret must have at least 16 bytes; `secrets.token_bytes(32)` makes one.")
        self._secret = secret
        self._lifetime = lifetime
        self._clock = clock

    def give(self, facts: Facts, position: str) -> str:
        """A cursor for a position (a number or hexadecimal text) of the request with these facts."""
        return self._sign(facts, f"{int(self._clock())}.{position}")

    def read(self, facts: Facts, cursor: str) -> str:
        """The position of a cursor issued for these facts; else, or if expired, HTTPException 400."""
        match = _SHAPE.fullmatch(cursor) if len(cursor) <= MAX_LENGTH else None
        if match is None or self._clock() - int(match[1]) > self._lifetime:
            raise errors.invalid_cursor()
        # The whole text is compared, so that no other spelling of the same signature is valid.
        expected = self._sign(facts, cursor.rpartition(".")[0])
        if not hmac.compare_digest(expected.encode(), cursor.encode()):
            raise errors.invalid_cursor()
        return match[2]

    def until(self, cursor: str | None) -> float:
        """The time until which a page that was asked by a cursor, and names another, may be answered again."""
        again = self._clock() + self._lifetime / 24
        return again if cursor is None else min(again, int(cursor.partition(".")[0]) + self._lifetime)

    def _sign(self, facts: Facts, value: str) -> str:
        salt = json.dumps(["marketdata cursor", *facts]).encode()
        signer = Signer(self._secret, salt=salt, key_derivation="hmac", digest_method=hashlib.sha256)
        return signer.sign(value).decode()


def stored_secret(path: Path) -> bytes:
    """The secret in a file of mode 0600, created at first use; a new one, for this process, if it cannot be written."""
    with contextlib.suppress(OSError):
        if not path.exists():
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32))
                file.flush()
                os.fsync(file.fileno())
            # A link is put-if-absent: two services that start at once read the same secret.
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            fresh.unlink()
        found = path.read_text(encoding="ascii").strip()
        if len(found) >= 32:
            return found.encode()
    return secrets.token_bytes(32)
