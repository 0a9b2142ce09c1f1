"""``client.verify`` names what a service really does; the service here can do each of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.memory import MINUTE, MemoryArchive
from reference.variants import VARIANTS, vary

import marketdata as md
from marketdata.conformance.compare import predict
from marketdata.conformance.report import READINGS, Finding, Verification
from marketdata.points.columns import Series, Token
from marketdata.resolution import BucketWidth
from marketdata.service.server import Service
from marketdata.testing.strategies import START
from marketdata.times import Range, to_text


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Serves 0xm, whose numbers move, whose tokens lack a minute in five, and whose third hour is empty, and others."""
    archive, draw = MemoryArchive(), np.random.default_rng(0)
    archive.add_market("0xm", {"Yes": "0", "No": "1"})
    for minute in (n for n in range(240) if n // 60 != 2):
        ts, price = START + minute * MINUTE, float(draw.random())
        for i in np.flatnonzero(draw.random(2) < 0.8).tolist():
            price = float(draw.random())
            archive.put("prices", "0xm", str(i), ts, price)
            archive.put("books", "0xm", str(i), ts, ([(price / 2, 5.0)], [(price / 2 + 0.5, 5.0)]))
        archive.put("metrics", "0xm", None, ts, {"volume": price, "liquidity": 2.0, "spread": 0.02})
    archive.add_market("apart", {"T0": "10", "T1": "11"})
    for minute in range(120):
        for i in range(2):
            if minute >= 30 or minute % 2 == i:
                archive.put("prices", "apart", f"1{i}", START + minute * MINUTE, 0.5)
    archive.add_market("still", {"Yes": "20"})
    for ts in range(START, START + 120 * MINUTE, MINUTE):
        archive.put("prices", "still", "20", ts, 0.5)
        archive.put("books", "still", "20", ts, ([(0.4, 5.0)], [(0.6, 5.0)]))
    archive.add_market("silent", {"Yes": "30"})
    with md.serve(archive, requests_per_minute=1_000_000) as running:
        yield running


def verified(service: Service, variants: dict[str, str], name: str = "0xm", **more: Any) -> Verification:
    """The report on the service with some variants."""
    start, end = more.pop("span", (to_text(START), to_text(START + 240 * MINUTE)))
    vary(service, variants)
    return md.Client(service.base_url, service.api_key).verify(name, start, end, **more)


def test_each_variant_is_named_and_no_other(service: Service) -> None:
    """Without a variant each reading is followed; a service with one is told to have that one."""
    report = verified(service, {})
    assert report.followed, report
    assert (report.variants, report.undecided) == ({}, ())
    for name, choice in ((name, choice) for name, choices in VARIANTS.items() for choice in choices[1:]):
        report = verified(service, {name: choice})
        assert report.variants == {name: choice}, report
        assert report[name].state == "variant"
        assert f"variant {choice!r}" in str(report)
        assert not report.followed


def test_another_resolution_tells_too(service: Service) -> None:
    """10m cannot show what a mean is taken over, as no resolution is between it and 1m."""
    report = verified(service, {"label": "end", "averages": "means"}, coarse="10m")
    assert (report.variants, report.undecided) == ({"label": "end"}, ("averages",)), report


@settings(max_examples=2)
@given(variants=st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in VARIANTS.items()}))
def test_variants_together_are_not_mistaken(service: Service, variants: dict[str, str]) -> None:
    """With any of them together, what is named is true; it may be that less can be told."""
    report = verified(service, variants)
    for finding in report.findings:
        assert finding.found in (None, variants[finding.reading]), (variants, report)
    assert set(report.undecided) <= {"averages", "empty", "label"}, report


@pytest.mark.parametrize("choice", ["points", "times"])
def test_tokens_that_begin_apart_do_not_hide_what_limit_counts(service: Service, choice: str) -> None:
    """If the first times have one token each, a longer page tells points from times."""
    report = verified(service, {"limit": choice}, "apart")
    assert report["limit"].found == choice, report


@given(
    minutes=st.lists(st.integers(0, 2000), min_size=1, max_size=60, unique=True).map(sorted),
    numbers=st.lists(st.sampled_from([0.25, 0.5, 0.75, math.nan]), min_size=60, max_size=60),
    rule=st.sampled_from(["points", "last", "first"]),
    label=st.sampled_from(["start", "end"]),
)
def test_a_prediction_is_what_a_plain_loop_makes(
    minutes: list[int], numbers: list[float], rule: str, label: str
) -> None:
    """Each rule and label of the predictions equals a loop over the points of each bucket."""
    fine, coarse = BucketWidth.of("1m"), BucketWidth.of("1h")
    groups: dict[int, list[float]] = {}
    for minute, number in zip(minutes, numbers, strict=False):
        groups.setdefault(minute // 60 * 60 + (60 if label == "end" else 0), []).append(number)
    ts = np.array(minutes, np.int64) * MINUTE + (MINUTE if label == "end" else 0)
    near = Series((Token("m"),), np.array([0, len(ts)]), ts, {"price": np.array(numbers[: len(ts)])})
    predicted = predict(near, fine, coarse, rule, label)
    rows = dict(zip(predicted.ts.tolist(), predicted.price.tolist(), strict=True))
    for at, group in groups.items():
        given = [x for x in group if not math.isnan(x)]
        mean = sum(given) / len(given) if given else math.nan
        want = {"points": mean, "last": group[-1], "first": group[0]}[rule]
        assert rows.pop(at * MINUTE) == pytest.approx(want, nan_ok=True, abs=0, rel=1e-15)
    assert not rows


def test_what_data_cannot_tell_is_not_claimed(service: Service) -> None:
    """A token that never moves and has no gap decides no reading, and neither does a range without points."""
    for name in ("still", "silent"):
        report = verified(service, {}, name, span=(to_text(START), to_text(START + 120 * MINUTE)))
        assert set(report.undecided) == set(READINGS), report
        assert (report.followed, report.variants) == (False, {})


def test_bad_arguments_are_refused(service: Service) -> None:
    """Resolutions that cannot be compared, ranges too short to, and unknown markets are refused by name."""
    for how, problem in (
        ({"fine": "1h", "coarse": "1h"}, "coarser"),
        ({"fine": "7m"}, "7m.*does not exist"),
        ({"coarse": "1d", "span": ("2026-01-01", "2026-01-02")}, "two whole buckets"),
    ):
        with pytest.raises(md.errors.ConfigError, match=problem):
            verified(service, {}, **how)  # type: ignore[arg-type]
    with pytest.raises(md.errors.NotFoundError):
        verified(service, {}, "no-such-market")


def test_html_is_escaped() -> None:
    """Names of a market and evidence are shown as text, whatever they hold."""
    report = Verification("<b>", Range(0, 1), "1m", "1h", (Finding("label", None, "<script>"),))
    shown = report._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert "not decidable" in shown
