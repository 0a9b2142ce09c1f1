"""Commands run in this process."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import subprocess
import warnings
from pathlib import Path

import pytest
import typer.main

from marketdata.cli import main

# Typer builds all commands for each call, which takes longer than most of them.
get_command = functools.cache(typer.main.get_command)
KEY_NAMES = ("MARKETDATA_BASE_URL", "MARKETDATA_API_KEY")


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_command(
    words: tuple[object, ...], cwd: Path, env: dict[str, str], stream: type[io.StringIO]
) -> subprocess.CompletedProcess[str]:
    """A command in this process, which saves the imports of a new one."""
    out, err = stream(), stream()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")  # as in a process of a user
        patch.chdir(cwd)
        patch.setattr("typer.main.get_command", get_command)
        for name in KEY_NAMES:
            patch.delenv(name, raising=False)
        for name, value in env.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(word) for word in words])
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def marketdata(*words: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The output of a command in a pipe."""
    return run_command(words, cwd, env, io.StringIO)


def terminal(*words: object, cwd: Path, **env: str) -> str:
    """The output of a command in a terminal, then its messages."""
    done = run_command(words, cwd, {"TERM": "dumb", "COLUMNS": "200", "LINES": "40", **env}, Screen)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of CSV."""
    return list(csv.DictReader(io.StringIO(text)))
