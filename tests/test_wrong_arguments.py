"""Arguments of a wrong type or value: every one is a named error of this library, or is taken as what it is."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import marketdata as md

BOOKS = md.testing.books("polars", buckets=2)
PRICES = md.testing.prices("polars", buckets=2)
MARKETS = md.testing.markets("polars")
EVENTS = MARKETS.with_columns(exclusive=True, open_list=False)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INSTRUMENT = SimpleNamespace(id="11.X", price_precision=2, size_precision=0)
YES = BOOKS.filter(pl.col("token_label") == "Yes")
ORDERS = PRICES.head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"), size=10.0)
FILLS = md.execute(ORDERS, BOOKS, "1m", fees=0).fills
WRONG = [
    "x", "", 5, -1, 2.5, float("nan"), None, True, [], ["x"], [1], {"a": 1}, b"x", np.float64("nan"), np.array([1, 2]),
    Decimal("NaN"), dt.date(2026, 1, 1), dt.timedelta(1), object(), pd.NA, pd.NaT, pl.DataFrame(), PRICES, int,
]  # fmt: skip


def called(function: Callable[..., Any], **given: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function, and arguments that it takes."""
    return function, given


CALLS = [
    called(md.resample, frame=BOOKS, resolution="1h", fill="null"),
    called(md.align, frame=PRICES, resolution="1m"),
    called(md.depth, frame=BOOKS),
    called(md.imbalance, frame=BOOKS),
    called(md.features, frame=BOOKS, measures=["mid"]),
    called(md.fill_price, frame=BOOKS, size=1),
    called(md.sweep, frame=BOOKS, side="buy", size=1),
    called(md.to_wide, frame=BOOKS),
    called(md.complement, frame=BOOKS),
    called(md.overround, frame=BOOKS),
    called(md.overround, frame=BOOKS, markets=EVENTS),
    called(md.arbitrage, frame=BOOKS, markets=EVENTS, fees=0),
    called(md.probabilities, frame=PRICES),
    called(md.time_to_resolution, frame=PRICES, outcomes=MARKETS),
    called(md.around, frame=PRICES, moments=PRICES.select("ts"), before="1m", after="1m"),
    called(md.brier, frame=PRICES, outcomes=MARKETS),
    called(md.log_score, frame=PRICES, outcomes=MARKETS),
    called(md.calibration, frame=PRICES, outcomes=MARKETS),
    called(md.available_at, frame=PRICES, width="1m"),
    called(md.asof_join, left=PRICES, right=BOOKS.md.bbo(), width="1m"),
    called(md.gaps, frame=PRICES, width="1m"),
    called(md.ohlc, frame=PRICES, resolution="1h"),
    called(md.returns, frame=PRICES),
    called(md.check, frame=PRICES),
    called(md.concat, frames=[PRICES]),
    called(md.execute, orders=ORDERS, books=BOOKS, width="1m", fees=0),
    called(md.account, fills=FILLS, prices=PRICES, width="1m"),
    called(md.to_nautilus, frame=YES, instrument=INSTRUMENT, width="1m"),
    called(md.Fees.flat, rate=0.1),
    called(md.Fees.quadratic, rate=0.1),
    called(md.Fees.of, markets=MARKETS),
    called(md.testing.books),
    called(md.testing.prices),
    called(md.testing.metrics),
    called(md.testing.markets),
]
# A time in 1970 needs a grid of millions of buckets, and a user's function of fees may raise any error.
LEFT_OUT = {(md.align, "start"), *((f, "fees") for f, _ in CALLS)}


@pytest.mark.filterwarnings("ignore")
def test_no_wrong_argument_ends_in_an_error_of_the_inside(tmp_path: Path) -> None:
    """Each argument of functions, listings, reads and exports refuses by name what it does not take."""
    archive = md.Archive(tmp_path / "archive")
    archive.add(markets=MARKETS, prices=PRICES)
    (market,) = MARKETS["market_id"]
    calls = [
        *CALLS, called(archive.markets), called(archive.events), called(archive.series),
        called(archive.universe, at="2026-01-02"), called(archive.coverage), called(archive.prices, market=market),
        called(archive.export, view="prices", path=tmp_path / "prices.csv", market=market),
    ]  # fmt: skip
    for function, given in calls:
        for argument in inspect.signature(function).parameters:
            for wrong in WRONG if (function, argument) not in LEFT_OUT else []:
                with suppress(md.MarketDataError):
                    out = function(**{**given, argument: wrong})
                    if inspect.isgenerator(out):
                        list(out)


