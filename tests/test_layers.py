"""Layers: imports point down, without a cycle.

From top to bottom; a layer may import its own and lower ones::

    cli
    marketdata/__init__            public names, loaded on first use
    service  testing  mcp
    pandas  polars  dask           registration of df.md
    simulation
    client  archive
    typing                         names of frames for annotations
    accessor
    conformance                    which readings of the interface a service follows
    display                        how frames are shown
    plot
    tidy
    adapters                       frames, lists and engines to columns and back: the only modules that know a library
    fetch
    wire
    adapters                       formats and libraries of others as points
    points                         the data and the rules on it, numpy only
    vendors                        what is known about the services of the interface
    times
    clock                          what waiting code asks, so that tests need not wait
    resolution
    errors                         imports nothing of ours

``fetch`` never sees a frame (tidy), ``tidy`` never the network (fetch); ``client`` and ``archive`` do not import
each other; ``service`` imports archive, tidy, wire, points and lower layers only.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "marketdata"
LAYERS = (
    ("errors",),
    ("resolution",),
    ("clock",),
    ("times",),
    ("vendors",),
    ("points",),
    ("adapters",),
    ("wire",),
    ("fetch",),
    ("adapters",),
    ("tidy",),
    ("plot",),
    ("display",),
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
LAYER = {name: layer for layer, packages in enumerate(LAYERS) for name in packages}
FORBIDDEN = {
    "fetch": {"tidy"},
    "tidy": {"fetch"},
    "adapters": {"fetch"},
    "client": {"archive"},
    "archive": {"client", "fetch"},
    "service": {"client", "fetch", "accessor", "plot", "simulation", "pandas", "polars", "dask"},
}
HEAVY = ("pandas", "polars", "pyarrow", "fastapi", "deltalake", "matplotlib")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in ROOT.rglob("*.py")}


def imports(name: str) -> set[str]:
    """Our modules that a module imports, inside of functions too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} line {node.lineno}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {i if i in MODULES else str(node.module) for i in inner}
    return {i for i in found if i in MODULES} - {name}


def package(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


GRAPH = {name: imports(name) for name in MODULES}


def test_every_module_has_a_layer() -> None:
    """Every module is in a package of the list above."""
    assert {package(name) for name in MODULES} <= LAYER.keys()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_down(name: str) -> None:
    """A module imports nothing of a higher layer, and nothing that is forbidden to its package."""
    here = package(name)
    for other in (package(i) for i in GRAPH[name]):
        assert LAYER[other] <= LAYER[here], f"{name} imports {other}, of a higher layer"
        assert other not in FORBIDDEN.get(here, ()), f"{name} must not import {other}"


def test_there_is_no_import_cycle() -> None:
    """No module reaches itself over imports, those inside of functions and for types included."""
    left = {name: set(targets) for name, targets in GRAPH.items()}
    while free := [name for name, targets in left.items() if not targets & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"these modules import each other: {sorted(left)}"


def test_importing_the_package_loads_nothing_heavy() -> None:
    """``import marketdata`` loads no frame library, no Delta Lake, no web framework and no chart library."""
    code = f"import sys, marketdata; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_narwhals_is_imported_by_its_stable_name() -> None:
    """No module imports narwhals but as narwhals.stable.v2, whose names a later release keeps."""
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            moving = [n for n in names if n.split(".")[0] == "narwhals" and not n.startswith("narwhals.stable.v2")]
            assert not moving, f"{name} imports {moving}"


def test_data_and_rules_have_types() -> None:
    """No argument or result of points is of any type: what a rule takes can be read."""
    rules = {name: path for name, path in MODULES.items() if name.startswith("marketdata.points")}
    names = {
        name: {getattr(node, "id", "") for node in ast.walk(ast.parse(path.read_text("utf-8")))}
        for name, path in rules.items()
    }
    assert [name for name, found in names.items() if "Any" in found] == []


# One function writes the catalog of nautilus_trader, in its own classes.
@pytest.mark.parametrize(("layer", "more"), [("points", set()), ("tidy", {"nautilus_trader"})])
def test_rules_and_verbs_know_no_library(layer: str, more: set[str]) -> None:
    """Modules of points and tidy import the standard library, numpy and lower layers, inside of functions too."""
    allowed = {*sys.stdlib_module_names, "numpy", "marketdata", *more}
    for name, path in MODULES.items():
        if package(name) != layer:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert {n.split(".")[0] for n in names} <= allowed, f"{name} imports {names}"


def test_a_constant_number_has_its_unit_and_reason() -> None:
    """A number of a module has a comment: on its line, above it or the numbers before it, or a docstring behind it."""
    assert [f"{name}: {line}" for name, path in MODULES.items() for line in unexplained(path.read_text("utf-8"))] == []


def unexplained(text: str) -> list[str]:
    """Lines of a module that name a number without a comment."""
    lines, out = text.split("\n"), []
    body = ast.parse(text).body
    for node, after in zip_longest(body, body[1:]):
        value = getattr(node, "value", None)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or value is None or not is_number(value):
            continue
        above = node.lineno - 2
        while re.match(r"_?[A-Z0-9_, ]+ ?[:=]", lines[above]):
            above -= 1
        has_docstring = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not (has_docstring or "#" in lines[node.lineno - 1] or lines[above].startswith("#")):
            out.append(lines[node.lineno - 1])
    return out


def is_number(value: ast.expr) -> bool:
    """Whether an expression is of numbers alone."""
    parts = [part for part in ast.walk(value) if not isinstance(part, ast.operator | ast.unaryop | ast.expr_context)]
    numbers = [part for part in parts if isinstance(part, ast.Constant) and type(part.value) in (int, float)]
    rest = [part for part in parts if part not in numbers]
    return bool(numbers) and all(isinstance(part, ast.BinOp | ast.UnaryOp | ast.Tuple | ast.Name) for part in rest)


def test_a_number_without_a_comment_is_found() -> None:
    """The check sees a number that nobody explains, and no number that somebody does."""
    assert unexplained("A = 1\n") == ["A = 1"]
    assert unexplained("# Rows.\nA = 1\nB = 2 * A\nC = 3  # s\n\nD = 4\n") == ["D = 4"]
