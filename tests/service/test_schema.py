"""Schemathesis: requests made from our own description, and the answers held against it (G14)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from service.web import cases

from marketdata.service.server import Service

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis (pip install --group test)")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
QUIET = list(HealthCheck)


@pytest.fixture(scope="module")
def api(local: Service) -> Any:
    found = schemathesis.openapi.from_url(local.base_url + "/openapi.json")
    # A URL may be too long before anyone looks at what it says.
    found.config.checks.negative_data_rejection.expected_statuses.extend(["414", "431"])
    return found


def run(api: Any, local: Service, examples: int, keys_every: int = 1) -> int:
    """So many cases of right and of wrong data for every operation; how many there were.

    Wrong keys are tried with every ``keys_every``-th case: an address that shows many of them is 429 (S33).
    """
    count = 0
    for found in api.get_all_operations():
        for mode in schemathesis.GenerationMode:

            @settings(max_examples=examples, deadline=None, suppress_health_check=QUIET, database=None)
            @given(found.ok().as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                nonlocal count
                count += 1
                also = [checks.ignored_auth] if count % keys_every == 0 else []
                # A case whose fault is the missing key stays one.
                negative = mode is schemathesis.GenerationMode.NEGATIVE  # noqa: B023  called before the next turn
                wrong = negative and "X-API-Key" not in (case.headers or {})
                headers = {} if wrong else {"X-API-Key": str(local.api_key)}
                case.call_and_validate(headers=headers, checks=CHECKS + also)

            # Without parameters there is nothing wrong to ask.
            with contextlib.suppress(Unsatisfiable):
                ask()
    return count


@pytest.mark.fault("G14")
def test_answers_are_those_described(api: Any, local: Service) -> None:
    """No 5xx, every answer JSON, declared and in its schema; wrong data refused; 401 without a key."""
    assert run(api, local, 6) > 100


@pytest.mark.fault("G14")
@pytest.mark.soak
def test_fifty_thousand_cases_from_the_description(api: Any, local: Service) -> None:
    """The same for 50,000 cases."""
    count = run(api, local, cases(2_200), keys_every=50)
    print(f"\n{count} cases, up to {cases(2_200)} of right and of wrong data for each operation")
    assert count >= cases(2_200) * 50_000 // 2_200
