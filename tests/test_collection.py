"""How this project's own rules of collecting tests work: each rule is shown by a run of pytest in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from reference.clocks import SOON

ROOT = Path(__file__).resolve().parents[1]


def collected(tmp_path: Path, *words: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """A run of pytest in an interpreter that lacks a package."""
    # None in sys.modules is how the import system marks a module that is not to be found.
    lines = ["import sys, pytest", "sys.modules.update(dict.fromkeys(sys.argv[1].split()))"]
    lines.append("sys.exit(pytest.main(sys.argv[2:]))")
    plugins = ("-p", "pytest_socket", "-p", "conftest")
    always = ("-q", "-rs", "-c", ROOT / "pyproject.toml", *plugins, "-o", f"cache_dir={tmp_path}")
    run = [sys.executable, "-c", "\n".join(lines), without, *always, *words]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of other packages take most of a start
    return subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SOON, check=False)


def test_a_module_whose_engine_is_absent_is_skipped_by_name(tmp_path: Path) -> None:
    """Without Dask its module is no error of collection: it is skipped, with the command that installs the engine."""
    for where in ("marketdata/dask.py", "marketdata"):  # named, and found
        done = collected(tmp_path, "-k", "resolution", where, without="dask")
        assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        assert "marketdata/dask.py:0: dask is not installed: pip install 'prediction-marketdata[dask]'" in done.stdout
        assert (tmp_path / "d" / "skipped" / "tests").read_text() == "marketdata/dask.py\n"


def test_any_other_failed_import_is_an_error(tmp_path: Path) -> None:
    """A module that lacks what every installation has, what nothing brings, or a module of ours is not passed over."""
    packages = ("tqdm", "no_such_package", "marketdata.no_such_module")
    for number, package in enumerate(packages):
        (tmp_path / f"test_{number}.py").write_text(f"import {package}\n")
    done = collected(tmp_path, str(tmp_path), without=" ".join(packages))
    assert done.returncode == pytest.ExitCode.INTERRUPTED
    assert all(f"import {package}" in done.stdout for package in packages)
    assert "3 errors" in done.stdout


def test_a_test_is_found_by_the_row_it_proves(tmp_path: Path) -> None:
    """``-k`` finds a test by the row of the fault matrix in its marker."""
    module = tmp_path / "test_it.py"
    module.write_text(
        "import pytest\n@pytest.mark.fault('X98', 'X99')\ndef test_a():\n    pass\ndef test_b():\n    pass\n"
    )
    done = collected(tmp_path, "-k", "X99", str(module))
    assert "1 passed, 1 deselected" in done.stdout


def test_what_a_run_skipped_can_be_run_again(tmp_path: Path) -> None:
    """Each test that skipped, and no other, stands in the file that the next run takes its tests from."""
    module = tmp_path / "test_it.py"
    module.write_text("import pytest\ndef test_a():\n    pass\ndef test_b():\n    pytest.skip('why')\n")
    names = tmp_path / "d" / "skipped" / "tests"
    first = collected(tmp_path, "--rootdir", str(tmp_path), str(module))
    assert "1 passed, 1 skipped" in first.stdout
    assert names.read_text() == "test_it.py::test_b\n"
