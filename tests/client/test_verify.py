"""``client.verify`` names what a service really does; the service here can do each of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.memory import MINUTE, MemoryArchive
from reference.variants import VARIANTS, serve_variants

import marketdata as md
from marketdata.conformance.compare import predict
from marketdata.conformance.report import READINGS, Finding, Verification
from marketdata.points.columns import Series, Token
from marketdata.resolution import BucketWidth
from marketdata.testing.strategies import START
from marketdata.times import Range, to_text

ALONE = [(name, choice) for name, choices in VARIANTS.items() for choice in choices[1:]]
DAYS = ("2025-12-30", "2026-01-01")


@pytest.fixture(scope="module")
def simulated() -> md.Archive:
    return md.simulate(events=1, days=2)


@contextmanager
def verified(archive: Any, variants: dict[str, str], market: str | None = None, **more: Any) -> Iterator[Verification]:
    with serve_variants(archive, variants, requests_per_minute=1_000_000) as service:
        client = md.Client(service.base_url, service.api_key)
        start, end = more.pop("span", DAYS)
        yield client.verify(market or archive.records("markets")[0]["id"], start, end, **more)


def test_the_service_follows_every_reading(simulated: md.Archive) -> None:
    """Without a variant each reading is followed, and each is decided."""
    with verified(simulated, {}) as told:
        assert told.followed, told
        assert (told.variants, told.undecided) == ({}, ())


@pytest.mark.parametrize(("name", "choice"), ALONE)
def test_each_variant_is_named(simulated: md.Archive, name: str, choice: str) -> None:
    """A service with one variant switched on is told to have that one, and no other."""
    with verified(simulated, {name: choice}) as told:
        assert told.variants == {name: choice}, told
        assert told[name].state == "variant"
        assert f"variant {choice!r}" in str(told)
        assert not told.followed


@pytest.mark.parametrize("coarse", ["10m", "6h"])
def test_other_resolutions_tell_too(simulated: md.Archive, coarse: str) -> None:
    """6h shows what a mean is taken over; 10m cannot, as no resolution is between it and 1m."""
    with verified(simulated, {"label": "end", "averages": "means"}, coarse=coarse) as told:
        assert told.variants == {"label": "end"} | ({"averages": "means"} if coarse == "6h" else {}), told
        assert told.undecided == (() if coarse == "6h" else ("averages",))


@settings(max_examples=4)
@given(variants=st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in VARIANTS.items()}))
def test_variants_together_are_not_mistaken(simulated: md.Archive, variants: dict[str, str]) -> None:
    """With any of them together, what is named is true; it may be that less can be told."""
    with verified(simulated, variants) as told:
        ours = {name: choices[0] for name, choices in VARIANTS.items()}
        for finding in told.findings:
            assert finding.found in (None, (ours | variants)[finding.reading]), (variants, told)
        assert set(told.undecided) <= {"averages", "empty", "label"}, told


def flat(tokens: int, hours: int = 3, price: float = 0.5) -> MemoryArchive:
    """A market where nothing ever moves and nothing is missing."""
    archive = MemoryArchive()
    archive.add_market("0xm", {f"T{i}": str(i) for i in range(tokens)})
    for minute in range(hours * 60):
        ts = START + minute * MINUTE
        for i in range(tokens):
            archive.put("prices", "0xm", str(i), ts, price)
            archive.put("books", "0xm", str(i), ts, ([(price - 0.01, 5.0)], [(price + 0.01, 5.0)]))
        archive.put("metrics", "0xm", None, ts, {"volume": 1.0, "liquidity": 2.0, "spread": 0.02})
    return archive


SPAN = (to_text(START), to_text(START + 180 * MINUTE))


@pytest.mark.parametrize("choice", ["points", "times"])
def test_tokens_that_begin_apart_do_not_hide_what_limit_counts(choice: str) -> None:
    """If the first times have one token each, a longer page tells points from times."""
    archive = MemoryArchive()
    archive.add_market("0xm", {"T0": "0", "T1": "1"})
    for minute in range(180):
        ts = START + minute * MINUTE
        for i in range(2):
            if minute >= 30 or minute % 2 == i:
                archive.put("prices", "0xm", str(i), ts, 0.5)
                archive.put("books", "0xm", str(i), ts, ([(0.4, 5.0)], [(0.6, 5.0)]))
        archive.put("metrics", "0xm", None, ts, {"volume": 1.0, "liquidity": 2.0, "spread": 0.02})
    with verified(archive, {"limit": choice}, "0xm", span=SPAN) as told:
        assert told["limit"].found == choice, told


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
    made = predict(near, fine, coarse, rule, label)
    found = dict(zip(made.ts.tolist(), made.price.tolist(), strict=True))
    for at, group in groups.items():
        given = [x for x in group if not math.isnan(x)]
        mean = sum(given) / len(given) if given else math.nan
        want = {"points": mean, "last": group[-1], "first": group[0]}[rule]
        assert found.pop(at * MINUTE) == pytest.approx(want, nan_ok=True, abs=0, rel=1e-15)
    assert not found


def test_what_data_can_not_tell_is_not_claimed() -> None:
    """Data of one token that never moves and has no gap decides no reading."""
    with verified(flat(1), {}, "0xm", span=SPAN) as told:
        assert set(told.undecided) == {"averages", "books", "empty", "limit", "label"}, told
        assert not told.followed
        assert told.variants == {}


def test_no_data_tells_nothing() -> None:
    """A range without points decides no reading and raises nothing."""
    archive = MemoryArchive()
    archive.add_market("0xm", {"Yes": "1", "No": "2"})
    with verified(archive, {}, "0xm", span=SPAN) as told:
        assert set(told.undecided) == set(READINGS)


def test_client_and_service_speak_of_the_same_readings() -> None:
    """Every reading and choice that can be told can be switched on, and the other way round."""
    assert {name: tuple(choices) for name, (_, choices) in READINGS.items()} == dict(VARIANTS)


def test_unknown_variants_are_refused(simulated: md.Archive) -> None:
    """A variant that does not exist is refused before the service starts, with what is allowed."""
    for wrong in ({"label": "middle"}, {"colour": "red"}):
        with pytest.raises(
            md.errors.ConfigError, match=r"allowed are label: start, end; averages: points, means, last"
        ):
            serve_variants(simulated, wrong, requests_per_minute=60)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"fine": "1h", "coarse": "1h"}, "coarser"),
        ({"fine": "7m"}, "7m.*does not exist"),
        ({"coarse": "1d", "span": ("2026-01-01", "2026-01-02")}, "two whole buckets"),
    ],
)
def test_bad_arguments_are_refused(simulated: md.Archive, how: dict[str, Any], said: str) -> None:
    """Resolutions that cannot be compared, and ranges too short to, are refused by name."""
    with pytest.raises(md.errors.ConfigError, match=said), verified(simulated, {}, **how):
        pass


def test_an_unknown_market_is_not_found(simulated: md.Archive) -> None:
    """A market that does not exist is the service's own 404."""
    with pytest.raises(md.errors.NotFoundError), verified(simulated, {}, "no-such-market"):
        pass


def test_html_is_escaped() -> None:
    """Names of a market and evidence are shown as text, whatever they hold."""
    told = Verification("<b>", Range(0, 1), "1m", "1h", (Finding("label", None, "<script>"),))
    shown = told._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "&lt;b&gt;" in shown
    assert "not decidable" in shown
