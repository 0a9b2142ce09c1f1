from __future__ import annotations

from typing import Any

import pytest
from oracle import START, minutes

from marketdata.fetch.estimate import Plan, make_plan
from marketdata.fetch.windows import Window
from marketdata.resolution import Resolution
from marketdata.times import SECOND

WEEK = Window("books", "market", "a<b", minutes(10_080), Resolution.M1)
USAGE = {"limits": {"requests_per_minute": 2000, "granularity_allowed": "1m", "max_history_days": "30"}}


def test_plan_counts() -> None:
    """A plan says requests, points, minutes and memory before anything is fetched."""
    plan = make_plan([WEEK], 2, USAGE, START)
    assert (plan.requests, plan.points, plan.refused) == (101, 20_160, ())
    assert plan.minutes == pytest.approx(101 / 2000)
    assert "101 requests, 20,160 points, 0.1 minutes at 2,000 requests a minute, about 34 MB" in repr(plan)
    assert make_plan([WEEK], {"a<b": 200}, None, START).requests == 10_081
    assert make_plan([WEEK], 2, None, START).minutes is None


@pytest.mark.parametrize(
    ("allowed", "days", "words"),
    [
        ("1h", "unlimited", ["the plan allows 1h, 6h, 1d"]),
        ("10m, 1d", None, ["the plan allows 10m, 1d"]),
        ("all", "2", ["[2026-01-01T00:00:00Z, 2026-01-04T00:00:00Z): the plan reaches back 2 days"]),
        ("6h", "1", ["the plan allows 6h, 1d", "reaches back 1 days"]),
        (None, "", []),
        (["1h"], 99999, []),
    ],
)
def test_plan_names_what_is_refused(allowed: Any, days: Any, words: list[str]) -> None:
    """Parts beyond the plan's resolution or history are named with their range."""
    now = START + 5 * 86_400 * SECOND
    limits = {"granularity_allowed": allowed, "max_history_days": days}
    plan = make_plan([WEEK], 2, {"limits": limits}, now)
    assert len(plan.refused) == len(words)
    assert all(word in part for word, part in zip(words, plan.refused, strict=True))


def test_plan_escapes_html() -> None:
    """Ids are text in a notebook, never markup."""
    plan = Plan(1, 1, None, 5, ("books of market a<b>&",))
    assert "a&lt;b&gt;&amp;" in plan._repr_html_()
    assert "<b>" not in plan._repr_html_()
