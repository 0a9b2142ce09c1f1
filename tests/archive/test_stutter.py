"""A storage that fails now and then is never taken for a fact about data; all of it: ``make soak``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shimmed(folder: Path, *command: object) -> str:
    """Run Python on a folder in a process that has the shim of ``archive.stutter`` loaded; what it printed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler makes the shim of this test")
    shim, code = folder / "stutter.so", Path(__file__).with_name("stutter.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, code, "-ldl"], check=True)
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "LD_PRELOAD": str(shim)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def stuttered(folder: Path, errnos: Sequence[str], seconds: float, step: int) -> str:
    """Run ``archive.stutter``; what it printed."""
    return shimmed(folder, "-m", "archive.stutter", folder, ",".join(errnos), seconds, step)


@pytest.mark.fault("AR38")
def test_a_call_that_fails_is_no_damage_in_any_verb(tmp_path: Path) -> None:
    """Every 797th call of the file layer fails, in each verb, each with another errno: typed, nothing given up."""
    said = stuttered(tmp_path, ["ESTALE", "EIO", "EMFILE", "ENOMEM", "EACCES", "ENOSPC"], 3600.0, 797)
    assert "ArchiveError" in said
    assert "no time" not in said


def test_of_two_that_make_an_archive_at_once_one_is_refused(tmp_path: Path) -> None:
    """Another program makes it with another base, before any of our calls: one base is stored, and no other taken."""
    code = """
import ctypes, sys
from pathlib import Path
from marketdata import testing
from marketdata.archive import Archive
from marketdata.errors import ConfigError

shim, root, taken = ctypes.CDLL(None), Path(sys.argv[1]), []
shim.stutter_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
Archive(root / "other", base="1m").add(markets=testing.markets(), prices=testing.prices())
shim.stutter_commit(str(root / "other/coverage/_delta_log/00000000000000000000.json").encode())

def accepted(place, base):
    try:
        Archive(place, base=base).add(markets=[{"market_id": "m"}])
    except ConfigError:
        return False
    return True

for n in range(1, 1000):
    place = root / str(n)
    shim.stutter_arm(str(place / "coverage").encode(), n, 0)
    taken.append("1s" if accepted(place, "1s") else "1m")
    fired = shim.stutter_fired()
    shim.stutter_arm(b"", 0, 0)
    assert [accepted(place, base) for base in ("1s", "1m")] == [taken[-1] == "1s", taken[-1] == "1m"], n
    assert len(list((place / "coverage/_delta_log").glob("*.json"))) == 1, n
    if not fired:
        break
print(*sorted(set(taken)))
"""
    assert shimmed(tmp_path, "-c", code, tmp_path) == "1m 1s"
