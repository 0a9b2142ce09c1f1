"""Settings and fixtures of all tests, including the examples of docstrings."""

from __future__ import annotations

import gc
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

import marketdata as md

pytest_plugins = ["marketdata.testing.fixtures"]
collect_ignore = ["tests/bench/vendor_client.py"]  # runs in the environment of the vendor's client
PROJECT = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# `make test` draws the same examples each time, so a commit has one verdict; `make soak` draws new ones. Frame
# libraries take seconds to load, so a deadline for an example would only measure the machine.
settings.register_profile(
    "house",
    deadline=None,
    max_examples=8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
    database=None,
)
settings.register_profile("soak", settings.get_profile("house"), derandomize=False, max_examples=2_000)
# Few examples of everything, to try old versions of libraries.
settings.register_profile("few", settings.get_profile("house"), max_examples=10)
settings.load_profile("house")


def install_command(package: str) -> str | None:
    """Return how to install a package of an extra; None for a package that no extra has."""
    for extra, requirements in PROJECT["optional-dependencies"].items():
        if package in {re.split(r"\W", requirement)[0] for requirement in requirements} - {md.__name__}:
            return f"{package} is not installed: pip install '{md.errors.DISTRIBUTION}[{extra}]'"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Skip the examples of a module whose optional library is absent; any other failed import stays an error."""
    report = yield
    error = report.call.excinfo.value if report.call.excinfo else None
    if isinstance(error, collector.CollectError):  # a file named on the command line is imported first
        error = error.__cause__
    if isinstance(error, ModuleNotFoundError) and error.name:
        reason = install_command(error.name.partition(".")[0])
        if reason:
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
    return report


class SkippedTests:
    """Writes the names of the skipped tests to a file, which ``make skipped`` reads."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, dict[str, None]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self.path.unlink(missing_ok=True)
        if self.names:
            self.path.write_text("\n".join(self.names) + "\n", encoding="utf-8")


def allow_many_files() -> None:
    """Raise the limit of open files: tests of many connections need more than some systems allow."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def pytest_configure(config: pytest.Config) -> None:
    allow_many_files()
    cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
    if cache is not None and not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(SkippedTests(cache.mkdir("skipped") / "tests"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples of a function once, and not for the method of ``df.md`` too, which has its docstring."""
    items[:] = [
        item
        for item in items
        if not item.name.startswith(("marketdata.accessor.Accessor.", "marketdata.accessor.Plots."))
    ]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking all modules again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo the freeze, because libraries that count what remains would report a leak."""
    gc.unfreeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make rows of faults words of ``-k``: ``pytest -k N9``."""
    for mark in item.iter_markers("fault"):
        item.extra_keyword_matches.update(mark.args)
    if is_hypothesis_test(getattr(item, "obj", None)):  # drawn times may all lie on a coarse grid
        item.add_marker(pytest.mark.filterwarnings("ignore::marketdata.errors.CoarseGridWarning"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """Spark, DuckDB and Dask by name; each is started once, when a test asks for it."""
    from reference import engines

    with engines.started() as started:
        yield started


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close the figures of a test: matplotlib warns at the twenty-first that is open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def example_names(request: pytest.FixtureRequest) -> None:
    """Give an example ``md`` and ``pl``, and the ``client``, ``archive`` and ``market`` that it uses.

    These belong to one simulated day, 2025-12-31, behind a local service.
    """
    if not isinstance(request.node, pytest.DoctestItem):
        return
    code = "".join(example.source for example in request.node.dtest.examples)
    names = request.getfixturevalue("doctest_namespace")
    names.update(md=md, pl=pl)
    for name in ("client", "archive"):
        if re.search(rf"\b{name}\b", code):
            names[name] = request.getfixturevalue(f"local_{name}")
    if re.search(r"\bmarket\b", code):
        names["market"] = request.getfixturevalue("local_archive").records("markets")[0]["id"]
