"""Imports point down the layers of the package, without a cycle, and only adapters know a library.

From top to bottom; a module imports its own layer and lower ones::

    cli
    marketdata/__init__            public names, loaded on first use
    service  testing  mcp
    pandas  polars  dask           registration of df.md
    simulation
    client  archive
    typing                         names of frames for annotations
    accessor
    conformance                    which interpretation of the interface a service follows
    studies                        studies of signals
    plot
    tidy                           functions on frames
    fetch                          requests, pacing, windows
    wire                           JSON pages to columns and back
    adapters                       frames, engines and recordings
    points                         columns and every rule on them, numpy only
    vendors                        what is known about each service
    times
    clock
    resolution  display            widths of buckets; how objects are shown
    errors                         imports nothing of ours
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "marketdata"
LAYERS = (
    ("errors",),
    ("resolution", "display"),
    ("clock",),
    ("times",),
    ("vendors",),
    ("points",),
    ("adapters",),
    ("wire",),
    ("fetch",),
    ("tidy",),
    ("plot",),
    ("studies",),
    ("conformance",),
    ("accessor",),
    ("typing",),
    ("client", "archive"),
    ("simulation",),
    ("pandas", "polars", "dask"),
    ("service", "testing", "mcp"),
    ("marketdata",),
    ("cli",),
)
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN = {
    "tidy": {"fetch"},
    "client": {"archive"},
    "archive": {"client", "fetch"},
    "service": {"client", "fetch", "accessor", "plot", "simulation", "pandas", "polars", "dask"},
}
HEAVY = ("pandas", "polars", "pyarrow", "fastapi", "deltalake", "matplotlib")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in ROOT.rglob("*.py")}


def names_imported(module: str) -> Iterator[str]:
    """Yield the names of all modules that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(PATHS[module].read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in PATHS else str(node.module)


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """The modules that each module of the package imports, those of libraries too."""
    return {module: set(names_imported(module)) - {module} for module in PATHS}


def package(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def test_imports_point_down(imports: dict[str, set[str]]) -> None:
    """Every module is in a layer, and imports nothing of a higher one and nothing forbidden to its package."""
    wrong = []
    for module, names in imports.items():
        for other in names & PATHS.keys():
            up = LAYER[package(other)] > LAYER[package(module)]
            if up or package(other) in FORBIDDEN.get(package(module), ()):
                wrong.append(f"{module} imports {other}")
    assert wrong == []


def test_there_is_no_import_cycle(imports: dict[str, set[str]]) -> None:
    """No module imports itself by way of others."""
    TopologicalSorter({module: names & PATHS.keys() for module, names in imports.items()}).prepare()


def test_importing_the_package_loads_nothing_heavy() -> None:
    """``import marketdata`` loads no frame library, no Delta Lake, no web framework and no chart library."""
    code = f"import sys, marketdata; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rules_and_functions_know_no_library(imports: dict[str, set[str]]) -> None:
    """Modules of points and tidy import the standard library, numpy and lower layers only."""
    # One function returns objects of nautilus_trader, which are no frames.
    allowed = {*sys.stdlib_module_names, "numpy", "marketdata", "nautilus_trader"}
    wrong = [
        f"{module} imports {name}"
        for module, names in imports.items()
        if package(module) in ("points", "tidy")
        for name in names
        if name.split(".")[0] not in allowed
    ]
    assert wrong == []
