"""Every public name, or a sibling that it names, says what it takes and gives, with an example; doctest runs it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import marketdata as md
from marketdata import plot, testing
from marketdata.accessor import Plots
from marketdata.testing import fixtures, strategies

SEE = re.compile(r"\b(?:[Ss]ee|[Aa]s)(?:\s+for)?\s+`([\w.]+)`")
GIVES = re.compile(r"\b[Oo]ne row per\b|\bReturns\b|\bYields\b|^Strategy of\b", re.MULTILINE)
# The frame that a verb is about: its summary says which kinds.
CLEAR = {"frame"}
POINTER = re.compile(r"; see `marketdata\.([\w.]+)`\.$")


def members(cls: type, name: str) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, inherited ones too."""
    for member in dir(cls):
        one = inspect.getattr_static(cls, member)
        if not member.startswith("_") and isinstance(one, property | staticmethod | classmethod | type(members)):
            yield f"{name}.{member}", one


def functions(module: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module; strategies that take nothing are values, not functions."""
    for member in module.__all__:
        if callable(one := getattr(module, member)):
            yield f"{name}.{member}", one


FACE = dict(functions(md, "md"))
# An error or warning is raised by the library, never made by a user: its one line and its attributes say all.
ERRORS = {name for name, one in FACE.items() if isinstance(one, type) and issubclass(one, Exception)}
FULL = {
    **{name: one for name, one in FACE.items() if name not in ERRORS},
    **dict(members(md.Client, "md.Client")),
    **dict(members(md.Archive, "md.Archive")),
    **dict(functions(plot, "md.plot")),
    **dict(functions(testing, "md.testing")),
    **dict(functions(strategies, "md.testing.strategies")),
}
# A verb of df.md is a door of one line to a function that says all; it names that function and takes the same.
DOORS = {**dict(members(md.Accessor, "df.md")), **dict(members(Plots, "df.md.plot"))}
# Not made by a call of a user, so nothing is taken: an enum is read with ``of``.
TAKES_NOTHING = {"md.Resolution", "md.Report"}


def parameters(one: Any) -> list[str]:
    if isinstance(one, property):
        return []
    function = one.__func__ if isinstance(one, staticmethod | classmethod) else one
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def gives(one: Any) -> bool:
    """Whether a call returns something; a property says what it is in its first line."""
    if isinstance(one, property | type):
        return False
    function = one.__func__ if isinstance(one, staticmethod | classmethod) else one
    return inspect.signature(function).return_annotation not in (None, "None")


def told(name: str, one: Any) -> str:
    """The docstring, and behind it those of the siblings that it sends to: "see `books`", "as for `brier`"."""
    texts: dict[str, str] = {}
    waiting = {name: one}
    while waiting:
        here, one = waiting.popitem()
        texts[here] = inspect.getdoc(one) or ""
        found = (sibling(here, other) for other in SEE.findall(texts[here]))
        waiting |= {other: FULL[other] for other in found if other is not None and other not in texts}
    return "\n".join(texts.values())


def sibling(name: str, other: str) -> str | None:
    """The full name of what a docstring calls ``other``: looked up beside the name, then above."""
    if other.startswith("marketdata."):
        return other.replace("marketdata", "md") if other.replace("marketdata", "md") in FULL else None
    parts = name.split(".")
    places = (".".join([*parts[:depth], other]) for depth in range(len(parts) - 1, 0, -1))
    return next((place for place in places if place in FULL and place != name), None)


def lacks(name: str, one: Any) -> list[str]:
    """What a public name should say, and does not: what a sibling says is not repeated, but the sibling is named."""
    text = told(name, one)
    missing = []
    if not (inspect.getdoc(one) or "").split("\n")[0].endswith("."):
        missing.append("a first line that is a sentence")
    if name not in TAKES_NOTHING:
        taken = (p for p in parameters(one) if p not in CLEAR)
        missing += [f"parameter {p}" for p in taken if not re.search(rf"\b{p}\b", text)]
    if gives(one) and not GIVES.search(text):
        missing.append("what is returned")
    if ">>> " not in text:
        missing.append("an example")
    return missing


@pytest.mark.parametrize("name", sorted(FULL))
def test_a_public_name_says_what_it_takes_and_gives_and_shows_an_example(name: str) -> None:
    """A sentence, every parameter, what comes back, and an example; each here or in a sibling that it names."""
    assert lacks(name, FULL[name]) == []


def test_no_public_name_repeats_what_another_says() -> None:
    """A fact, argument or example of more than 60 characters is in one docstring only; the others name it."""
    said: dict[str, str] = {}
    repeated = []
    for name, one in {**FULL, **{name: FACE[name] for name in ERRORS}}.items():
        text = inspect.getdoc(one) or ""
        entries = (" ".join(entry.split()) for entry in re.split(r"\n\s*\n|\n(?=\S[^\n]* : )", text))
        for entry in {entry for entry in entries if len(entry) > 60}:
            first = said.setdefault(entry, name)
            if first != name and FULL.get(first) is not one:
                repeated.append(f"{name} repeats {first}: {entry[:60]}")
    assert repeated == []


def test_no_example_makes_a_service() -> None:
    """Only the function that makes services shows how; every other example gets a client or a frame."""
    shown = {
        name for name, one in FULL.items() if re.search(r"^>>> .*\bserve\(", inspect.getdoc(one) or "", re.MULTILINE)
    }
    assert shown == {"md.serve"}


@pytest.mark.parametrize("name", sorted(DOORS))
def test_a_verb_of_a_frame_names_the_function_that_says_all(name: str) -> None:
    """A verb of ``df.md`` names a function of which all is said; `test_verbs` compares what they take."""
    door = DOORS[name]
    if name == "df.md.plot":
        assert inspect.getdoc(door)
        return
    found = POINTER.search(inspect.getdoc(door) or "")
    assert found, "the line ends with: see `marketdata.<function>`."
    assert f"md.{found[1]}" in FULL
    assert found[1].rpartition(".")[2] == name.rpartition(".")[2]


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_says_what_happened(name: str) -> None:
    """An error is a sentence, and each attribute that it adds is named."""
    error = FACE[name]
    text = inspect.getdoc(error) or ""
    assert text.split("\n")[0].endswith(".")
    assert [one for one in getattr(error, "__annotations__", {}) if not re.search(rf"\b{one}\b", text)] == []


@pytest.mark.parametrize("name", fixtures.__all__)
def test_a_fixture_says_what_it_is(name: str) -> None:
    """A fixture is a sentence: pytest calls it, so there is nothing to take and no example outside of a test."""
    assert (getattr(fixtures, name).__doc__ or "").split("\n")[0].endswith(".")


def test_a_docstring_that_lost_a_part_is_found() -> None:
    """The check sees an example, a parameter or the answer go: each is taken from a docstring that has all."""
    whole = inspect.getdoc(md.overround) or ""

    def overround(frame: Any, *, tokens: Any = None) -> Any:
        """Replaced below."""

    for part, lost in ((">>> ", "an example"), ("tokens", "parameter tokens"), ("One row per", "what is returned")):
        overround.__doc__ = whole.replace(part, "")
        assert lost in lacks("md.overround", overround)
    overround.__doc__ = whole
    assert lacks("md.overround", overround) == []


def test_a_sibling_that_is_named_says_the_rest() -> None:
    """What "see `brier`" leaves to a sibling counts as said; a name that is none of ours says nothing."""

    def twin(frame: Any, outcomes: Any) -> Any:
        """A sentence; see `brier`."""

    assert lacks("md.twin", twin) == []
    twin.__doc__ = "A sentence; see `nothing`."
    assert lacks("md.twin", twin) == ["parameter outcomes", "what is returned", "an example"]
