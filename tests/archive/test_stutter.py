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


def stuttered(folder: Path, errnos: Sequence[str], seconds: float, step: int) -> str:
    """Run ``archive.stutter`` in a process that has its shim loaded; what it printed."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a C compiler makes the shim of this test")
    shim, code = folder / "stutter.so", Path(__file__).with_name("stutter.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, code, "-ldl"], check=True)
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "LD_PRELOAD": str(shim)
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "archive.stutter", folder, ",".join(errnos), str(seconds), str(step)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.fault("AR38")
def test_a_call_that_fails_is_no_damage_in_any_verb(tmp_path: Path) -> None:
    """Every 797th call of the file layer fails, in each verb, each with another errno: typed, nothing given up."""
    said = stuttered(tmp_path, ["ESTALE", "EIO", "EMFILE", "ENOMEM", "EACCES", "ENOSPC"], 3600.0, 797)
    assert "ArchiveError" in said
    assert "no time" not in said
