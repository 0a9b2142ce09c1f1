"""``df.md``: the functions on tidy frames as methods. They keep nothing, and each checks the frame."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, TypeVar

import marketdata.recordings.rebuild
import marketdata.tidy.asof
import marketdata.tidy.backtests
import marketdata.tidy.before_end
import marketdata.tidy.book_measures
import marketdata.tidy.claims
import marketdata.tidy.cluster_mean
import marketdata.tidy.cross_token
import marketdata.tidy.event_windows
import marketdata.tidy.execute
import marketdata.tidy.forward
import marketdata.tidy.measures
import marketdata.tidy.names
import marketdata.tidy.outcomes
import marketdata.tidy.pnl
import marketdata.tidy.quality
import marketdata.tidy.records
import marketdata.tidy.resample
import marketdata.tidy.returns
import marketdata.tidy.scores
import marketdata.tidy.shapes
import marketdata.tidy.skill
import marketdata.tidy.slope
import marketdata.tidy.trades
from marketdata import plot, studies
from marketdata.adapters.dispatch import F, names_of
from marketdata.errors import NotTidyError
from marketdata.points.arguments import P
from marketdata.points.schema import TRADES, Kind, kind_of
from marketdata.tidy.measures import TOP_KINDS as _TOP
from marketdata.tidy.resample import RESAMPLED_KINDS as _SAMPLED
from marketdata.tidy.returns import PRICED_KINDS as _ANY

if TYPE_CHECKING:
    from marketdata.fetch.checkpoint import Report

R = TypeVar("R")
_REPORT = "_marketdata_report"
# Columns of frames that are no view of a market.
_COLUMNS: dict[str, frozenset[str]] = {
    "records": frozenset({"market_id"}),
    "changes": frozenset({"ts", "token_id", "side", "price", "size"}),
    "trades": frozenset(TRADES),
    "orders": frozenset({"ts", "market_id", "token_id", "side", "size"}),
    "fills": frozenset({"ts", "market_id", "token_id", "side", "shares", "notional", "fee"}),
}
_Fitting = Kind | Literal["records", "changes", "orders", "fills"]


def _result(
    function: Callable[Concatenate[Any, P], R], *kinds: _Fitting
) -> Callable[Concatenate[Accessor[Any] | Plots, P], R]:
    """A function of a frame as a method of the accessor, with the same further arguments.

    It is completed on frames of these kinds; without any, on all.
    """

    def method(accessor: Accessor[Any] | Plots, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(accessor._frame, *args, **kwargs)  # noqa: SLF001

    module = "marketdata.plot" if function.__module__.startswith("marketdata.plot.") else "marketdata"
    name = function.__name__
    method.__name__, method.__qualname__ = name, f"Accessor.{name}"
    about = inspect.cleandoc(function.__doc__ or "")
    method.__doc__ = f"{about}\n\nThe frame itself is the first argument; see `{module}.{name}`."
    method.__wrapped__ = function  # type: ignore[attr-defined] # whose signature it has
    method.kinds = kinds  # type: ignore[attr-defined]
    return method


def _method(function: Callable[Concatenate[Any, P], Any], *kinds: _Fitting) -> Callable[Concatenate[Accessor[F], P], F]:
    """The same for a function that gives back a frame of the kind that it was given."""
    return _result(function, *kinds)


def _fits(names: list[str], kinds: tuple[Any, ...]) -> bool:
    """Whether a frame with these columns has one of the kinds."""
    columns, views = {*names}, [kind for kind in kinds if kind not in _COLUMNS]
    for kind in (kind for kind in kinds if kind in _COLUMNS):
        if columns >= _COLUMNS[kind] and not columns & ({"ts"} if kind == "records" else {"level"}):
            return True
    try:
        return not kinds or bool(views and kind_of(names, views))
    except NotTidyError:
        return False


class _Suggestions:
    """Names the nearest attribute where one does not exist; to type checkers it still does not."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            # Notebooks, unlike plain Python, suggest nothing by themselves.
            from difflib import get_close_matches

            near = get_close_matches(name, [*dir(type(self)), *vars(self)], n=1)
            hint = "".join(f"; did you mean {one!r}?" for one in near)
            owner = "df.md" if isinstance(self, Accessor) else "df.md.plot"
            raise AttributeError(f"{owner} has no {name!r}{hint}")


_BOOKS: tuple[Kind, ...] = ("books", "nested")
_PRICES: tuple[Kind, ...] = (*_TOP, "prices")


