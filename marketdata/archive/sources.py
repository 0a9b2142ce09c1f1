"""The open recordings from which an archive has points: what must be cited, and which versions of files it has."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from marketdata.archive.storage import errors
from marketdata.archive.storage.files import Store
from marketdata.archive.store import ArchiveStore
from marketdata.recordings.catalogue import OpenSet

_SOURCES = "sources.json"


def parts_folder(store: ArchiveStore) -> Path:
    """The folder of what is fetched for an archive."""
    named = hashlib.sha256(store.root.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"marketdata-recordings-{named}"


class Sources:
    """The recordings from which an archive has points, with their licences and the versions of their files."""

    def __init__(self, store: ArchiveStore) -> None:
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        try:
            with self._place.open(_SOURCES) as file:
                self.known: dict[str, dict[str, Any]] = json.loads(file.read())
        except (FileNotFoundError, NotADirectoryError):
            self.known = {}

    def files(self, name: str) -> dict[str, str]:
        """The files of a recording that were imported, and their ETags."""
        return dict(self.known.get(name, {}).get("files", {}))

    def add(self, found: OpenSet, files: dict[str, str]) -> None:
        """Keep what must be cited, and which versions were imported."""
        about = self.known.setdefault(found.name, {"files": {}})
        about |= {"licence": found.licence, "citation": found.citation, "page": found.page}
        about["files"] |= files
        about["fetched"] = dt.datetime.now(dt.UTC).date().isoformat()
        body = json.dumps(self.known, indent=1).encode()
        with errors.writing(f"Writing the sources of {self._place.uri}"):
            if not self._place.remote:
                Path(self._place.uri, _SOURCES).unlink(missing_ok=True)
            self._place.write(_SOURCES, body)

    def citations(self) -> str:
        """What an export of the archive must cite; empty without recordings."""
        return "".join(
            f"{about['citation'] or name}\nlicence: {about['licence'] or 'unknown'}; {about['page']}; "
            f"fetched {about['fetched']}; changed: rebuilt as books of equal buckets\n"
            for name, about in sorted(self.known.items())
        )
