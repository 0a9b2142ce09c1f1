"""The open recordings from which an archive has points: what must be cited, and which versions of files it has."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marketdata.archive.storage import errors
from marketdata.archive.storage.files import Store
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError
from marketdata.recordings import open_files
from marketdata.recordings.catalogue import OpenSet
from marketdata.recordings.wanted import Selection, wanted_in

_SOURCES = "sources.json"


class Sources:
    """The recordings from which an archive has points, with their licences and the versions of their files."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        try:
            with self._place.open(_SOURCES) as file:
                self.known: dict[str, dict[str, Any]] = json.loads(file.read())
        except (FileNotFoundError, NotADirectoryError):
            self.known = {}

    @contextmanager
    def fetched(
        self, found: OpenSet, selection: Selection, address: str | None, *, progress: bool | None
    ) -> Iterator[list[Path]]:
        """The wanted part of a recording, as files, which are removed once they are imported; its citation is kept."""
        hours = open_files.hours_of(found, selection.start, selection.end)
        known = dict(self.known.get(found.name, {}).get("files", {}))
        wanted = wanted_in(selection, self._store.catalog["markets"])
        where, folder = address or str(found.address), _parts_folder(self._store)
        files = list(open_files.fetched(where, hours, wanted, folder, known, progress))
        paths = [path for _, path in files if path is not None]
        if not paths:
            problem = f"is in none of the {len(files)} files; they name markets and tokens by their ids."
            raise ConfigError(problem, argument="only", value=selection.only)
        yield paths
        self._keep(found, {remote.url: remote.etag for remote, _ in files})
        open_files.forget(folder, [remote for remote, _ in files])

    def _keep(self, found: OpenSet, files: dict[str, str]) -> None:
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


def _parts_folder(store: ArchiveStore) -> Path:
    """The folder of what is fetched for an archive."""
    named = hashlib.sha256(store.root.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"marketdata-recordings-{named}"
