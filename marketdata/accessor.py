"""``df.md``: the functions on tidy frames as methods; stateless, each checks the frame."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from marketdata import display
from marketdata.points.columns import Data
from marketdata.points.returns import How
from marketdata.tidy import (
    answers,
    asof,
    cross_token,
    event_windows,
    features,
    forecast_scores,
    frames,
    liquidity,
    outcomes,
    quality,
    quotes,
    rebuild,
    resample,
    returns,
    shapes,
    trade_cost,
)
from marketdata.tidy.export import pivot
from marketdata.tidy.fill import Fill, align
from marketdata.times import TimeLike

F = TypeVar("F")


class _Suggestions:
    """Names the nearest attribute where one does not exist; to type checkers it still does not."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            # Notebooks, unlike plain Python, suggest nothing by themselves.
            from difflib import get_close_matches

            hint = "".join(f"; did you mean {near!r}?" for near in get_close_matches(name, dir(type(self)), n=1))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")


class Accessor(_Suggestions, Generic[F]):
    """The functions of ``marketdata`` on a tidy ``frame`` of any kind, as methods: ``df.md``.

    Examples
    --------
    >>> md.testing.books().md.resample("1h").md.bbo()["best_bid"].tolist()
    [0.42, 0.56]
    """

    def __init__(self, frame: F) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        verbs = (name for name in vars(Accessor) if not name.startswith("_"))
        return f"The verbs of tidy frames: {', '.join(verbs)}. help(df.md.bbo) explains one."

    def resample(self, resolution: str, *, fill: Fill = None, resolution_of: str | None = None) -> F:
        """Aggregate to coarser buckets by the service's rule; see `marketdata.resample`."""
        return resample.resample(self._frame, resolution, fill=fill, resolution_of=resolution_of)

    def bbo(self) -> F:
        """Best bid and offer of every book; see `marketdata.bbo`."""
        return quotes.bbo(self._frame)

    def mid(self) -> F:
        """Mid price of every book; see `marketdata.mid`."""
        return quotes.mid(self._frame)

    def spread(self) -> F:
        """Spread of every book; see `marketdata.spread`."""
        return quotes.spread(self._frame)

    def depth(self, *, levels: int | None = None, within: float | None = None) -> F:
        """Shares that rest on each side of every book; see `marketdata.depth`."""
        return liquidity.depth(self._frame, levels=levels, within=within)

    def imbalance(self, *, levels: int | None = None, within: float | None = None) -> F:
        """Relative surplus of bid over ask depth, -1 to 1; see `marketdata.imbalance`."""
        return liquidity.imbalance(self._frame, levels=levels, within=within)

    def microprice(self) -> F:
        """Mid weighted towards the side where less rests; see `marketdata.microprice`."""
        return liquidity.microprice(self._frame)

    def spread_bps(self) -> F:
        """Spread relative to the mid, in 1/10000; see `marketdata.spread_bps`."""
        return liquidity.spread_bps(self._frame)

    def locked(self) -> F:
        """Whether best bid and best ask are equal; see `marketdata.locked`."""
        return liquidity.locked(self._frame)

    def crossed(self) -> F:
        """Whether the best bid is above the best ask; see `marketdata.crossed`."""
        return liquidity.crossed(self._frame)

    def features(self, measures: Iterable[features.Feature]) -> F:
        """Many measures of every book in one pass; see `marketdata.features`."""
        return features.features(self._frame, measures)

    def fill_price(self, size: float | None = None, *, fees: Any = None) -> F:
        """Average price of taking so many shares from each side; see `marketdata.fill_price`."""
        return trade_cost.fill_price(self._frame, size, fees=fees)

    def sweep(self, side: str, *, size: float | None = None, notional: float | None = None, fees: Any = None) -> F:
        """Take one side of every book up to an amount: cost, filled and shortfall; see `marketdata.sweep`."""
        return trade_cost.sweep(self._frame, side, size=size, notional=notional, fees=fees)

    def ladder(self, ts: Any) -> F:
        """The book of each token at one moment; see `marketdata.ladder`."""
        return shapes.ladder(self._frame, ts)

    def to_wide(self, levels: int | None = None) -> F:
        """One row per snapshot, levels side by side; see `marketdata.to_wide`."""
        return shapes.to_wide(self._frame, levels)

    def from_wide(self) -> F:
        """Tidy books of wide ones; see `marketdata.from_wide`."""
        return shapes.from_wide(self._frame)

    def explode(self) -> F:
        """Tidy books of nested ones, a row per level; see `marketdata.explode`."""
        return shapes.explode(self._frame)

    def nest(self) -> F:
        """Nested books of tidy ones, a row per snapshot; see `marketdata.nest`."""
        return shapes.nest(self._frame)

    def rebuild(
        self,
        every: str = "1s",
        *,
        max_gap: str = "5m",
        max_age: str = "1h",
        unchanged: bool = True,
        clock: rebuild.Clock = "timestamp",
        frame: frames.FrameKind = "pandas",
    ) -> F:
        """Books of recorded changes; see `marketdata.rebuild`."""
        how: dict[str, Any] = {"max_gap": max_gap, "max_age": max_age, "unchanged": unchanged, "clock": clock}
        return rebuild.rebuild(self._frame, every, frame=frame, **how)  # type: ignore[no-any-return]

    def diff(self, *, resolution_of: str = "1m") -> F:
        """The changes from each book to the next; see `marketdata.diff`."""
        return rebuild.diff(self._frame, resolution_of=resolution_of)  # type: ignore[no-any-return]

    def complement(self, *, tokens: Any = None) -> F:
        """The book of each token as the other token's book implies it; see `marketdata.complement`."""
        return cross_token.complement(self._frame, tokens=tokens)

    def overround(self, *, tokens: Any = None, by: cross_token.By = "market", events: Any = None) -> F:
        """The price of all tokens of a market together, beyond 1; see `marketdata.overround`."""
        return cross_token.overround(self._frame, tokens=tokens, by=by, events=events)

    def arbitrage(
        self,
        *,
        tokens: Any = None,
        by: cross_token.By = "market",
        events: Any = None,
        fees: Any = None,
        size: float | None = None,
    ) -> F:
        """Where all tokens together cost less, or bring more, than 1; see `marketdata.arbitrage`."""
        return cross_token.arbitrage(self._frame, tokens=tokens, by=by, events=events, fees=fees, size=size)

    def probabilities(self, *, tokens: Any = None, by: cross_token.By = "market", events: Any = None) -> F:
        """Prices scaled so that the tokens of a market sum to 1; see `marketdata.probabilities`."""
        return cross_token.probabilities(self._frame, tokens=tokens, by=by, events=events)

    def outcomes(self) -> F:
        """Payoffs of the tokens of market records; see `marketdata.outcomes`."""
        return outcomes.outcomes(self._frame)

    def without_answers(self) -> F:
        """Market records without what was known only later; see `marketdata.without_answers`."""
        return answers.without_answers(self._frame)

    def time_to_resolution(self, outcomes: Any) -> F:
        """Add the time from each row to the resolution of its market; see `marketdata.time_to_resolution`."""
        return event_windows.time_to_resolution(self._frame, outcomes)

    def around(
        self,
        moments: Any,
        *,
        before: str | timedelta,
        after: str | timedelta,
        resolution: str | None = None,
    ) -> F:
        """Cut windows around moments out of the frame; see `marketdata.around`."""
        return event_windows.around(self._frame, moments, before=before, after=after, resolution=resolution)

    def brier(
        self,
        outcomes: Any,
        *,
        of: forecast_scores.Of = "token",
        by: forecast_scores.By = None,
        horizons: forecast_scores.Horizons = None,
        interval: float | None = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> F:
        """Mean squared error of prices; see `marketdata.brier`."""
        return forecast_scores.brier(
            self._frame,
            outcomes,
            of=of,
            by=by,
            horizons=horizons,
            interval=interval,
            resamples=resamples,
            seed=seed,
        )

    def log_score(
        self,
        outcomes: Any,
        *,
        of: forecast_scores.Of = "token",
        by: forecast_scores.By = None,
        horizons: forecast_scores.Horizons = None,
        clip: float = 1e-6,
        interval: float | None = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> F:
        """Mean negative log-likelihood of what came true; see `marketdata.log_score`."""
        return forecast_scores.log_score(
            self._frame,
            outcomes,
            of=of,
            by=by,
            horizons=horizons,
            clip=clip,
            interval=interval,
            resamples=resamples,
            seed=seed,
        )

    def calibration(
        self,
        outcomes: Any,
        bins: int = 10,
        *,
        of: Literal["token", "market"] = "token",
        by: forecast_scores.By = None,
        horizons: forecast_scores.Horizons = None,
        interval: float | None = None,
    ) -> F:
        """How often tokens priced at p won; see `marketdata.calibration`."""
        return forecast_scores.calibration(
            self._frame, outcomes, bins, of=of, by=by, horizons=horizons, interval=interval
        )

    def available_at(self, resolution: str) -> F:
        """Add the end of the bucket, from which a row is known; see `marketdata.available_at`."""
        return asof.available_at(self._frame, resolution)

    def asof_join(
        self,
        right: Any,
        *,
        on: str = "ts",
        by: str | Iterable[str] | None = None,
        right_resolution: str | None = None,
        tolerance: str | timedelta | None = None,
        allow_exact_matches: bool = False,
        suffix: str = "_right",
    ) -> F:
        """Add the latest row of another frame that was known before; see `marketdata.asof_join`."""
        return asof.asof_join(
            self._frame,
            right,
            on=on,
            by=by,
            right_resolution=right_resolution,
            tolerance=tolerance,
            allow_exact_matches=allow_exact_matches,
            suffix=suffix,
        )

    def gaps(self, resolution: str) -> F:
        """Ranges of buckets that are missing; see `marketdata.gaps`."""
        return asof.gaps(self._frame, resolution)

    def align(
        self,
        resolution: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        fill: Fill = None,
        resolution_of: str | None = None,
    ) -> F:
        """Every token on one common grid of buckets; see `marketdata.align`."""
        return align(self._frame, resolution, start=start, end=end, fill=fill, resolution_of=resolution_of)

    def ohlc(self, resolution: str, value: str | None = None, *, resolution_of: str | None = None) -> F:
        """First, greatest, least and last value of each bucket; see `marketdata.ohlc`."""
        return returns.ohlc(self._frame, resolution, value, resolution_of=resolution_of)

    def returns(self, value: str | None = None, *, how: How = "simple", resolution: str | None = None) -> F:
        """Change of a value from the row before; see `marketdata.returns`."""
        return returns.returns(self._frame, value, how=how, resolution=resolution)

    def log_odds(self, value: str | None = None) -> F:
        """Logarithm of the odds of a probability; see `marketdata.log_odds`."""
        return returns.log_odds(self._frame, value)

    def check(self, resolution: str | None = None) -> F:
        """Check the frame for what is wrong or odd; see `marketdata.check`."""
        return quality.check(self._frame, resolution)

    def pivot(self, value: str | None = None, *, columns: str = "token_id") -> Any:
        """One value as a matrix: a row per time, a column per token; see `marketdata.pivot`."""
        return pivot.pivot(self._frame, value, columns=columns)

    def show(self, *, id_width: int | None = 16) -> display.Shown:
        """The frame to print, its long ids shortened; see `marketdata.show`."""
        return display.show(self._frame, id_width=id_width)

    @property
    def plot(self) -> Plots:
        """Charts of the frame; see `marketdata.plot`."""
        return Plots(self._frame)


class Plots(_Suggestions):
    """``df.md.plot``: the functions of ``marketdata.plot`` on the frame."""

    def __init__(self, frame: Any) -> None:
        from marketdata import plot  # only who draws loads it

        self._frame, self._plot = frame, plot

    def prices(self, ax: Any = None, **more: Any) -> Any:
        """The price of each token; see `marketdata.plot.prices`."""
        return self._plot.prices(self._frame, ax, **more)

    def price_band(self, ax: Any = None, **more: Any) -> Any:
        """The mid of each token, and bid to ask as a band; see `marketdata.plot.price_band`."""
        return self._plot.price_band(self._frame, ax, **more)

    def book(self, ts: Any = None, **more: Any) -> Any:
        """The order book through time, and at one moment; see `marketdata.plot.book`."""
        return self._plot.book(self._frame, ts, **more)

    def depth(self, ax: Any = None, **more: Any) -> Any:
        """Resting orders over time, as a heat map; see `marketdata.plot.depth`."""
        return self._plot.depth(self._frame, ax, **more)

    def metrics(self, ax: Any = None, **more: Any) -> Any:
        """One metric over time; see `marketdata.plot.metrics`."""
        return self._plot.metrics(self._frame, ax, **more)

    def ladder(self, ts: Any = None, ax: Any = None, **more: Any) -> Any:
        """The book of one token at one moment; see `marketdata.plot.ladder`."""
        return self._plot.ladder(self._frame, ts, ax, **more)

    def calibration(self, outcomes: Any, ax: Any = None, **more: Any) -> Any:
        """How often tokens priced at p won; see `marketdata.plot.calibration`."""
        return self._plot.calibration(self._frame, outcomes, ax, **more)

    def outcomes(self, ax: Any = None, **more: Any) -> Any:
        """The outcomes of a market or an event, stacked through time; see `marketdata.plot.outcomes`."""
        return self._plot.outcomes(self._frame, ax, **more)

    def account(self, **more: Any) -> Any:
        """An account through time, with its drawdown; see `marketdata.plot.account`."""
        return self._plot.account(self._frame, **more)

    def coverage(self, ax: Any = None, **more: Any) -> Any:
        """A coverage frame of an archive; see `marketdata.plot.coverage`."""
        return self._plot.coverage(self._frame, ax, **more)


def register_pandas() -> None:
    """Give every pandas DataFrame its ``.md``."""
    import pandas as pd

    if getattr(pd.DataFrame, "md", None) is not Accessor:
        pd.api.extensions.register_dataframe_accessor("md")(Accessor)
    display.install(pd.DataFrame)


def register_polars() -> None:
    """Give every polars DataFrame and LazyFrame its ``.md``."""
    import polars as pl

    for kind, register in (
        (pl.DataFrame, pl.api.register_dataframe_namespace),
        (pl.LazyFrame, pl.api.register_lazyframe_namespace),
    ):
        if not hasattr(kind, "md"):
            register("md")(Accessor)
    display.install(pl.DataFrame)


def register_dask() -> None:
    """Give every Dask DataFrame its ``.md``."""
    import dask.dataframe as dd
    from dask.dataframe import extensions

    untyped: Any = extensions
    if getattr(dd.DataFrame, "md", None) is not Accessor:
        untyped.register_dataframe_accessor("md")(Accessor)


def to_frame(columns: Data, frame: frames.FrameKind) -> Any:
    """A tidy frame of columns that has ``.md``, whether or not `md` was registered before."""
    register(frame)
    return frames.to_frame(columns, frame)


def register(frame: frames.FrameKind) -> None:
    """Give the frames of one kind their ``.md``."""
    (register_pandas if frame == "pandas" else register_polars)()