class Plots(_Suggestions):
    """``df.md.plot``: the functions of ``marketdata.plot`` on the frame."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    account = _result(plot.account)
    book = _result(plot.book)
    calibration = _result(plot.calibration)
    candles = _result(plot.candles)
    coverage = _result(plot.coverage)
    depth = _result(plot.depth)
    ladder = _result(plot.ladder)
    metrics = _result(plot.metrics)
    outcomes = _result(plot.outcomes)
    prices = _result(plot.prices)


class Accessor(_Suggestions, Generic[F]):
    """The functions of ``marketdata`` whose first argument is a frame, as methods of the frame: ``df.md``.

    Completion (``df.md.<tab>``) lists those that fit the columns of the frame.

    Examples
    --------
    >>> md.testing.books().md.resample("1h").md.bbo()["best_bid"].tolist()
    [0.42, 0.56]
    """

    def __init__(self, frame: F) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        is_property = {name: isinstance(getattr(Accessor, name), property) for name in dir(self)}
        functions, properties = (", ".join(n for n, one in is_property.items() if one is k) for k in (False, True))
        return (
            f"Functions for this frame: {functions}. help(df.md.{functions.partition(',')[0]}) explains one.\n"
            f"Without brackets: {properties}."
        )

    def __dir__(self) -> list[str]:
        names = [str(name) for name in names_of(self._frame)]
        methods = {name: getattr(Accessor, name) for name in dir(Accessor) if not name.startswith("_")}
        return [name for name, method in methods.items() if _fits(names, getattr(method, "kinds", ()))]

    # Each public function that takes a frame first has a line here; `make stubs` writes the lines of measures.
    align = _method(marketdata.tidy.resample.align, "series")
    resample = _method(marketdata.tidy.resample.resample, *_SAMPLED)
    features = _method(marketdata.tidy.measures.features, *_TOP)
    named = _method(marketdata.tidy.names.named)
    to_wide = _method(marketdata.tidy.shapes.to_wide, *_BOOKS)
    explode = _method(marketdata.tidy.shapes.explode, "nested")
    nest = _method(marketdata.tidy.shapes.nest, "books")
    diff = _method(marketdata.recordings.rebuild.diff, *_BOOKS)
    rebuild = _method(marketdata.recordings.rebuild.rebuild, "changes")
    complement = _method(marketdata.tidy.cross_token.complement, "books")
    overround = _method(marketdata.tidy.cross_token.overround, *_TOP)
    arbitrage = _method(marketdata.tidy.cross_token.arbitrage, *_TOP)
    probabilities = _method(marketdata.tidy.cross_token.probabilities, *_PRICES)
    event_distribution = _method(marketdata.tidy.claims.event_distribution, *_PRICES)
    event_contradictions = _method(marketdata.tidy.claims.event_contradictions, *_PRICES)
    time_to_resolution = _method(marketdata.tidy.outcomes.time_to_resolution, *_ANY)
    outcomes = _method(marketdata.tidy.outcomes.outcomes, "records")
    without_answers = _method(marketdata.tidy.records.without_answers, "records")
    around = _method(marketdata.tidy.event_windows.around, *_ANY)
    forward_returns = _method(marketdata.tidy.forward.forward_returns, *_TOP)
    study = _result(studies.study, *_TOP)
    execute = _result(marketdata.tidy.execute.execute, "orders")
    account = _result(marketdata.tidy.execute.account, "fills")
    to_nautilus = _result(marketdata.tidy.backtests.to_nautilus, *_TOP)
    effective_spread = _method(marketdata.tidy.trades.effective_spread, "trades")
    vwap = _method(marketdata.tidy.trades.vwap, "trades")
    pnl = _method(marketdata.tidy.pnl.pnl, "trades")
    cluster_mean = _method(marketdata.tidy.cluster_mean.cluster_mean)
    brier = _method(marketdata.tidy.scores.brier, "trades", *_PRICES)
    log_score = _method(marketdata.tidy.scores.log_score, "trades", *_PRICES)
    calibration = _method(marketdata.tidy.scores.calibration, "trades", *_PRICES)
    skill = _method(marketdata.tidy.skill.skill, *_PRICES)
    slope = _method(marketdata.tidy.slope.slope)
    before_end = _method(marketdata.tidy.before_end.before_end, *_PRICES)
    available_at = _method(marketdata.tidy.asof.available_at, *_ANY)
    asof_join = _method(marketdata.tidy.asof.asof_join, *_ANY)
    gaps = _method(marketdata.tidy.asof.gaps, *_ANY)
    ohlc = _method(marketdata.tidy.returns.ohlc, *_ANY)
    returns = _method(marketdata.tidy.returns.returns, *_ANY)
    check = _method(marketdata.tidy.quality.check, *_TOP, "trades", "prices", "metrics")
    bbo = _method(marketdata.tidy.book_measures.bbo, *_TOP)
    depth = _method(marketdata.tidy.book_measures.depth, *_BOOKS)
    fill_price = _method(marketdata.tidy.book_measures.fill_price, *_BOOKS)
    imbalance = _method(marketdata.tidy.book_measures.imbalance, *_BOOKS)
    microprice = _method(marketdata.tidy.book_measures.microprice, *_TOP)
    mid = _method(marketdata.tidy.book_measures.mid, *_TOP)
    spread = _method(marketdata.tidy.book_measures.spread, *_TOP)
    sweep = _method(marketdata.tidy.book_measures.sweep, *_BOOKS)
    show = _result(marketdata.tidy.names.show)

    @property
    def report(self) -> Report | None:
        """The report of the fetch that made this frame, None for copies and others; see `marketdata.Client.books`."""
        report: Report | None = getattr(self._frame, _REPORT, None)
        return report

    @property
    def plot(self) -> Plots:
        """Charts of the frame; see `marketdata.plot`."""
        return Plots(self._frame)


def carry(frame: Any, report: Report | None) -> Any:
    """The frame, whose ``.md.report`` is this one; copies of the frame have none."""
    # pandas takes other attributes for columns.
    object.__setattr__(frame, _REPORT, report)
    return frame
