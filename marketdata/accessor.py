"""``df.md``: the functions on tidy frames as methods. They keep nothing, and each checks the frame."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal

from marketdata import display
from marketdata.adapters.dispatch import F, names_of
from marketdata.errors import NotTidyError
from marketdata.points.arguments import P
from marketdata.points.measures import MEASURES
from marketdata.points.schema import Kind, kind_of
from marketdata.recordings import rebuild
from marketdata.tidy import (
    asof,
    book_measures,
    cross_token,
    event_windows,
    forward,
    measures,
    outcomes,
    quality,
    records,
    resample,
    returns,
    scores,
    shapes,
)
from marketdata.tidy.measures import KINDS as _TOP
from marketdata.tidy.returns import KINDS as _ANY

if TYPE_CHECKING:
    from marketdata.fetch.checkpoint import Report

_REPORT = "_marketdata_report"


def _method(
    function: Callable[Concatenate[Any, P], Any], *kinds: Kind | Literal["records", "changes"]
) -> Callable[Concatenate[Accessor[F], P], F]:
    """A function of a frame as a method of the accessor, with the same further arguments.

    It is completed on frames of these kinds; without any, on all.
    """

    def method(accessor: Accessor[F], /, *args: P.args, **kwargs: P.kwargs) -> F:
        return function(accessor._frame, *args, **kwargs)  # type: ignore[no-any-return] # noqa: SLF001

    name, summary = function.__name__, (function.__doc__ or "").partition("\n")[0]
    method.__name__, method.__qualname__ = name, f"Accessor.{name}"
    method.__doc__ = f"{summary.partition('; see ')[0].removesuffix('.')}; see `marketdata.{name}`."
    method.__wrapped__ = function  # type: ignore[attr-defined] # whose signature it has
    method.kinds = kinds  # type: ignore[attr-defined]
    return method


def _fits(names: list[str], kinds: tuple[Any, ...]) -> bool:
    """Whether a frame with these columns has one of the kinds."""
    if "records" in kinds:
        return "market_id" in names and "ts" not in names
    if "changes" in kinds:
        return {"ts", "token_id", "side", "price", "size"} <= {*names} and "level" not in names
    try:
        return not kinds or bool(kind_of(names, kinds))
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


class Accessor(_Suggestions, book_measures.Methods[F], Generic[F]):
    """The functions of ``marketdata`` on a tidy ``frame`` of any kind, as methods: ``df.md``.

    Completion (``df.md.<tab>``) lists those that fit the columns of the frame.

    Examples
    --------
    >>> md.testing.books().md.resample("1h").md.bbo()["best_bid"].tolist()
    [0.42, 0.56]
    """

    def __init__(self, frame: F) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"Functions for this frame: {', '.join(dir(self))}. help(df.md.bbo) explains one."

    def __dir__(self) -> list[str]:
        names = [str(name) for name in names_of(self._frame)]
        methods = {name: getattr(Accessor, name) for name in dir(Accessor) if not name.startswith("_")}
        return [name for name, method in methods.items() if _fits(names, getattr(method, "kinds", ()))]

    # A method hides the module of its name, so it must come after the other functions of the module.
    align = _method(resample.align, "series")
    resample = _method(resample.resample, *_TOP, "prices", "metrics", "quotes")
    features = _method(measures.features, *_TOP)
    to_wide = _method(shapes.to_wide, *_BOOKS)
    explode = _method(shapes.explode, "nested")
    nest = _method(shapes.nest, "books")
    diff = _method(rebuild.diff, *_BOOKS)
    rebuild = _method(rebuild.rebuild, "changes")
    complement = _method(cross_token.complement, "books")
    overround = _method(cross_token.overround, *_TOP)
    arbitrage = _method(cross_token.arbitrage, *_TOP)
    probabilities = _method(cross_token.probabilities, *_PRICES)
    event_overround = _method(cross_token.event_overround, *_TOP)
    event_arbitrage = _method(cross_token.event_arbitrage, *_TOP)
    event_probabilities = _method(cross_token.event_probabilities, *_PRICES)
    time_to_resolution = _method(outcomes.time_to_resolution, *_ANY)
    outcomes = _method(outcomes.outcomes, "records")
    without_answers = _method(records.without_answers, "records")
    around = _method(event_windows.around, *_ANY)
    forward_returns = _method(forward.forward_returns, *_TOP)
    cluster_mean = _method(scores.cluster_mean, *_ANY)
    brier = _method(scores.brier, *_PRICES)
    log_score = _method(scores.log_score, *_PRICES)
    calibration = _method(scores.calibration, *_PRICES)
    available_at = _method(asof.available_at, *_ANY)
    asof_join = _method(asof.asof_join, *_ANY)
    gaps = _method(asof.gaps, *_ANY)
    ohlc = _method(returns.ohlc, *_ANY)
    returns = _method(returns.returns, *_ANY)
    check = _method(quality.check, *_BOOKS, "prices", "metrics")

    def show(self, *, id_width: int | None = 16) -> display.Shown:
        """The frame to print, its long ids shortened; see `marketdata.show`."""
        return display.show(self._frame, id_width=id_width)

    @property
    def report(self) -> Report | None:
        """The report of the fetch that made this frame, None for copies and others; see `marketdata.Client.books`."""
        report: Report | None = getattr(self._frame, _REPORT, None)
        return report

    @property
    def plot(self) -> Plots:
        """Charts of the frame; see `marketdata.plot`."""
        return Plots(self._frame)


for _name, _function in book_measures.FUNCTIONS.items():
    setattr(Accessor, _name, _method(_function, *(_TOP if MEASURES[_name].needs == "top" else _BOOKS)))


class Plots(_Suggestions):
    """``df.md.plot``: the functions of ``marketdata.plot`` on the frame."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    def __init__(self, frame: Any) -> None:
        from marketdata import plot  # only who draws loads it

        for name in plot.__all__:
            setattr(self, name, MethodType(getattr(plot, name), frame))


def carry(frame: Any, report: Report | None) -> Any:
    """The frame, whose ``.md.report`` is this one; copies of the frame have none."""
    # pandas takes other attributes for columns.
    object.__setattr__(frame, _REPORT, report)
    return frame
