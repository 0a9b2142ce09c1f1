"""Run the test suite several times in a row, alone and then two at a time, so cores are busy; stop at a failure."""

from __future__ import annotations

import subprocess
import sys
import time

SUITE = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "worksteal"]
SIDE_BY_SIDE = {"idle": 1, "busy": 2}


def main(runs: int) -> int:
    """Return 1 if a run fails, 0 if none does."""
    for state, at_once in SIDE_BY_SIDE.items():
        for first in range(1, runs + 1, at_once):
            numbers = range(first, min(first + at_once, runs + 1))
            began = time.monotonic()
            suites = [subprocess.Popen(SUITE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                      for _ in numbers]  # fmt: skip
            outputs = [suite.communicate()[0] for suite in suites]
            for number, output in zip(numbers, outputs, strict=True):
                last = output.strip().rpartition("\n")[2]
                print(f"{state} {number} of {runs}: {last} ({time.monotonic() - began:.0f} s)", flush=True)
            if failed := [output for suite, output in zip(suites, outputs, strict=True) if suite.returncode]:
                print(*failed, sep="\n", flush=True)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
