"""Answers that several threads read at once, from the first one on."""

from __future__ import annotations

import subprocess
import sys

# While msgspec learns a type, it evaluates the annotations of those inside: long enough for other threads to come.
READERS = """
import threading, time
import msgspec
from marketdata.wire.decode import convert

def slow():
    time.sleep(0.2)
    return int

class Inner(msgspec.Struct):
    a: "slow()"

class Outer(msgspec.Struct):
    inner: Inner
    b: int

def read():
    out.append(convert([{"inner": {"a": 1}, "b": "2"}], list[Outer], "It"))

out = []
threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads:
    thread.start()
    time.sleep(0.01)
for thread in threads:
    thread.join()
print(len(out), {(one.inner.a, one.b) for [one] in out})
"""


def test_threads_may_read_the_first_answers_of_a_kind_at_once() -> None:
    """None of them ends the process, and all read the same."""
    done = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "6 {(1, 2)}\n"), done.stderr[-500:]
