"""A service in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sys
from marketdata.archive import Archive
from marketdata.service import connections, run, workers
# A machine that is busy may need longer to finish answers than a service waits for them.
longer = "from marketdata.service import connections, workers; connections.GRACE_SECONDS = workers.GRACE_SECONDS = 600"
exec(longer)
workers._PROGRAM = workers._PROGRAM.replace("from marketdata", f"{longer}; from marketdata")
run(Archive(sys.argv[1]), port=0, say=lambda line: print(line, flush=True), **json.loads(sys.argv[2]))
"""


@contextlib.contextmanager
def process(path: Path, **options: Any) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process, its address, and the key that it made (none where keys are among the options)."""
    command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            said = running.stdout.readline()
            assert said, running.communicate()[1]
            url = said.split()[-1]
            yield running, url, "" if "keys" in options else running.stdout.readline().split()[-1]
        finally:
            running.kill()
