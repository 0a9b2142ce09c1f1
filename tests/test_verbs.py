"""A measure stands in several places; each test names the place that was forgotten."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from properties import test_engine_measures, test_engines
from test_contract_names import VERBS as SIGNATURES

import marketdata as md
from marketdata import tidy
from marketdata.accessor import Accessor

ROOT = Path(__file__).resolve().parents[1]
# They have tests of their own on engines, or refuse them.
APART_ON_ENGINES = {"resample", "complement", "asof_join", "align", "check", "wide"}
PARTS = {"filled"}  # of resample


def measures() -> dict[str, str]:
    """Every function of a tidy module that takes a frame and gives one of its kind, and its module."""
    found = {}
    for info in pkgutil.iter_modules(tidy.__path__):
        module = importlib.import_module(f"{tidy.__name__}.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            if own and inspect.signature(function).return_annotation == "F" and name not in PARTS:
                found[name] = f"tidy.{info.name}"
    return found


MEASURES = measures()
OFFERED = {n for n in vars(Accessor) if not n.startswith("_") and n != "plot"}


@pytest.mark.parametrize(("name", "home"), md._MODULES.items())
def test_a_name_is_loaded_from_where_type_checkers_find_it(name: str, home: str) -> None:
    """The module that the stub names defines it, or hands it on from below."""
    found = getattr(md, name)
    assert (found.__name__ if inspect.ismodule(found) else found.__module__).startswith(home)


@pytest.mark.parametrize("name", sorted(MEASURES))
def test_a_measure_is_a_function_of_the_package(name: str) -> None:
    """A public function of `tidy` from frame to frame is also `md.<name>`."""
    home = f"marketdata.{MEASURES[name]}"
    assert md._MODULES.get(name) == home, f"marketdata/__init__.pyi: from {home} import {name} as {name}"


@pytest.mark.parametrize("name", sorted({*MEASURES, *OFFERED}))
def test_a_measure_stands_in_every_list(name: str) -> None:
    """A verb is offered by df.md, has its signature kept, runs on the engines, and is documented."""
    analytics = (ROOT / "docs" / "analytics.md").read_text(encoding="utf-8")
    reference = (ROOT / "docs" / "reference" / "frames.md").read_text(encoding="utf-8")
    engines = " ".join([*test_engine_measures.VERBS, *test_engines.VERBS]).split()
    proofs = [p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py") if p != Path(__file__)]
    said = {
        f"marketdata/accessor.py: a verb {name}": name in OFFERED,
        f"tests/test_contract_names.py: VERBS[{name!r}]": name in SIGNATURES,
        f"tests/properties/test_engine_measures.py: VERBS[{name!r}]": name in {*engines, *APART_ON_ENGINES},
        f"a test that calls md.{name}": any(re.search(rf"\bmd\.{name}\b", text) for text in proofs),
        f"docs/analytics.md: a line with `{name}`": re.search(rf"(?m)^\|.*`{name}[`(]|`md\.{name}\(", analytics),
        f"docs/reference/frames.md: .. autofunction:: {name}": f".. autofunction:: {name}\n" in reference,
    }
    left = [place for place, there in said.items() if not there]
    assert not left, "still to do: " + "; ".join(left)
