"""Imports point down the layers of the package, without a cycle, and only adapters know a library.

From top to bottom; a module imports its own layer and lower ones::

    cli
    marketdata/__init__            public names, loaded on first use
    service  testing  mcp
    pandas  polars                 import a library that has df.md
    simulation
    client  archive
    typing                         names of frames for annotations
    accessor
    conformance                    which interpretation of the interface a service follows
    studies                        studies of signals
    plot
    stream                         sockets: a recorder of books, and a mirror that plays an archive
    recordings                     files of others: containers, columns, formats, rebuild of books
    tidy                           functions on frames
    fetch                          requests, pacing, windows
    wire                           JSON pages to columns and back
    adapters                       frames and engines
    points                         columns and every rule on them, numpy only
    vendors                        what is known about each service
    filters                        the filters of listings
    addresses                      names in addresses of pages
    times
    decimals  clock
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
    ("clock", "decimals"),
    ("times",),
    ("addresses",),
    ("filters",),
    ("vendors",),
    ("points",),
    ("adapters",),
    ("wire",),
    ("fetch",),
    ("tidy",),
    ("recordings",),
    ("stream",),
    ("plot",),
    ("studies",),
    ("conformance",),
    ("accessor",),
    ("typing",),
    ("client", "archive"),
    ("simulation",),
    ("pandas", "polars"),
    ("service", "testing", "mcp"),
    ("marketdata",),
    ("cli",),
)
LAYER = {package: number for number, packages in enumerate(LAYERS) for package in packages}
FORBIDDEN = {
    "tidy": {"fetch"},
    "client": {"archive"},
    "archive": {"client", "fetch"},
    "service": {"client", "fetch", "accessor", "plot", "simulation"},
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


FIRST_IMPORTS = f"""
import sys
import pandas
own = pandas.__spec__.loader
before = set(sys.modules)
import marketdata
print([name for name in {HEAVY!r} if name in sys.modules.keys() - before])
import polars
print([name for name in ("marketdata.accessor", "marketdata.tidy") if name in sys.modules])
print(type(polars.__loader__) is type(polars.__spec__.loader) is type(own))
lines = {{"ts": ["2026-01-01"], "market_id": ["m"], "token_id": ["t"], "token_label": ["Yes"], "price": [0.5]}}
for kind in (pandas.DataFrame, polars.DataFrame, polars.LazyFrame):
    print("resample" in dir(kind(lines).md), kind.md is marketdata.Accessor)
"""


def test_importing_the_package_loads_nothing_heavy_and_frames_have_methods() -> None:
    """Only libraries that the user imports are loaded, before or after this package, and their frames have ``.md``."""
    done = subprocess.run([sys.executable, "-c", FIRST_IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "True", *["True True"] * 3]


TWO_COPIES = """
import sys
import marketdata
first = [sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "marketdata"]
import marketdata
import pandas
second = [sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "marketdata"]
import marketdata
import polars
for kind in (pandas.DataFrame, polars.DataFrame):
    modules = [type(finder).__module__ for finder in sys.meta_path]
    print(kind.md is marketdata.Accessor, modules.count("marketdata.adapters.registration"))
"""


def test_a_second_copy_of_the_package_takes_the_place_of_the_first() -> None:
    """A program that imports the package again, as coverage and reloaders do, imports pandas and polars as before."""
    done = subprocess.run([sys.executable, "-c", TWO_COPIES], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True 1", "True 1"]


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
