"""What a user installs: its name, and that the extra `all` is enough for every page and notebook."""

from __future__ import annotations

import ast
import doctest
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import examples

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
PAGES = [path for path in TEXTS if path.suffix in {".md", ".ipynb"}]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement)[0].replace("-", "_")


def packages_of(extra: str) -> set[str]:
    """Return the packages of an extra, and those of extras that it names."""
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


def imported(code: str) -> Iterator[str]:
    """The top-level packages that code imports; not those that it looks for first."""
    todo: list[ast.AST] = [ast.parse(code)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "find_spec" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        todo += ast.iter_child_nodes(node)


def codes(path: Path) -> list[str]:
    """The code of a page or notebook that runs wherever the package is installed."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    blocks = [block for block in examples.blocks(text) if not re.match(r"(?:>>> )?# needs: ", block)]
    return [_shown_code(block) if ">>>" in block else block for block in blocks]


def _shown_code(block: str) -> str:
    """Return the code of examples with a prompt, without those that are not run."""
    shown = doctest.DocTestParser().get_examples(block)
    return "".join(example.source for example in shown if not example.options.get(doctest.SKIP))


def test_all_is_enough_for_every_page_and_notebook() -> None:
    """What a page or notebook imports without looking for it first is part of the extra `all`."""
    core = {package(requirement) for requirement in PROJECT["dependencies"]}
    installed = {md.__name__, "IPython", *sys.stdlib_module_names, *core, *packages_of("all")}
    missing = {name(page): set().union(*map(imported, codes(page))) - installed for page in PAGES}
    assert {page: packages for page, packages in missing.items() if packages} == {}


def test_the_tests_add_nothing_that_an_extra_brings() -> None:
    """`make test` installs the extra `all` and tools: pages and notebooks run with what a user gets."""
    tools = {package(one) for one in PYPROJECT["dependency-groups"]["test"] if isinstance(one, str)}
    assert tools & set().union(*map(packages_of, EXTRAS)) == set()
    assert packages_of("all") == set().union(*map(packages_of, EXTRAS.keys() - {"dask", "spark", "mcp"}))
