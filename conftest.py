"""What holds for every test of the tree, examples of docstrings included."""

from __future__ import annotations

import gc
import os
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

# Frame libraries take their first seconds to load; a deadline per example would only measure the machine. A tree has
# one verdict: the same examples are drawn each time. `make soak` and --hypothesis-profile=soak draw new ones.
settings.register_profile(
    "house",
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    derandomize=True,
    database=None,
)
settings.register_profile("soak", settings.get_profile("house"), derandomize=False, max_examples=2_000)
# Old versions of other libraries, or an hour that is not there: few examples of everything (--hypothesis-profile=few).
settings.register_profile("few", settings.get_profile("house"), max_examples=15)
settings.load_profile("house")

ROOT = Path(__file__).parent
_FILES = 4096
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


def cure(package: str) -> str | None:
    """The command that installs a package which some extra brings; None if every installation has it."""
    if package == md.__name__:  # a module of our own that is not there: extras that bring others name us too
        return None
    for extra, requirements in EXTRAS.items():
        if package in {re.split(r"\W", requirement)[0] for requirement in requirements}:
            return f"{package} is not installed: pip install '{md.errors.DISTRIBUTION}[{extra}]'"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Doctests of a module whose optional library is absent skip, and say so; any other failed import is an error."""
    report = yield
    problem = report.call.excinfo.value if report.call.excinfo else None
    if isinstance(problem, collector.CollectError):  # a file named on the command line is imported first
        problem = problem.__cause__
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        reason = cure(problem.name.partition(".")[0])
        if reason:
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
    return report


class Skipped:
    """Keeps the names of the tests that a run skipped, one a line, for ``make skipped``."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path, dict[str, None]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test skipped by itself."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self.names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file skipped as a whole."""
        if report.skipped:
            self.names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        """The file of names; none where nothing was skipped."""
        self.path.unlink(missing_ok=True)
        if self.names:
            self.path.write_text("\n".join(self.names) + "\n", encoding="utf-8")


def allow_many_files() -> None:
    """Tests of hundreds of connections open more files than many systems allow at first."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def pytest_configure(config: pytest.Config) -> None:
    """Files enough; and one list a run: workers report to the process that started them."""
    allow_many_files()
    cache = getattr(config, "cache", None)  # none with -p no:cacheprovider
    if cache is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skipped(cache.mkdir("skipped") / "tests"))


# Modules of few tests that take long. With --no-loadscope-reorder they are begun first, and no worker waits for one
# of them at the end of a run.
LONG = ("faults", "follow", "object_store", "processes", "recorded", "scan_nested", "stutter", "docs", "cli")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: a test that waits, for a server or a process, leaves its own idle."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector of garbage need not walk it again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end it is garbage as all else is; libraries that count what is left would call it a leak."""
    gc.unfreeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """The rows of the fault matrix that a test proves are words of ``-k``: ``pytest -k N9``."""
    for mark in item.iter_markers("fault"):
        item.extra_keyword_matches.update(mark.args)
    if is_hypothesis_test(getattr(item, "obj", None)):  # drawn times may all lie on a grid of several minutes
        item.add_marker(pytest.mark.filterwarnings("ignore::marketdata.CoarseGridWarning"))


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """Spark, DuckDB and Dask by name; they take seconds to start, so each is started once."""
    import engines

    with engines.started() as started:
        yield started


@pytest.fixture(autouse=True)
def example_names(request: pytest.FixtureRequest) -> None:
    """Give an example ``md`` and ``pl``, and those of ``client``, ``archive`` and ``market`` that it uses.

    The latter belong to one simulated day, 2025-12-31, behind a local service.
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
