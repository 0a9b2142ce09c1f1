"""The address of an archive: a folder, or a prefix of an object store."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from marketdata.archive.storage.errors import unavailable
from marketdata.archive.storage.parquet import is_url
from marketdata.errors import ConfigError

# The storage library decodes percent signs, and takes backslashes for slashes.
_REFUSED = re.compile(r"%[0-9a-fA-F]{2}|[\x00-\x1f\x7f\ud800-\udfff]" + ("" if os.sep == "\\" else r"|\\"))


def located(path_or_url: object) -> str:
    """The address, or the absolute path, of an archive; ConfigError for one that cannot be an archive's."""
    if not isinstance(path_or_url, str | bytes | os.PathLike):
        problem = "is refused; allowed are a folder or an object-store address, as text or a path."
        raise ConfigError(problem, argument="path_or_url", value=path_or_url)
    location = os.fsdecode(path_or_url)
    if not location:
        raise ConfigError("path_or_url is empty; it is a folder or an object-store address.")
    if is_url(location):
        return location
    path = Path(location.removeprefix("file://")).absolute()
    refused = _REFUSED.search(str(path))
    problem = f"has {refused[0]!r}, which the storage library does not take in a path" if refused else ""
    try:
        if not problem and path.is_file():
            problem = "is a file; an archive is a folder, which the first write makes"
    except OSError as failed:
        if failed.errno != errno.ENAMETOOLONG:
            raise unavailable(f"The folder {location!r}", failed) from failed
        problem = f"has {len(location):,} characters, more than the file system takes"
    if problem:
        raise ConfigError(f"{problem}. Use another folder.", argument="path_or_url", value=location)
    return str(path)
