"""``client.verify`` names what a service really does; the service here can do each of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.memory import MINUTE, MemoryArchive

import marketdata as md
from marketdata.archive.reading import Reader
from marketdata.conformance.compare import predict
from marketdata.conformance.report import READINGS, Finding, Verification
from marketdata.errors import ConfigError
from marketdata.points.columns import Books, Data, Series, Token, joined
from marketdata.points.resample import aggregate
from marketdata.points.views import View
from marketdata.resolution import BucketWidth, Resolution
from marketdata.service.pages import Pages, ServedPage, Subject
from marketdata.service.server import Service
from marketdata.testing.strategies import START
from marketdata.times import Range, to_text

# What can be switched; the first choice of each is the reading of this service.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "label": ("start", "end"),
    "averages": ("points", "means", "last"),
    "books": ("last", "first"),
    "empty": ("absent", "null", "previous"),
    "limit": ("points", "times"),
}


def vary(service: Service, variants: Mapping[str, str]) -> None:
    """Let a running service answer under other readings; ConfigError if a variant does not exist."""
    state = service.application.state.service
    state.pages = _VariedPages(
        state.archive, {name: choice for name, choice in variants.items() if _checked(name, choice)}
    )


def _checked(name: str, choice: str) -> bool:
    if choice not in VARIANTS.get(name, ()):
        allowed = "; ".join(f"{key}: {', '.join(choices)}" for key, choices in VARIANTS.items())
        raise ConfigError(f"variants={{{name!r}: {choice!r}}} does not exist; allowed are {allowed}.")
    return choice != VARIANTS[name][0]


class _VariedPages(Pages):
    def __init__(self, source: Reader, variants: Mapping[str, str]) -> None:
        super().__init__(_Varied(source, variants) if variants else source)
        self._by_times = "limit" in variants
        self._by_end = "label" in variants

    def page(self, subject: Subject, rng: Range, limit: int, position: int | None = None) -> ServedPage:
        if self._by_times:
            out = _cut(super().page(subject, rng, limit * max(1, subject.tokens), position), limit)
        else:
            out = super().page(subject, rng, limit, position)
        if self._by_end:
            width = subject.width.micros
            out.parts = [replace(columns, ts=columns.ts + width) for columns in out.parts]
        return out


def _cut(page: ServedPage, limit: int) -> ServedPage:
    times = np.unique(np.concatenate([columns.ts for columns in page.parts] or [np.empty(0, np.int64)]))
    page.count = min(len(times), limit)
    if len(times) > limit:
        page.position = int(times[limit])
        kept = [columns.take(np.flatnonzero(columns.ts < times[limit])) for columns in page.parts]
        page.parts = [columns for columns in kept if len(columns)]
    return page


class _Varied:
    """An archive that aggregates by other rules."""

    def __init__(self, source: Reader, variants: Mapping[str, str]) -> None:
        self._source = source
        self._variants = variants

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def columns(
        self, view: View, market_id: str, rng: Range | None, resolution: Any, token_id: str | None = None
    ) -> Data:
        width = Resolution.of(resolution)
        fill = view != "books" and self._variants.get("empty")
        # What fills the start of a range may be before it.
        base = self._source.columns(view, market_id, None if fill else rng, Resolution.M1, token_id)
        rule = self._variants.get("books", "last") if view == "books" else self._variants.get("averages", "points")
        out = aggregate(base, width, rule)
        out = _filled(out, width.micros, carry=fill == "previous") if fill else out
        return out if rng is None else out.between(rng.start // width.micros * width.micros, rng.end)


def _filled(columns: Data, width: int, *, carry: bool) -> Data:
    assert not isinstance(columns, Books)
    parts = []
    for i in range(len(columns.tokens)):
        own = columns.part(i, i + 1)
        grid = np.arange(own.ts[0], own.ts[-1] + 1, width)
        before = np.searchsorted(own.ts, grid, side="right") - 1
        empty = own.ts[before] != grid
        values = {n: np.where(empty & (not carry), np.nan, v[before]) for n, v in own.values.items()}
        parts.append(Series(own.tokens, np.array([0, len(grid)]), grid, values))
    return joined(parts) if parts else columns


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
