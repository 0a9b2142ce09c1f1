"""Settings of every test, and the names that examples of docstrings use without making them."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["marketdata.testing.fixtures"]

# Frame libraries take their first seconds to load; a deadline per example would only measure the machine.
settings.register_profile(
    "house", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("soak", settings.get_profile("house"), max_examples=2_000)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def example_names(request: pytest.FixtureRequest) -> None:
    """Give an example the names ``client``, ``archive`` and ``market`` that it uses and does not make itself.

    They belong to one simulated day, 2025-12-31, behind a local service.
    """
    if not isinstance(request.node, pytest.DoctestItem):
        return
    code = "".join(example.source for example in request.node.dtest.examples)
    names = request.getfixturevalue("doctest_namespace")
    for name in ("client", "archive"):
        if re.search(rf"\b{name}\b", code):
            names[name] = request.getfixturevalue(f"local_{name}")
    if re.search(r"\bmarket\b", code):
        names["market"] = request.getfixturevalue("local_archive").records("markets")[0]["id"]
