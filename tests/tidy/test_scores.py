"""Scores of forecasts and what markets paid, by plain loops."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.bootstrap import studentized
from reference.kinds import FRAME_KINDS, close, few, fewest, of_kind, plain
from reference.markets import forecasts, in_kind

import marketdata as md
from marketdata.points.intervals import Sampling, of_rows, share_interval

pytestmark = [
    pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning"),
    pytest.mark.filterwarnings("ignore::marketdata.errors.OpenMarketsWarning"),
    pytest.mark.filterwarnings("ignore::marketdata.errors.MissingValuesWarning"),
]
WON = {"m0": "00", "m1": "11", "m2": None}
LOG_CLIP = 1e-6


def resolved(columns: Any, of: str) -> list[tuple[Any, Fraction, int]]:
    """Token, forecast and outcome of every forecast that counts: N does not where Y has a forecast of the same time."""
    out = []
    every = [
        (columns.tokens[code], ts, Fraction(p))
        for code, ts, p in zip(columns.token, columns.ts, columns.price, strict=True)
        if not math.isnan(p)
    ]
    of_yes = {(token.market_id, ts) for token, ts, _ in every if token.token_label == "Y"}
    for token, ts, p in every:
        won = WON[token.market_id]
        mirror = of != "token" and token.token_label == "N" and (token.market_id, ts) in of_yes
        if won is not None and not mirror:
            out.append((token, p, int(won == token.token_id)))
    return out


def repeated(columns: Any, market: str | None = None) -> int:
    """The number of forecasts that are left out."""
    both = [
        [t.market_id for t, *_ in resolved(columns, of) if market in (None, t.market_id)] for of in ("token", "market")
    ]
    return len(both[0]) - len(both[1])


def nulls(columns: Any, of: str, market: str | None = None) -> int:
    """The number of forecasts without a price: times at which no token of a resolved market has one, or rows."""
    lacking, priced = defaultdict(list), set()
    for code, ts, p in zip(columns.token, columns.ts, columns.price, strict=True):
        token = columns.tokens[code]
        if WON[token.market_id] is not None and market in (None, token.market_id):
            key = (token.market_id, ts, token.token_id if of == "token" else None)
            lacking[key] += [1] * math.isnan(p)
            priced |= set() if math.isnan(p) else {key}
    return sum(bool(rows) for key, rows in lacking.items() if key not in priced)


def quadratic(p: Fraction, outcome: int) -> Fraction:
    return (p - outcome) ** 2


def surprise(p: Fraction, outcome: int) -> Fraction:
    likely = min(max(float(p), LOG_CLIP), 1 - LOG_CLIP)
    return Fraction(-math.log(likely if outcome else 1 - likely))


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), columns=forecasts())
def test_scores_equal_a_plain_walk(kind: str, columns: Any) -> None:
    """Each score is the mean over the forecasts of resolved markets, per token, per market, and over all."""
    frame = of_kind(columns, kind)
    for verb, error in ((md.brier, quadratic), (md.log_score, surprise)):
        by_token, by_market = defaultdict(list), defaultdict(list)
        for token, p, outcome in resolved(columns, "token"):
            by_token[token, float(outcome)].append(error(p, outcome))
        for token, p, outcome in resolved(columns, "market"):
            by_market[token.market_id].append(error(p, outcome))
        want = [(*t, o, len(e), float(sum(e) / len(e))) for (t, o), e in sorted(by_token.items())]
        of_token = plain(verb(frame, WON, of="token"))
        assert close([row[:-3] for row in of_token], want)
        want = [
            (m, len(e), float(sum(e) / len(e)), repeated(columns, m), nulls(columns, "market", m), 0, 0)
            for m, e in sorted(by_market.items())
        ]
        assert close(plain(verb(frame, WON)), want)
        every = [x for e in by_market.values() for x in e]
        (row,) = plain(verb(frame, WON, of="all", resamples=20))
        assert row[:2] == (len(by_market), len(every))
        assert close([row[2:3]], [(float(sum(every) / len(every)) if every else None,)])
        assert row[3] is row[4] is None  # fewer than five markets
        assert close([row[5:8]], [parts([(p, o) for _, p, o in resolved(columns, "market")], error)], least=1e-12)
        of_bins = 3 if verb is md.brier else 0
        if of_bins:
            assert close([row[8:11]], [murphy([(p, o) for _, p, o in resolved(columns, "market")])], least=1e-12)
        assert row[8 + of_bins :] == ("market_id", repeated(columns), nulls(columns, "market"), 0, 0)
        without = [(*row[:3], *row[5 : 8 + of_bins], *row[9 + of_bins :])]
        assert plain(verb(frame, WON, of="all", interval=None)) == without


def murphy(forecasts_: list[tuple[Fraction, int]]) -> tuple[float | None, ...]:
    """Reliability, resolution, and what prices differ within a bin of ten; with the uncertainty they are the score."""
    if not forecasts_:
        return (None, None, None)
    n, base = len(forecasts_), Fraction(sum(y for _, y in forecasts_), len(forecasts_))
    bins = defaultdict(list)
    for p, y in forecasts_:
        bins[min(math.floor(p * 10 + Fraction(1, 10**8)), 9)].append((p, y))
    reliability = resolution = Fraction(0)
    for rows in bins.values():
        price, outcome = (Fraction(sum(values), len(rows)) for values in zip(*rows, strict=True))
        reliability += len(rows) * (price - outcome) ** 2
        resolution += len(rows) * (outcome - base) ** 2
    score = sum(((p - y) ** 2 for p, y in forecasts_), Fraction(0))
    uncertainty = sum(((base - y) ** 2 for _, y in forecasts_), Fraction(0))
    within = score - reliability + resolution - uncertainty
    return float(reliability / n), float(resolution / n), float(within / n)


def parts(forecasts_: list[tuple[Fraction, int]], error: Any) -> tuple[float | None, ...]:
    """Miscalibration, discrimination and uncertainty, with the isotonic regression by its formula of max and min."""
    if not forecasts_:
        return (None, None, None)
    levels = sorted({p for p, _ in forecasts_})
    of_level = {p: [y for q, y in forecasts_ if q == p] for p in levels}

    def mean(first: int, last: int) -> Fraction:
        held = [y for p in levels[first : last + 1] for y in of_level[p]]
        return Fraction(sum(held), len(held))

    best = {p: max(min(mean(j, k) for k in range(i, len(levels))) for j in range(i + 1)) for i, p in enumerate(levels)}
    base = Fraction(sum(y for _, y in forecasts_), len(forecasts_))
    own = sum(error(p, y) for p, y in forecasts_)
    of_best, of_base = (
        sum(exact(error, q, y) for q, y in some)
        for some in ([(best[p], y) for p, y in forecasts_], [(base, y) for _, y in forecasts_])
    )
    n = len(forecasts_)
    return float((own - of_best) / n), float((of_base - of_best) / n), float(of_base / n)


def exact(error: Any, p: Fraction, outcome: int) -> Fraction:
    """The error of a forecast that is not clipped: the best ones may be 0 or 1 where all or none came true."""
    return Fraction(0) if p == outcome else error(p, outcome)


DEFINED = pl.DataFrame({
    "market_id": ["m0", "m1", "m2"], "token_ids": [["00", "01"], ["10", "11"], ["20", "21"]],
    "token_labels": [["Y", "N"]] * 3, "resolved_token_id": ["00", "11", None],
    "topic": ["rain", None, "rain"],
})  # fmt: skip


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), columns=forecasts(), of=st.sampled_from(["token", "market", "all"]))
def test_scores_of_groups_equal_those_of_their_rows(kind: str, columns: Any, of: Any) -> None:
    """Each group has the score of its markets alone, in the order of its values, null last."""
    frame, options = of_kind(columns, kind), {"of": of, "interval": None}
    got = plain(md.brier(frame, DEFINED, by="topic", **options))
    curve = plain(md.calibration(frame, DEFINED, 4, by=["topic"], interval=None))
    want, bars = [], []
    for topic in ("rain", None):
        markets = {"m0", "m2"} if topic else {"m1"}
        outcomes = {market: token for market, token in WON.items() if market in markets}
        keys = {"token": 3, "market": 1, "all": 0}[of]
        rows = plain(md.brier(frame, outcomes, **options))
        want += [(*row[:keys], topic, *row[keys:]) for row in rows if of != "all" or row[0]]
        bars += [(topic, *row) for row in plain(md.calibration(frame, outcomes, 4, interval=None))]
    assert close(got, sorted(want, key=repr_of) if of != "all" else want)
    assert close(curve, bars)


def repr_of(row: tuple[Any, ...]) -> list[Any]:
    """An order of rows in which None is last."""
    return [(v is None, 0 if v is None else v) for v in row]


@few
@given(
    kind=st.sampled_from(FRAME_KINDS),
    columns=forecasts(),
    bins=st.sampled_from([1, 3, 10]),
    of=st.sampled_from(["token", "market"]),
)
def test_calibration_equals_a_plain_walk(kind: str, columns: Any, bins: int, of: Any) -> None:
    """Each bin has the mean forecast and the mean payoff, with or without an interval."""
    table: dict[int, list[tuple[Any, Fraction, int]]] = defaultdict(list)
    for token, p, outcome in resolved(columns, of):
        at = min(math.floor(Fraction(str(float(p))) * bins + Fraction(1, 10**9)), bins - 1)
        table[at].append((token.market_id, p, outcome))
    want = [
        (k / bins, (k + 1) / bins, len(v), float(sum(p for _, p, _ in v) / len(v)), sum(o for *_, o in v) / len(v))
        for k, v in sorted(table.items())
    ]
    frame = of_kind(columns, kind)
    got = plain(md.calibration(frame, WON, bins, of=of, interval=None))
    assert close([row[:-1] for row in got], want)
    assert sum(row[-1] for row in got) == (repeated(columns) if of == "market" else 0)
    got = plain(md.calibration(frame, WON, bins, of=of, interval=0.9))
    assert close([row[:5] for row in got], want)
    for row, forecasts_ in zip(got, (table[k] for k in sorted(table)), strict=True):
        markets = {market for market, *_ in forecasts_}
        assert row[5] == len(markets)
        is_alike = len({o for held in table.values() for *_, o in held}) < 2
        assert (row[6] is None) == (len(markets) < 2 or is_alike)
        assert row[6] is None or 0 <= row[6] <= row[7] <= 1


@given(
    sums=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), min_size=5, max_size=7),
    seed=st.integers(0, 3),
    share=st.sampled_from([0.5, 0.9]),
)
def test_the_interval_equals_a_plain_bootstrap(sums: list[tuple[int, int]], seed: int, share: float) -> None:
    """Whole markets are drawn with replacement, and each sample is measured by its own error."""
    pairs = [(t / 20 * w, w) for t, w in sums]
    total, weight = np.array(pairs, float).T
    got = mean_interval(total, weight, Sampling(share, 50, seed), (0.0, 1.0))
    want = studentized(pairs, seed, share, 50, (0.0, 1.0))
    assert np.allclose(got, want, atol=1e-6, equal_nan=True)


def mean_interval(total: Any, weight: Any, sampling: Sampling, bounds: Any = (-math.inf, math.inf)) -> Any:
    """The ends of the interval of sum(total) / sum(weight) over clusters."""
    clusters = np.arange(len(total))[None]
    return of_rows(total / weight, weight, clusters, sampling, bounds=bounds)[:2]


def test_an_interval_of_few_or_equal_markets_is_null() -> None:
    """Four markets, or any number that are all alike, say nothing of the spread of markets."""
    for values in (np.arange(4.0), np.full(20, 0.05)):
        assert np.isnan(mean_interval(values, np.ones(len(values)), Sampling(0.95, 20))).all()
    assert np.isnan(share_interval(np.ones(1), np.ones(1), 0.95)).all()


@given(
    markets=st.lists(st.tuples(st.booleans(), st.integers(1, 5)), min_size=2, max_size=8),
    share=st.sampled_from([0.5, 0.95]),
)
def test_the_interval_of_a_share_solves_wilsons_equation(markets: list[tuple[bool, int]], share: float) -> None:
    """Its ends are the shares from which the one that was seen is z standard errors away."""
    won, weight = np.array(markets, float).T
    low, high = share_interval(won * weight, weight, share)
    mean, count = (won * weight).sum() / weight.sum(), weight.sum() ** 2 / (weight**2).sum()
    z = NormalDist().inv_cdf((1 + share) / 2)
    for end in (low, high):
        assert math.isclose((mean - end) ** 2, z * z * end * (1 - end) / count, rel_tol=1e-9, abs_tol=1e-9)
    assert 0 <= low <= mean <= high <= 1
    if len({w for _, w in markets}) == 1:
        assert math.isclose(count, len(markets))


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """At least 90 of 100 intervals of 95 percent cover the truth, with autocorrelated forecasts of each market."""
    rng, of_mean, of_share, markets = np.random.default_rng(1), 0, 0, 20
    for study in range(100):
        won = rng.random(markets) < 0.3
        points = rng.integers(1, 30, markets).astype(float)
        lost = rng.gamma(0.5, 0.2, markets) * points
        low, high = mean_interval(lost, points, Sampling(0.95, 200, study))
        of_mean += low <= 0.1 <= high
        low, high = share_interval(won * points, points, 0.95)
        of_share += low <= 0.3 <= high
    assert min(of_mean, of_share) >= 90


def test_an_interval_of_markets_that_all_paid_the_same_is_null() -> None:
    """The sample does not show what the score is where markets pay otherwise; the score itself stays."""
    prices = md.testing.prices("polars", markets=4).filter(token_label="Yes")
    for score, payoff in ((md.brier, 0.0), (md.log_score, 1.0), (md.brier, 0.5)):
        paid = {market: {"Yes": payoff} for market in prices["market_id"].unique()}
        with pytest.warns(md.errors.FewMarketsWarning, match="all paid the same"):
            assert score(prices, paid, of="all").row(0)[3:5] == (None, None)
        assert score(prices, paid, of="all", interval=None).row(0)[2] > 0


def test_an_interval_by_event_is_that_of_one_market_per_event() -> None:
    """Markets of one event that repeat each other count once."""
    events = [i // 2 for i in range(24)]
    prices = prices_of(*((f"m{i:02}", str(i), "Yes", 0.1 + event / 16) for i, event in enumerate(events)))
    records = prices.select(
        "market_id", "token_id", payoff=pl.Series([event % 2.0 for event in events]), event_slug=pl.Series(events)
    )
    for score, options in ((md.brier, {"of": "all"}), (md.calibration, {"bins": 1, "interval": 0.9})):
        by_event = score(prices, records, cluster="event_slug", **options).to_dicts()[0]
        one_each = score(prices.gather_every(2), records, **options).to_dicts()[0]
        ends = [name for name in by_event if name.endswith(("_low", "_high"))]
        assert [by_event[end] for end in ends] == pytest.approx([one_each[end] for end in ends])


def test_open_markets_are_counted() -> None:
    """Scores of all markets say how many of the frame are left out as they are open; rows of a market say nothing."""
    prices, won = md.testing.prices("polars", markets=3), {"rain": "Yes", "snow": None, "wind": None, "hail": None}
    for frame in (prices, prices.to_pandas(), prices.lazy()):
        with pytest.warns(md.errors.OpenMarketsWarning, match="2 of 3 markets of the frame are open"):
            md.calibration(frame, won)
        with pytest.warns(md.errors.OpenMarketsWarning, match="ends_at"):
            md.brier(frame, won, of="all", interval=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        md.brier(prices, won)
        md.brier(prices, {"rain": "Yes", "hail": None}, of="all", interval=None)


def test_an_interval_of_few_markets_says_so() -> None:
    """Below ten, for each score that has an interval of two or more."""
    prices, markets = md.testing.prices("polars", markets=3), records().drop("event_slug")
    with pytest.warns(md.errors.FewMarketsWarning, match="as few as 3 effective clusters in 1 of 1 rows.*is null"):
        md.brier(prices, markets, of="all")
    topics = markets.with_columns(topic=pl.Series(["a", "a", "b"]))
    with pytest.warns(md.errors.FewMarketsWarning, match="as few as 2 effective clusters in 1 of 2 rows"):
        md.log_score(prices, topics, of="all", by="topic")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        md.brier(prices, markets, of="all", interval=None)


def test_groups_that_cannot_be_made_are_refused() -> None:
    """The error says what is allowed, before anything is computed."""
    prices, twice = md.testing.prices("polars", markets=3), records().with_columns(event=pl.lit("a"))
    options: Any
    outcomes: Any
    for options, outcomes, error, told in (
        ({"by": "topic"}, {"rain": "Yes"}, md.errors.ConfigError, "pass a frame of records"),
        ({"by": "topic"}, records(), md.errors.NotTidyError, "no column 'topic'"),
        ({"by": "token_ids"}, records(), md.errors.ConfigError, "one value per market"),
        ({"cluster": ["market_id", "day", "slug"]}, records(), md.errors.ConfigError, "a column and a pair"),
        (
            {"by": "event"},
            pl.concat([twice, twice.with_columns(event=pl.lit("b"))]),
            md.errors.NotTidyError,
            "two values",
        ),
        ({"cluster": "event_slug"}, {"rain": "Yes"}, md.errors.ConfigError, "pass a frame of records"),
        ({"cluster": "topic"}, records(), md.errors.NotTidyError, "no column 'topic'"),
    ):
        for verb in (md.brier, md.log_score, md.calibration):
            with pytest.raises(error, match=told):
                verb(prices, outcomes, **options)


def records(kind: str = "polars") -> Any:
    return md.testing.markets(kind, markets=3)  # type: ignore[arg-type]


def test_every_way_to_say_the_outcomes_gives_the_same_scores() -> None:
    """A frame of outcomes or records of any kind, and a mapping to ids or labels, mean the same."""
    prices = md.testing.prices("polars", markets=3)
    want = plain(md.brier(prices, {"rain": "11", "snow": "22", "wind": "31"}, of="token"))
    assert len(want) == 6
    ways: list[Any] = [
        records(), records("pandas"), records().to_arrow(), records().lazy(),
        md.outcomes(records()), md.outcomes(records("pandas")), records().select("market_id", "resolved_token_id"),
        {"rain": "Yes", "snow": "No", "wind": "Yes"},
        {"rain": "11", "snow": "22", "wind": "31", "hail": "Yes", "frost": None},
    ]  # fmt: skip
    for way, kind in zip(ways, ("polars", "pandas", "lazy") * 3, strict=True):
        assert plain(md.brier(in_kind(prices, kind), way, of="token")) == want


def test_a_token_that_the_frame_lacks_may_have_won() -> None:
    """The id of the token that the frame lacks says that the other one lost."""
    yes = md.testing.prices("polars", markets=2).filter(token_label="Yes")
    assert md.brier(yes, {"rain": "12", "snow": "22"}, of="token")["outcome"].to_list() == [0.0, 0.0]


def test_outcomes_that_say_nothing_are_refused() -> None:
    """The error says what is allowed, with the tokens of the market; the token of another market did not win."""
    outcomes: Any
    for outcomes, told in (
        ({"rain": "21", "snow": "21"}, r"outcomes\['rain'\] = '21' is refused"),
        ({"rain": "Maybe"}, "'11' \\(Yes\\)"),
        ({"rain": "yes"}, "'11' \\(Yes\\)"),
        ({"rain-tomorrow": "Yes"}, "a slug is none"),
        ({"rain": math.nan}, "None where the market has not resolved"),
        ({"rain": pd.NA}, "None where"),
        ({"rain": True}, "None where"),
        ({"rain": 1}, "None where"),
        ({"rain": "Yes", "hail": math.nan}, "None where"),
        ([("rain", "Yes")], "mapping of market id"),
        ("Yes", "mapping of market id"),
    ):
        for frame in (md.testing.prices("pandas", markets=2), md.testing.prices("polars", markets=2).lazy()):
            for verb in (md.brier, md.calibration):
                with pytest.raises(md.errors.ConfigError, match=told):
                    verb(frame, outcomes)


def test_arguments_of_scores_are_checked() -> None:
    """Each wrong argument is a ConfigError that says what is allowed."""
    frame, markets = md.testing.prices("polars"), records()
    for call in (
        lambda: md.brier(frame, markets, of="pair"),  # type: ignore[arg-type]
        lambda: md.brier(frame, markets, of="all", interval=95),
        lambda: md.brier(frame, markets, of="all", resamples=0),
        lambda: md.brier(frame, markets, seed=-1),
        lambda: md.log_score(frame, markets, seed=1.5),  # type: ignore[arg-type]
        lambda: md.log_score(frame, markets, clip=0.5),
        lambda: md.log_score(frame, markets, clip=0),
        lambda: md.calibration(frame, markets, bins=0),
        lambda: md.calibration(frame, markets, of="all"),  # type: ignore[arg-type]
        lambda: md.calibration(frame, markets, interval=0),
    ):
        with pytest.raises(md.errors.ConfigError, match="allowed"):
            call()
    with pytest.raises(md.errors.NotTidyError, match="resolved_token_id"):
        md.brier(frame, frame)


def test_outcomes_are_one_row_per_token() -> None:
    """1 for the token that the market resolved to, by id or label, 0 for others, null where it has not resolved."""
    markets = pl.DataFrame({
        "market_id": ["b", "a", "c"], "token_ids": [["3", "4"], ["1", "2"], ["5", "6", "7"]],
        "token_labels": [["Yes", "No"], ["Yes", "No"], ["x", "y", "z"]],
        "resolved_token_id": ["4", None, None], "resolved_token_label": [None, None, "x"],
        "end_date": ["2026-01-03T00:00:00Z", None, None],
        "closed_at": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", None],
        "resolved_at": ["2026-01-01T06:00:00Z", None, None],
    })  # fmt: skip
    day = pd.Timestamp("2026-01-01", tz="UTC")
    a, b = (None, day + pd.Timedelta("1D"), None), (day + pd.Timedelta("2D"), day, day + pd.Timedelta("6h"))
    want = [
        ("a", "1", "Yes", None, *a), ("a", "2", "No", None, *a), ("b", "3", "Yes", 0.0, *b), ("b", "4", "No", 1.0, *b),
        *(("c", *token, None, None, None) for token in (("5", "x", 1.0), ("6", "y", 0.0), ("7", "z", 0.0))),
    ]  # fmt: skip
    for frame in (markets, markets.to_pandas(), markets.to_arrow(), markets.lazy()):
        outcomes = md.outcomes(frame)
        assert type(outcomes) is type(frame)
        schema = nw.from_native(outcomes).collect_schema()
        assert schema.names() == [
            "market_id",
            "token_id",
            "token_label",
            "payoff",
            "ends_at",
            "closed_at",
            "resolved_at",
        ]
        assert {str(schema[c]) for c in schema.names()[4:]} == {str(nw.Datetime("us", "UTC"))}
        rows = [tuple(None if v is pd.NaT else v for v in row) for row in plain(outcomes)]
        assert rows == want
    assert len(md.outcomes(markets.head(0))) == 0


def prices_of(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """A price of each token at one time."""
    names = ["market_id", "token_id", "token_label", "price"]
    return pl.DataFrame(rows, names, orient="row").with_columns(ts=pl.lit(pd.Timestamp("2026-01-01", tz="UTC")))


def test_of_two_tokens_the_first_of_the_record_counts() -> None:
    """Up counts, because the record has it before Down, whatever the ids are."""
    markets = pl.DataFrame({
        "market_id": ["a", "b"], "token_ids": [["9", "1"], ["2", "8"]], "token_labels": [["Up", "Down"]] * 2,
        "resolved_token_id": ["9", "8"],
    })  # fmt: skip
    prices = prices_of(("a", "9", "Up", 0.75), ("a", "1", "Down", 0.5), ("b", "2", "Up", 0.5), ("b", "8", "Down", 0.25))
    for given_ in (markets, markets.to_arrow(), md.outcomes(markets), md.outcomes(markets.to_pandas())):
        assert plain(md.brier(prices, given_)) == [("a", 1, 0.0625, 1, 0, 0, 0), ("b", 1, 0.25, 1, 0, 0, 0)]
    assert md.outcomes(markets)["token_id"].to_list() == ["9", "1", "2", "8"]


def test_two_tokens_of_three_both_count() -> None:
    """A frame that lacks a token of a market of three has no two forecasts that are the same."""
    markets = pl.DataFrame({
        "market_id": ["a"], "token_ids": [["1", "2", "3"]], "token_labels": [["Yes", "No", "Tie"]],
        "resolved_token_id": ["3"],
    })  # fmt: skip
    prices = prices_of(("a", "1", "Yes", 0.5), ("a", "2", "No", 0.25))
    for given_ in (markets, md.outcomes(markets), {"a": {"1": 0.0, "2": 0.0, "3": 1.0}}):
        for frame in (prices, prices.lazy()):
            assert plain(md.brier(frame, given_)) == [("a", 2, (0.25 + 0.0625) / 2, 0, 0, 0, 0)]


def shares(**more: Any) -> pl.DataFrame:
    """A tied market and one that paid by a scale."""
    return pl.DataFrame({
        "market_id": ["tie", "scale"], "token_ids": [["1", "2"], ["3", "4"]], "token_labels": [["Yes", "No"]] * 2,
        "payoffs": [[0.5, 0.5], [0.3, 0.7]], **more,
    })  # fmt: skip


def test_payoffs_are_any_share(tmp_path: Path) -> None:
    """A tie pays 0.5 and a scalar market any share; records, an archive and mappings say so to scores."""
    want = [("scale", "3", "Yes", 0.3), ("scale", "4", "No", 0.7), ("tie", "1", "Yes", 0.5), ("tie", "2", "No", 0.5)]
    prices = prices_of(
        ("tie", "1", "Yes", 0.75), ("tie", "2", "No", 0.25), ("scale", "3", "Yes", 0.5), ("scale", "4", "No", 0.5)
    )
    archive = md.Archive(tmp_path)
    archive.add(markets=shares(resolved_at="2026-01-03T00:00:00Z"))
    assert plain(md.outcomes(archive.markets()))[0][-1] == pd.Timestamp("2026-01-03", tz="UTC")
    by_name = {"tie": {"Yes": 0.5, "No": 0.5}, "scale": {"3": 0.3, "4": 0.7}}
    for markets in (shares(), shares().to_pandas(), shares().to_arrow(), shares().lazy(), archive.markets()):
        assert [row[:4] for row in plain(md.outcomes(markets))] == want
        for paid in (markets, md.outcomes(markets), by_name):
            scores = plain(md.brier(prices, paid, of="token"))
            want_ = [(0.3, 1, 0.04), (0.7, 1, 0.04), (0.5, 1, 0.0625), (0.5, 1, 0.0625)]
            assert close([row[3:6] for row in scores], want_)
    (row,) = (row for row in plain(md.log_score(prices, by_name, of="token")) if row[1] == "3")
    assert math.isclose(row[5], math.log(2))
    assert close([plain(md.calibration(prices, by_name, 1, of="token", interval=None))[0][2:]], [(4, 0.5, 0.5, 0)])


def test_records_of_open_markets_have_outcomes_of_none() -> None:
    """Records without an outcome are open; records without a column of outcomes are refused."""
    records = shares().drop("payoffs")
    is_open = records.with_columns(resolved_token_id=pl.lit(None, pl.String))
    assert md.outcomes(is_open)["payoff"].null_count() == len(md.outcomes(is_open)) > 0
    for lacking in ("resolved_token_id", "token_ids"):
        markets = md.testing.markets("polars").drop("resolved_token_label", lacking)
        with pytest.raises(md.errors.NotTidyError, match=lacking):
            md.outcomes(markets)
    assert md.outcomes(records.clear()).columns == md.outcomes(is_open).columns


def test_times_of_an_open_market_are_those_of_its_record() -> None:
    """A market may close before its outcome is known; it has resolved when resolved_at says, else when it closed."""
    markets = shares(
        closed_at=["2026-01-02T00:00:00Z"] * 2, resolved_at=["2026-01-03T00:00:00Z", None]
    ).with_columns(payoffs=pl.when(pl.col("market_id") == "tie").then("payoffs"))  # fmt: skip
    got = md.outcomes(markets)
    assert got.filter(market_id="scale")["payoff"].null_count() == 2
    assert got["closed_at"].null_count() == 0
    prices = prices_of(("tie", "1", "Yes", 0.5), ("scale", "3", "Yes", 0.5))
    for told, days in ((got, 2), (markets, 2), (got.drop("resolved_at"), 1)):
        left = md.time_to_resolution(prices, told)["time_to_resolution"]
        assert left.to_list() == [days * 86_400, None]


def test_records_that_contradict_themselves_are_refused() -> None:
    """The error names the market and what does not fit."""
    good = {"market_id": ["m"], "token_ids": [["1", "2"]], "token_labels": [["Yes", "No"]], "resolved_token_id": [None]}
    change: dict[str, Any]
    for change, told in (
        ({"resolved_token_id": ["9"]}, "none of its tokens"),
        ({"resolved_token_label": ["Maybe"]}, "none of its tokens"),
        ({"token_labels": [["Yes"]]}, "2 token_ids and 1 token_labels"),
        ({"payoffs": [[1.0]]}, "2 token_ids and 1 payoffs"),
        ({"payoffs": [[100.0, 0.0]]}, "allowed are numbers from 0 to 1"),
        ({"payoffs": [[0.0, 1.0]], "resolved_token_id": ["1"]}, "but its payoffs are"),
    ):
        with pytest.raises(md.errors.NotTidyError, match=told):
            md.outcomes(pl.DataFrame({**good, **change}))


def test_a_reference_in_a_column_of_books_is_one_value_per_snapshot() -> None:
    """Rows of levels repeat the column; it counts once, as it does beside the mids of the same books."""
    books = md.testing.books("polars", markets=3).with_columns(naive=pl.lit(0.5))
    mids = md.mid(books).with_columns(naive=pl.lit(0.5))
    records = md.testing.markets("polars", markets=3)
    first, second = (
        md.skill(frame, records, reference="naive", interval=None).drop("left_out") for frame in (books, mids)
    )
    assert first.equals(second)
    assert first["points"].to_list() == [9, 9]
