"""Run the test suite several times in a row, idle and then with every core busy; stop at the first failure."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator

SUITE = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal"]
BUSY = [sys.executable, "-c", "while True: pass"]


@contextlib.contextmanager
def every_core(*, busy: bool) -> Iterator[None]:
    """Keep each core busy with a process that does nothing else."""
    loads = [subprocess.Popen(BUSY) for _ in range(os.cpu_count() or 1)] if busy else []
    try:
        yield
    finally:
        for load in loads:
            load.kill()
            load.wait()


def main(runs: int) -> int:
    """Return the exit code of the first run that fails, 0 if none does."""
    for busy in (False, True):
        for number in range(1, runs + 1):
            began = time.monotonic()
            with every_core(busy=busy):
                done = subprocess.run(SUITE, capture_output=True, text=True, check=False)
            last = done.stdout.strip().rpartition("\n")[2]
            state = "busy" if busy else "idle"
            print(f"{state} {number} of {runs}: {last} ({time.monotonic() - began:.0f} s)", flush=True)
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n", flush=True)
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
