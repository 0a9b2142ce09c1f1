"""The two ways of a commit: in a folder a file of the log that is linked to its name, elsewhere the library's own."""

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

# The protocol that our tables need of readers and writers: the first one with metadata of columns.
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

    ``data_change``: whether rows come or go, so that who follows the table as a stream reads no row again. A name is
    linked to a file once, whoever else tries: as the storage library does it, but without its listings and reads of the
    log, and durable before it is seen. Its name is durable once the folder is flushed.
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


def library_commit(
    handle: Any, adds: Iterable[DataFile], drops: Iterable[DataFile], info: Mapping[str, str], *, data_change: bool
) -> None:
    """As `link_commit`, after the version of a handle; an error of the library, or of the storage, if it is refused."""
    from deltalake import PostCommitHookProperties
    from deltalake.transaction import AddAction, RemoveAction

    now = int(time.time() * 1000)
    actions: list[Any] = [AddAction(f.path, f.size, {}, now, data_change, statistics(f)) for f in adds]
    actions += [RemoveAction(f.path, data_change, now, f.size, {}) for f in drops]
    # A failure of the library's hooks would look like one of the commit.
    hooks = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    handle.create_write_transaction(
        actions, "append", handle.schema(), commit_properties=properties(info), post_commithook_properties=hooks
    )


def properties(info: Mapping[str, str]) -> Any:
    """Properties of a commit by the library, which tries once: another attempt would be on a newer version."""
    from deltalake import CommitProperties

    return CommitProperties(custom_metadata=dict(info), max_commit_retries=0)