def public_functions() -> Iterator[Callable[..., Any]]:
    """Every public function and method, and the classes that users make objects of."""
    for name in dir(md):
        thing = getattr(md, name)
        if isinstance(thing, ModuleType):
            yield from (getattr(thing, inner) for inner in getattr(thing, "__all__", []))
        elif not (isinstance(thing, type) and issubclass(thing, Exception)):
            members = (getattr(thing, inner) for inner in dir(thing) if inner[0] != "_")
            yield from filter(callable, (thing, *members) if isinstance(thing, type) else (thing,))


def test_a_flag_is_true_or_false() -> None:
    """Any text, number or null is refused by the name of the flag, whatever the other arguments are."""
    client = md.Client("http://localhost", "a-key-of-my-own-0123456789")
    flags = [
        (function, flag.name)
        for function in public_functions()
        if str(getattr(function, "__module__", "")).startswith("marketdata")
        for flag in inspect.signature(function).parameters.values()
        if "bool" in str(flag.annotation) or isinstance(flag.default, bool)
    ]
    names = {(getattr(function, "__qualname__", ""), flag) for function, flag in flags}
    assert {("rebuild", "unchanged"), ("Archive.pull", "dry_run"), ("Client", "strict"), ("prices", "both")} <= names
    for function, flag in flags:
        given = dict.fromkeys(("base_url", "api_key"), "http://localhost") if function is md.Client else {}
        parameters = inspect.signature(function).parameters.values()
        required = [one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
        others: list[Any] = [md.Accessor(BOOKS) for _ in required]
        if function.__qualname__.startswith("Client."):
            others = [client, "m", "2026-01-01", "2026-01-02"][: len(required)]
        for wrong in ["no", "", 0, 1, 1.0, [], b"x", np.array([True, False]), pd.NA]:
            with pytest.raises(md.errors.ConfigError, match=f"^{flag}=.*; allowed are False, True") as refused:
                function(*others, **{**given, flag: wrong})
            assert refused.value.argument == flag


def test_a_chart_names_what_it_cannot_draw() -> None:
    """Axes that are none, columns that are no number, and a token that is a frame."""
    for given in ({"ax": "x"}, {"bins": 0}, {"bins": "many"}, {"token": YES}):
        with pytest.raises(md.errors.ConfigError, match=next(iter(given))):
            md.plot.depth(YES, **given)


def test_numbers_beyond_all_bounds_are_refused() -> None:
    """A number of buckets that no time has, and a fee in basis points, are named as any other wrong number is."""
    for wrong in (10**8, 10**20):
        for name in ("latency", "exit_after"):
            with pytest.raises(md.errors.ConfigError, match=f"{name}={wrong} is refused"):
                md.execute(ORDERS, BOOKS, "1m", fees=0, **{name: wrong})  # type: ignore[arg-type]
    for call in (md.Fees.flat, md.Fees.quadratic):
        with pytest.raises(md.errors.ConfigError, match=r"=500 is refused; .* from 0 to 1"):
            call(500)


def test_a_width_is_refused_by_the_name_of_its_argument() -> None:
    """No width is called ``resolution`` that the caller gave as something else."""
    calls = (("resolution", md.rebuild, []), ("width", md.diff, BOOKS), ("width", md.resample, PRICES, "1h"))
    for name, function, *others in calls:
        with pytest.raises(md.errors.ConfigError, match=f"^{name}='14s' does not exist") as refused:
            function(*others, **{name: "14s"})
        assert refused.value.argument == name


def test_a_table_of_ones_own_is_told_what_prices_need(tmp_path) -> None:
    """A table without a column of ours, a file that lacks its price, and a poll at an odd time say what to do."""
    own = pd.DataFrame({"when": ["2026-01-01 12:00"], "contract": ["rain"], "cents": [41]})
    with pytest.raises(md.errors.NotTidyError, match="A tidy prices frame needs the columns"):
        md.resample(own, "1h")
    own.to_csv(path := tmp_path / "own.csv", index=False)
    archive = md.Archive(tmp_path / "history")
    with pytest.raises(md.errors.ConfigError, match=r"lacks token_id, price"):
        archive.add_files(path)
    columns = {"ts": "when", "token_id": "contract"}
    with pytest.raises(md.errors.ConfigError, match=r"looks most like prices.*\n.*columns=\{'price': 'theirs'\}"):
        archive.add_files(path, columns=columns)
    poll = pd.DataFrame({"ts": pd.to_datetime(["2026-01-01T12:30:10Z"]), "poll": [0.5]})
    with pytest.raises(md.errors.ConfigError, match="polls, have the time at which they were known as available_at"):
        md.asof_join(md.testing.prices(), poll, by=())
    with pytest.raises(md.errors.GridError, match="such as polls, say when each was known in a column avail"):
        md.asof_join(md.testing.prices(), poll, by=(), width="1m")
    with pytest.raises(md.errors.ConfigError, match=r"Without a key there are md.Client\('polymarket'\)"):
        md.Client("")
