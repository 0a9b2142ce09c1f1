"""The journal of imports: fingerprints of imported files, and the books that were open after the last one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import Store
from marketdata.archive.store import ArchiveStore
from marketdata.points.columns import Token
from marketdata.points.rebuild import Changes, Rebuilder

_NAME = "journal.npz"


def fingerprint(path: Path, *options: str | None) -> str:
    """A text that is the same for equal files that are read with equal options."""
    digest = hashlib.blake2b(json.dumps(options).encode(), digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Journal:
    """One file of the archive, replaced after each file that was imported."""

    def __init__(self, store: ArchiveStore) -> None:
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        self._state: dict[str, Any] = {}
        self._arrays: dict[str, Any] = {}
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with errors.reading(f"The journal of imports of {store.root}"), absent, self._place.open(_NAME) as file:
            self._arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
            self._state = json.loads(bytes(self._arrays.pop("state")).decode())
        self.files: set[str] = set(self._state.get("files", ()))

    def restore(self, feed: Rebuilder, key: str) -> None:
        """The open books of the last import, if it had these options."""
        if self._state.get("key") != key:
            return
        values = {n.removeprefix("value "): v for n, v in self._arrays.items() if n.startswith("value ")}
        arrays = {name: v for name, v in self._arrays.items() if not name.startswith("value ")}
        # numpy stores no texts that may be missing: they are in the state.
        values |= {name: np.array(texts, object) for name, texts in self._state["texts"].items()}
        feed.open = Changes(tuple(Token(*token) for token in self._state["tokens"]), **arrays, values=values)
        feed.last_seen, feed.last_seen_before = self._state["last_seen"], self._state["last_seen_before"]

    def write(self, files: list[str], feed: Rebuilder, key: str) -> None:
        """The files are in the archive, and these books are open."""
        self.files.update(files)
        texts = {name: v.tolist() for name, v in feed.open.values.items() if v.dtype.hasobject}
        numbers = {f"value {name}": v for name, v in feed.open.values.items() if not v.dtype.hasobject}
        state = {
            "files": sorted(self.files), "key": key, "tokens": feed.open.tokens, "texts": texts,
            "last_seen": feed.last_seen, "last_seen_before": feed.last_seen_before,
        }  # fmt: skip
        packed = np.frombuffer(json.dumps(state).encode(), np.uint8)
        arrays: dict[str, Any] = {"state": packed, **feed.open.arrays(), **numbers}
        np.savez(buffer := io.BytesIO(), **arrays)
        body = buffer.getvalue()
        with errors.writing(f"Writing the journal of imports to {self._place.uri}"):
            if self._place.remote:
                self._place.write(_NAME, body)
                return
            # Another name first, so that there is always a whole journal.
            Path(self._place.uri).mkdir(parents=True, exist_ok=True)
            self._place.write(new := f"{uuid.uuid4().hex}.part", body)
            self._place.files.move(new, _NAME)
