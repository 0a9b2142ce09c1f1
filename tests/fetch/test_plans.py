from __future__ import annotations

from functools import partial

import pytest
from reference.oracle import START, minutes

from marketdata.fetch.http.transport import Transport
from marketdata.fetch.plans import Plan, PlanLimits, make_plan, read_usage
from marketdata.fetch.sources.interface import Interface
from marketdata.fetch.windows import MarketInfo, Window
from marketdata.resolution import BucketWidth
from marketdata.times import MINUTE, SECOND

WEEK = Window("books", "market", "a<b", minutes(10_080), BucketWidth.of("1m"))
REQUESTS = Interface(Transport("http://127.0.0.1:9", "k" * 20)).requests
cost = partial(make_plan, requests_of=REQUESTS)
USAGE = {"limits": {"requests_per_minute": 2000, "granularity_allowed": "1m", "max_history_days": "30"}}


def test_a_plan_counts_requests_points_minutes_and_memory() -> None:
    """All is known before anything is fetched."""
    plan = cost([WEEK], {}, read_usage(USAGE), START)
    assert (plan.requests, plan.points, plan.refused) == (101, 20_160, ())
    assert plan.minutes == pytest.approx(101 / 2000)
    assert "101 requests, 20,160 points, 0.1 minutes at 2,000 requests a minute, about 34 MB" in repr(plan)
    assert cost([WEEK], {"a<b": MarketInfo(tuple(map(str, range(200))))}, PlanLimits(), START).requests == 10_081
    assert cost([WEEK], {}, PlanLimits(), START).minutes is None
    assert "at a rate not known yet, about 5 bytes" in repr(Plan(1, 1, None, 5))


def test_a_plan_counts_the_active_range_of_a_market_alone() -> None:
    """A market that was active for half an hour takes one request of any range."""
    info = MarketInfo(("1", "2"), START + 60 * MINUTE, START + 90 * MINUTE)
    plan = cost([WEEK], {"a<b": info}, PlanLimits(), START)
    assert (plan.requests, plan.points) == (1, 60)


@pytest.mark.fault("V6")
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"granularity_allowed": "1h", "max_history_days": "unlimited"}, ["the plan allows 1h and coarser"]),
        ({"granularity_allowed": "10m, 1d"}, ["the plan allows 10m, 1d"]),
        ({"granularity_allowed": ["6h", "10m"], "max_history_days": None}, ["the plan allows 10m, 6h"]),
        ({"granularity_allowed": "all", "max_history_days": 2}, ["2026-01-04T00:00:00Z): the plan reaches back 2"]),
        ({"granularity_allowed": "6h", "max_history_days": "1 day"}, ["allows 6h and coarser", "reaches back 1 days"]),
        ({"granularity_allowed": {"finest": 1}, "max_history_days": [3]}, []),
        ({"granularity_allowed": "60s", "max_history_days": ""}, []),
        ([1], []),
        (None, []),
    ],
)
def test_a_plan_names_what_is_refused(limits, words) -> None:
    """Limits are read as numbers, texts and lists; a part beyond them is named with its range."""
    now = START + 5 * 86_400 * SECOND
    plan = cost([WEEK], {}, read_usage({"limits": limits}), now)
    assert len(plan.refused) == len(words)
    assert all(word in part for word, part in zip(words, plan.refused, strict=True))


@pytest.mark.fault("V6")
def test_a_daily_quota_is_a_part_of_the_plan() -> None:
    """At 20 requests a day, 101 take six days."""
    limits = read_usage({"limits": {"requests_per_minute": "60", "requests_per_day": "20", "remaining_today": 3}})
    plan = cost([WEEK], {}, limits, START)
    assert plan.days == 6
    assert "6 days at 20 requests a day" in repr(plan)
    assert read_usage({"requests_per_day": "1,000 (UTC)"}).requests_per_day == 1000
