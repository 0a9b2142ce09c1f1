"""A commit of a table in a folder, as a file of its log that appears whole, or not at all."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from marketdata.archive.storage.parquet import DataFile, statistics

# What tables of ours need of who writes to them: nothing beyond the first protocol with columns' metadata.
_PROTOCOL = (1, 2)


def is_plain(handle: Any) -> bool:
    """Whether a commit of new and dropped files is all that a table asks of its writers.

    Another program may have set a later protocol, or a property that forbids to drop files.
    """
    protocol = handle.protocol()
    found = (protocol.min_reader_version, protocol.min_writer_version)
    return found == _PROTOCOL and not handle.metadata().configuration


def link_commit(
    log: Path,
    number: int,
    adds: Iterable[DataFile],
    drops: Iterable[DataFile],
    info: Mapping[str, str],
    *,
    data_change: bool,
) -> None:
    """Make the commit of this number; FileExistsError if there is one already.

    A name is linked to a file once, whoever else tries: as the storage library does it, but without its listings and
    reads of the log, and durable before it is seen. Its name is durable once the folder is flushed.
    """
    now = int(time.time() * 1000)
    operation = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}}
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": now, **operation, "engineInfo": "marketdata", **info}}
    ]
    actions += [{"remove": {**_named(f), "deletionTimestamp": now, "dataChange": data_change}} for f in drops]
    actions += [
        {"add": {**_named(f), "modificationTime": now, "dataChange": data_change, "stats": statistics(f)}} for f in adds
    ]
    body = "\n".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) for action in actions).encode()
    made = log / f"{number:020d}.json#{uuid.uuid4().hex}"
    try:
        with made.open("xb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.link(made, log / f"{number:020d}.json")
    finally:
        made.unlink(missing_ok=True)


def _named(file: DataFile) -> dict[str, Any]:
    return {"path": quote(file.path), "partitionValues": {}, "size": file.size}
