"""Every public name says what it takes and what it gives, with an example, or names a sibling that does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import marketdata as md
from marketdata import plot, testing
from marketdata.testing import fixtures, strategies

SEE = re.compile(r"\b(?:[Ss]ee|[Aa]s)(?:\s+for)?\s+`([\w.]+)`")
GIVES = re.compile(r"\b[Oo]ne row per\b|\bReturns?\b|\bYields?\b|^Strategy of\b", re.MULTILINE)
# Users read these; they do not call them.
NOT_CALLED = {"md.Report", "md.Resolution", "md.Study"}


def members(cls: type, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class, inherited ones too."""
    for member in dir(cls):
        method = inspect.getattr_static(cls, member)
        if not member.startswith("_") and isinstance(method, property | staticmethod | classmethod | type(members)):
            yield f"{name}.{member}", method


def functions(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes of a module."""
    for member in module.__all__:
        if callable(function := getattr(module, member)):
            yield f"{name}.{member}", function


TOP = dict(functions(md, "md"))
ERRORS = {
    f"md.{name}": cls for name, cls in vars(md.errors).items() if inspect.isclass(cls) and issubclass(cls, Exception)
}
DOCUMENTED = {
    **{name: function for name, function in TOP.items() if name not in ERRORS},
    **dict(members(md.Client, "md.Client")),
    **dict(members(md.Archive, "md.Archive")),
    **dict(functions(plot, "md.plot")),
    **dict(functions(testing, "md.testing")),
    **dict(functions(strategies, "md.testing.strategies")),
}
METHODS = dict(members(md.Accessor, "df.md"))


def parameters(function: Any) -> list[str]:
    if isinstance(function, property):
        return []
    function = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "frame")]


def returns_something(function: Any) -> bool:
    if isinstance(function, property | type):
        return False
    function = function.__func__ if isinstance(function, staticmethod | classmethod) else function
    return inspect.signature(function).return_annotation not in (None, "None")


def sibling(name: str, other: str) -> str | None:
    """Return the full name of what a docstring calls ``other``: looked up beside the name, then above."""
    if other.startswith("marketdata."):
        return other.replace("marketdata", "md") if other.replace("marketdata", "md") in DOCUMENTED else None
    parts = name.split(".")
    places = (".".join([*parts[:depth], other]) for depth in range(len(parts) - 1, 0, -1))
    return next((place for place in places if place in DOCUMENTED and place != name), None)


def full_text(name: str, function: Any) -> str:
    """Return the docstring and the docstrings of siblings that it names: "see `books`", "as for `brier`"."""
    texts: dict[str, str] = {}
    waiting = {name: function}
    while waiting:
        current, function = waiting.popitem()
        texts[current] = inspect.getdoc(function) or ""
        for other in SEE.findall(texts[current]):
            if (full_name := sibling(current, other)) and full_name not in texts:
                waiting[full_name] = DOCUMENTED[full_name]
    return "\n".join(texts.values())


def missing_parts(name: str, function: Any) -> list[str]:
    """Return what a docstring should say and does not."""
    text = full_text(name, function)
    missing = []
    if not (inspect.getdoc(function) or "").split("\n")[0].endswith("."):
        missing.append("a first line that is a sentence")
    if name not in NOT_CALLED:
        missing += [f"parameter {p}" for p in parameters(function) if not re.search(rf"\b{p}\b", text)]
    if returns_something(function) and not GIVES.search(text):
        missing.append("what is returned")
    if ">>> " not in text:
        missing.append("an example")
    return missing


def test_public_names_say_what_they_take_and_give_with_an_example() -> None:
    """A sentence, every parameter, what is returned, and an example: here or in a sibling that is named."""
    missing = {name: missing_parts(name, function) for name, function in DOCUMENTED.items()}
    assert {name: parts for name, parts in missing.items() if parts} == {}


def test_a_docstring_that_lost_a_part_is_noticed() -> None:
    """The check above notices a missing example, parameter or result."""
    complete = inspect.getdoc(md.overround) or ""

    def overround(frame: Any, *, tokens: Any = None) -> Any:
        """Replaced below."""

    parts = {">>> ": "an example", "tokens": "parameter tokens", "One row per|Returns": "what is returned"}
    for part, lost in parts.items():
        overround.__doc__ = re.sub(part, "", complete)
        assert lost in missing_parts("md.overround", overround)


def test_methods_of_a_frame_name_the_function_that_is_documented() -> None:
    """The docstring of a method of df.md is the whole one of its function, and ends with the name of that."""
    wrong = []
    for name, method in METHODS.items():
        pointer = re.search(r"see `marketdata\.([\w.]+)`\.$", inspect.getdoc(method) or "")
        if name in ("df.md.plot", "df.md.report"):
            continue
        function = pointer and DOCUMENTED.get(f"md.{pointer[1]}")
        if not (function and (inspect.getdoc(method) or "").startswith(inspect.getdoc(function) or "?")):
            wrong.append(name)
    assert wrong == []


def test_errors_and_fixtures_begin_with_a_sentence() -> None:
    """An error says what happened and names each attribute that it adds; a fixture says what it is."""
    texts = {name: inspect.getdoc(cls) or "" for name, cls in ERRORS.items()}
    texts |= {name: getattr(fixtures, name).__doc__ or "" for name in fixtures.__all__}
    assert [name for name, text in texts.items() if not text.split("\n")[0].endswith(".")] == []
    unnamed = {
        name: [a for a in getattr(cls, "__annotations__", {}) if not re.search(rf"\b{a}\b", texts[name])]
        for name, cls in ERRORS.items()
    }
    assert {name: attributes for name, attributes in unnamed.items() if attributes} == {}
