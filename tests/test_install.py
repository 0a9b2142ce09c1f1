"""The name of the distribution, and the packages of the extra `all`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import marketdata as md

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
TEXTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "conftest.py", ".ci/run")),
    *(
        path
        for folder in ("marketdata", "docs", "notebooks", "tests")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".pyi", ".md", ".ipynb", ".html", ".js"}
        and not {"_build", "_made"} & set(path.relative_to(ROOT).parts)
    ),
]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].replace("-", "_")


def packages_of(extra: str) -> set[str]:
    """Return the packages of an extra, including the extras that it names."""
    packages = set()
    for requirement in EXTRAS[extra]:
        if requirement.startswith(PROJECT["name"]):
            for other in requirement.partition("[")[2].rstrip("]").split(","):
                packages |= packages_of(other)
        else:
            packages.add(package(requirement))
    return packages


def test_every_hint_installs_this_distribution() -> None:
    """No text tells a user to install what has the name of the import: on the package index that is another project."""
    assert PROJECT["name"] == md.errors.DISTRIBUTION != md.__name__
    strangers = re.compile(
        r"(?<![\w-])marketdata\\*\[[a-z{]|pip3? (?:install|download) [^\n`]*(?<![\w-])marketdata\b(?!-)"
    )
    assert [name(path) for path in TEXTS if strangers.search(path.read_text(encoding="utf-8"))] == []
    named = re.compile(rf"{PROJECT['name']}\[([\w,]+)\]")
    for path in TEXTS:
        for extras in named.findall(path.read_text(encoding="utf-8")):
            assert set(extras.split(",")) <= EXTRAS.keys(), name(path)


def test_the_tests_add_nothing_that_an_extra_brings() -> None:
    """`make test` installs the extra `all` and tools: pages and notebooks run with what a user gets."""
    tools = {package(one) for one in PYPROJECT["dependency-groups"]["test"] if isinstance(one, str)}
    assert tools & set().union(*map(packages_of, EXTRAS)) == set()
    assert packages_of("all") == set().union(*map(packages_of, EXTRAS.keys() - {"dask", "spark"}))


def test_the_page_of_installation_has_the_extras() -> None:
    """Each extra has its row with its packages, and the row of `all` names what it leaves out."""
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    rows = {
        cells: (packages, purpose)
        for cells, packages, purpose in re.findall(r"(?m)^\| (.+?) \| (.+?) \| (.+?) \|$", page)
    }
    named = {extra: cells for cells in rows for extra in re.findall(r"`([\w-]+)`", cells)}
    assert named.keys() == EXTRAS.keys()
    for extra, cells in named.items():
        if cells == f"`{extra}`" and extra != "all":
            text = rows[cells][0].casefold()
            own = {package(one) for one in EXTRAS[extra] if not one.startswith(PROJECT["name"])}
            assert [one for one in own if one.replace("_", "-").split("-")[0] not in text] == [], extra
    left_out = {extra for extra in EXTRAS if extra != "all" and not packages_of(extra) <= packages_of("all")}
    assert set(re.findall(r"`([\w-]+)`", rows["`all`"][0])) == left_out
    base = {package(one) for one in PROJECT["dependencies"]} - {"typing_extensions", "urllib3"}
    assert set(re.split(r", ", rows["none"][0])) == base
