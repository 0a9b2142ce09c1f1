"""``df.md``: the functions on tidy frames as methods; stateless, each checks the frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from marketdata import display
from marketdata.points.columns import Data
from marketdata.tidy import (
    answers,
    asof,
    baskets,
    cross_token,
    event_windows,
    features,
    fill,
    forecast_scores,
    forward,
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

# The frame that has the accessor.
F = TypeVar("F")
# The further arguments of a function of frames.
P = ParamSpec("P")


def _method(function: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Accessor[F], P], F]:
    """A function of a frame as a method of the accessor, with the same further arguments."""

    def method(accessor: Accessor[F], /, *args: P.args, **kwargs: P.kwargs) -> F:
        return function(accessor._frame, *args, **kwargs)  # type: ignore[no-any-return] # noqa: SLF001

    name, summary = function.__name__, (function.__doc__ or "").partition("\n")[0]
    method.__name__, method.__qualname__ = name, f"Accessor.{name}"
    method.__doc__ = f"{summary.partition('; see ')[0].removesuffix('.')}; see `marketdata.{name}`."
    method.__wrapped__ = function  # type: ignore[attr-defined] # whose signature it has
    return method


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

    # A method hides the module of its name, so it comes behind the others of that module.
    resample = _method(resample.resample)
    bbo = _method(quotes.bbo)
    mid = _method(quotes.mid)
    spread = _method(quotes.spread)
    depth = _method(liquidity.depth)
    imbalance = _method(liquidity.imbalance)
    microprice = _method(liquidity.microprice)
    spread_bps = _method(liquidity.spread_bps)
    locked = _method(liquidity.locked)
    crossed = _method(liquidity.crossed)
    features = _method(features.features)
    fill_price = _method(trade_cost.fill_price)
    sweep = _method(trade_cost.sweep)
    ladder = _method(shapes.ladder)
    to_wide = _method(shapes.to_wide)
    from_wide = _method(shapes.from_wide)
    explode = _method(shapes.explode)
    nest = _method(shapes.nest)
    diff = _method(rebuild.diff)
    rebuild = _method(rebuild.rebuild)
    complement = _method(cross_token.complement)
    overround = _method(cross_token.overround)
    arbitrage = _method(cross_token.arbitrage)
    probabilities = _method(cross_token.probabilities)
    event_overround = _method(baskets.event_overround)
    event_arbitrage = _method(baskets.event_arbitrage)
    event_probabilities = _method(baskets.event_probabilities)
    outcomes = _method(outcomes.outcomes)
    without_answers = _method(answers.without_answers)
    time_to_resolution = _method(event_windows.time_to_resolution)
    around = _method(event_windows.around)
    forward_returns = _method(forward.forward_returns)
    brier = _method(forecast_scores.brier)
    log_score = _method(forecast_scores.log_score)
    calibration = _method(forecast_scores.calibration)
    available_at = _method(asof.available_at)
    asof_join = _method(asof.asof_join)
    gaps = _method(asof.gaps)
    align = _method(fill.align)
    ohlc = _method(returns.ohlc)
    log_odds = _method(returns.log_odds)
    returns = _method(returns.returns)
    check = _method(quality.check)

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

    def candles(self, ax: Any = None, **more: Any) -> Any:
        """The bars of `marketdata.ohlc` as candles; see `marketdata.plot.candles`."""
        return self._plot.candles(self._frame, ax, **more)

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


def register_polars() -> None:
    """Give every polars DataFrame and LazyFrame its ``.md``."""
    import polars as pl

    for kind, register in (
        (pl.DataFrame, pl.api.register_dataframe_namespace),
        (pl.LazyFrame, pl.api.register_lazyframe_namespace),
    ):
        if not hasattr(kind, "md"):
            register("md")(Accessor)


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
    (register_pandas if frames.frame_kind(frame) == "pandas" else register_polars)()
