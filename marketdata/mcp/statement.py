"""A SQL statement in a process of its own: one that takes all memory, or ends its process, ends no server."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marketdata.errors import ConfigError, MarketDataError

if TYPE_CHECKING:
    import polars as pl

DUCKDB_MEMORY = "2GB"  # the machine runs the program that asks, too
# DuckDB does not count a value that is made at once, such as range(500000000).
PROCESS_MEMORY = 4_000_000_000  # beside what the process has before the statement [B]
MOST_BYTES = 10_000_000  # of an answer: one cell of a statement may have more than a program can read
_POLL = 0.05  # between looks at the event that stops a statement [s]


def rows_of(archive: Any, statement: str, max_rows: int, stop: threading.Event) -> pl.DataFrame:
    """The first rows of a statement; ConfigError if it is refused, stopped, or needs more memory than it may have."""
    import polars as pl

    limits = (DUCKDB_MEMORY, PROCESS_MEMORY, MOST_BYTES)
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    # A file and no pipe: Python forgets what it has not written to a pipe when a wait ends.
    with tempfile.TemporaryFile() as body:
        pickle.dump((archive, statement, max_rows, limits), body)
        body.seek(0)
        process = subprocess.Popen(  # noqa: S603 our own command
            command, stdin=body, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    with process:
        while True:
            try:
                answer, _ = process.communicate(timeout=_POLL)
                break
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    process.kill()
                    raise ConfigError("The statement was stopped before its end.") from None
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        hint = "Ask for fewer rows or groups."
        raise ConfigError("The statement needs too much memory: its process ended.", hint=hint)
    result = pickle.loads(answer)  # noqa: S301 our own process
    if isinstance(result, MarketDataError):
        raise result
    return pl.read_ipc_stream(result)


def main() -> None:
    """Read a statement from standard input, and write its rows, or its error, to standard output."""
    import pyarrow as pa

    archive, statement, max_rows, (duckdb_memory, process_memory, most_bytes) = pickle.load(sys.stdin.buffer)  # noqa: S301
    _bound_memory(process_memory)
    result: Any
    try:
        rows = archive.sql(statement, max_rows=max_rows, memory_limit=duckdb_memory).to_arrow()
        if rows.nbytes > most_bytes:
            raise ConfigError(
                f"The answer has {rows.nbytes:,} bytes; at most {most_bytes:,} are allowed: ask for less."
            )
        with pa.BufferOutputStream() as body, pa.ipc.new_stream(body, rows.schema) as stream:
            stream.write_table(rows)
        result = body.getvalue().to_pybytes()
    except MarketDataError as problem:
        problem.__cause__ = None  # the error of a library may not be read elsewhere
        result = problem
    except MemoryError:
        sys.exit(1)
    sys.stdout.buffer.write(pickle.dumps(result))


def _bound_memory(more: int) -> None:
    """Refuse this process more memory than it has now; only Linux can."""
    if sys.platform == "linux":
        import resource

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        others = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min([used + more, *others]),) * 2)
