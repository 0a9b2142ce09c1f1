"""Fetches the wanted row groups of the files of an open recording."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from marketdata.display import progress_bar
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.fetch.ranges import Ranges, Remote
from marketdata.recordings.catalogue import OpenSet
from marketdata.recordings.containers import may_have
from marketdata.recordings.wanted import Wanted
from marketdata.times import MINUTE, to_text

_HOUR = 60 * MINUTE
_COLUMNS = ("market", "asset_id")


def check_licence(found: OpenSet, licence: str | None) -> None:
    """ConfigError before anything is fetched, if the licence is unknown or does not allow every use, and not named."""
    if found.licence is not None and found.use is None:
        return
    named = found.licence or "unknown"
    if licence == named:
        return
    terms = f"is under {named}, for {found.use} only" if found.use else "has no licence that is known"
    raise ConfigError(
        f"{terms}; see {found.page}. If you may use it, pass licence={named!r}.", argument="name", value=found.name
    )


def hours_of(found: OpenSet, start: int | None, end: int | None) -> list[str]:
    """The hours of a range, as the names of files have them; ConfigError without a range."""
    if found.address is None:
        raise ConfigError(
            f"has no address of files: download them from {found.page}, and add them with archive.add_files.",
            argument="name",
            value=found.name,
        )
    if start is None or end is None:
        known = f"{found.start or '?'} to {found.end or '?'}"
        raise ConfigError(f"is missing: {found.name} has a file an hour, from {known}.", argument="start")
    starts = range(start // _HOUR * _HOUR, end, _HOUR)
    return [to_text(at)[:13] for at in starts]


class Parts:
    """Row groups that were fetched, kept until they are imported, so that a fetch that was cut goes on."""

    def __init__(self, folder: Path, ranges: Ranges) -> None:
        self._folder, self._ranges = folder, ranges

    def file(self, remote: Remote, wanted: Wanted, name: str) -> Path | None:
        """A file of the wanted row groups, which has its name at the publisher; None if there are none."""
        import pyarrow.parquet as pq

        folder = _folder_of(self._folder, remote)
        others = [p for p in self._folder.glob("*/url") if p.read_text() == remote.url and p.parent != folder]
        for other in others:
            warn(f"{remote.url} has changed since a part of it was fetched; it is fetched again.", RecordingWarning)
            shutil.rmtree(other.parent)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "url").write_text(remote.url)
        needles = wanted.needles(_COLUMNS, None)
        with self._ranges.parquet(remote) as file:
            groups = [
                n
                for n in range(file.num_row_groups)
                if needles is None or may_have(file.metadata.row_group(n), needles)
            ]
            for number in groups:
                part = folder / f"{number}.parquet"
                if not part.exists():
                    new = part.with_suffix(".new")
                    pq.write_table(file.read_row_group(number), new)
                    new.rename(part)
            schema = file.schema_arrow
        if (now := self._ranges.about(remote.url)) != remote:
            shutil.rmtree(folder)
            raise ConfigError(
                f"{remote.url} changed while it was read ({remote.etag} to {now and now.etag}); run it again."
            )
        if not groups:
            return None
        whole = folder / name
        with pq.ParquetWriter(whole, schema) as out:
            for number in groups:
                out.write_table(pq.read_table(folder / f"{number}.parquet", schema=schema))
        return whole


def forget(folder: Path, remotes: list[Remote]) -> None:
    """Remove the row groups of files that were imported."""
    for remote in remotes:
        shutil.rmtree(_folder_of(folder, remote), ignore_errors=True)


def _folder_of(folder: Path, remote: Remote) -> Path:
    return folder / hashlib.sha256(f"{remote.url} {remote.etag}".encode()).hexdigest()[:24]


def fetched(
    address: str,
    hours: list[str],
    wanted: Wanted,
    folder: Path,
    imported: Mapping[str, str],
    progress: bool | None,
) -> Iterator[tuple[Remote, Path | None]]:
    """The files of hours, each with its wanted row groups; an hour that has no file is left out with a warning.

    ``folder`` keeps row groups until `forget`. Files that were ``imported`` before are known by their ETags.
    """
    ranges = Ranges()
    parts, missing = Parts(folder, ranges), list[str]()
    for hour in progress_bar(progress, iterable=hours, unit="hour"):
        remote = ranges.about(address.replace("{hour}", hour))
        if remote is None:
            missing.append(hour)
            continue
        if imported.get(remote.url, remote.etag) != remote.etag:
            warn(f"{remote.url} has changed since it was imported; it is imported again.", RecordingWarning)
        yield remote, parts.file(remote, wanted, re.sub(r"[?#].*", "", remote.url).rpartition("/")[2])
    if missing:
        warn(f"{address} has no file of {', '.join(missing[:5])}{' ...' * (len(missing) > 5)}.", RecordingWarning)
