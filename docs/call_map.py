"""The map of the code as a page: where each public function and method is, and which modules a call of it runs through.

The examples of the docstrings are run and watched, so the page says what happens, and not what somebody once wrote.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import inspect
import io
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import marketdata as md

PACKAGE = Path(md.__file__).parent
# Whatever is read or checked on the way to everything says nothing about a call.
_EVERYWHERE = {
    "errors.py",
    "clock.py",
    "times.py",
    "resolution.py",
    "typing.py",
    "display.py",
    "points/arguments.py",
    "accessor.py",
}
# What opens the frame of every verb.
_FRAMES = {f"tidy/{name}.py" for name in ("backends", "schema", "table", "normalization", "runs")} | {
    "points/columns.py"
}
# A market fetched from a local service, once each way; the service runs in this process.
_SERVED = """
import tempfile, marketdata as md
archive = md.simulate(events=1, days=0.2, markets=1)
market = archive.records("markets")[0]["slug"]
span = ("2025-12-31T20:00", "2026-01-01")
mine = md.Archive(tempfile.mkdtemp())
service = md.serve(archive)
client = md.Client(service.base_url, service.api_key)
"""
_CALLS = {
    "Client.books": "client.books(market, *span)",
    "Client.markets": "client.markets()",
    "Client.plan": "client.plan('books', market, *span)",
    "Client.verify": "client.verify(market, *span)",
    "Archive.pull": "mine.pull(client, market, start=span[0], end=span[1])",
    "Archive.books": "archive.books(market, *span)",
    "Archive.scan": "archive.scan('books', market)",
    "Archive.sql": "archive.sql('select count(*) from prices')",
    "Archive.add": "mine.add(prices=md.testing.prices())",
    "Archive.verify": "mine.verify()",
    "Archive.compact": "mine.compact()",
    "Archive.coverage": "mine.coverage()",
}


def _module(path: str) -> str | None:
    """The file below the package, if it is one that tells something."""
    if not path.startswith(str(PACKAGE)):
        return None
    name = Path(path).relative_to(PACKAGE).as_posix()
    return None if name in _EVERYWHERE or name.endswith("__init__.py") else name


class _Watch:
    """Notes the modules that run between the call of a function and its return, in the order of their first call."""

    def __init__(self, code: CodeType) -> None:
        self.code, self.inside, self.seen = code, 0, dict[str, None]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if frame.f_code is self.code:
            self.inside += {"call": 1, "return": -1}.get(event, 0)
        if event == "call" and self.inside > 0 and (name := _module(frame.f_code.co_filename)):
            self.seen.setdefault(name)


@contextlib.contextmanager
def _watched(function: Callable[..., Any]) -> Iterator[_Watch]:
    watch = _Watch(inspect.unwrap(function).__code__)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _run_examples(function: Callable[..., Any]) -> list[str]:
    """The modules behind a function, by the examples of its docstring."""
    space: dict[str, Any] = {"md": md, **vars(sys.modules[function.__module__])}
    with _watched(function) as watch, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
            with contextlib.suppress(Exception):  # an example may show a refusal
                exec(compile(example.source, "example", "single"), space)  # noqa: S102  the examples are ours
    return list(watch.seen)


def _run_calls() -> dict[str, list[str]]:
    space: dict[str, Any] = {}
    exec(_SERVED, space)  # noqa: S102
    out = {}
    try:
        for name, call in _CALLS.items():
            owner, method = name.split(".")
            with _watched(getattr(getattr(md, owner), method)) as watch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(call, space)  # noqa: S102
            others = ("service/", "archive/") if owner == "Client" else ("service/",)
            out[name] = [one for one in watch.seen if not one.startswith(others)]
    finally:
        space["client"].close()
        space["service"].close()
    return out


def routes() -> dict[str, tuple[str, list[str]]]:
    """Module of each public function and of some methods, and the modules that a call runs through."""
    out = {}
    for name, passed in _run_calls().items():
        function = getattr(getattr(md, name.split(".")[0]), name.split(".")[1])
        out[name] = _module(function.__code__.co_filename) or "", passed
    for name in md.__all__:
        one = getattr(md, name)
        if inspect.isfunction(one):
            home = Path(inspect.unwrap(one).__code__.co_filename).relative_to(PACKAGE).as_posix()
            passed = _run_examples(one)
            out[name] = home, [one for one in passed if one not in _FRAMES] if home.startswith("tidy/") else passed
    return out


def page() -> str:
    """The page as Markdown."""
    lines = ["| call | is in | runs through |", "|---|---|---|"]
    for name, (home, passed) in routes().items():
        then = _by_folder(one for one in passed if one != home)
        lines.append(f"| {{py:obj}}`{name} <marketdata.{name}>` | `{home}` | {then} |")
    parts = ["\n".join(lines)]
    files: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        # Read, not imported: the library of some modules is not everywhere.
        doc = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
        if doc and path.name != "__main__.py":
            files.setdefault(name.rpartition("/")[0] or "marketdata", []).append(f"| `{name}` | {doc} |")
    for folder, rows in files.items():
        parts.append("\n".join([f"### {folder}", "", "| module | |", "|---|---|", *rows]))
    return _HEAD + parts[0] + "\n\n## Modules\n\n" + "\n\n".join(parts[1:]) + "\n"


def _by_folder(modules: Iterable[str]) -> str:
    folders: dict[str, list[str]] = {}
    for module in modules:
        folder, _, name = module.removesuffix(".py").partition("/")
        folders.setdefault(folder, []).append(name)
    return "; ".join(f"**{folder}** {', '.join(filter(None, names))}".strip() for folder, names in folders.items())


_HEAD = """(call-map)=
# Map of the code

Where each public call is, and the modules that it runs through, layer by layer in the order in which
they are entered. Written when
these pages are built, by running the examples of the docstrings, and a local service for the methods of the client.
What is used by everything (errors, times, resolutions) is left out. The frame of every verb of `tidy` is opened by
`tidy/backends`, `schema`, `table`, `normalization` and `runs`, which its row does not repeat.

"""


if __name__ == "__main__":
    sys.stdout.write(page())
