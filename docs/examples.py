"""Runs the Python blocks and cells of a page: in order, sharing their names, printing what the page says."""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

_LINES = re.MULTILINE | re.DOTALL
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def blocks(text: str) -> list[str]:
    """The Python blocks and cells of a page, without the options of a cell."""
    fenced = re.findall(r"^( *)```(?:python|\{code-cell\}[^\n]*)\n((?: *:[\w-]+:[^\n]*\n)*)(.*?)^ *```", text, _LINES)
    return [re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, _, block in fenced]


def has_what_it_needs(block: str) -> bool:
    """Whether the packages and programs in a first line such as ``# needs: pyspark, java`` are installed."""
    first = re.match(r"(?:>>> )?# needs: (.+)", block)
    names = first[1].split(", ") if first else []
    return all(shutil.which(n) if n == "java" else importlib.util.find_spec(n) for n in names)


def run(text: str, title: str) -> None:
    """Run every block, in an empty folder.

    Raises
    ------
    AssertionError
        If a block prints something else than the page shows. Other errors of a block pass through.
    """
    space: dict[str, object] = {}
    here = Path.cwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, here)
        stack.callback(_close_charts)
        os.chdir(folder)
        for number, block in enumerate(blocks(text)):
            name = f"{title} block {number + 1}"
            if not has_what_it_needs(block):
                continue
            if ">>>" not in block:
                exec(compile(block, name, "exec"), space)  # noqa: S102  the documentation is ours
                continue
            example = doctest.DocTestParser().get_doctest(block, space, name, title, 0)
            said: list[str] = []
            runner = doctest.DocTestRunner(optionflags=OPTIONS)
            runner.run(example, out=said.append, clear_globs=False)
            if runner.failures:
                raise AssertionError("".join(said))
            space = example.globs


def _close_charts() -> None:
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
