"""Histories as tidy frames: windows requested concurrently, and raw pages without a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from marketdata import errors
from marketdata.accessor import carry
from marketdata.display import BUCKETS, progress_bar
from marketdata.errors import ConfigError, EmptyRangeWarning, MarketDataError, NotFoundError, ServiceOddityWarning, warn
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.markets import Markets
from marketdata.fetch.order import SourceOrder
from marketdata.fetch.pages import Fetched
from marketdata.fetch.scheduler import Scheduler
from marketdata.fetch.source import Source
from marketdata.fetch.windows import Group, MarketInfo, Window
from marketdata.points.arguments import choice, whole
from marketdata.points.columns import Books, Data, joined
from marketdata.points.duplicates import deduplicate
from marketdata.points.resample import resample_columns
from marketdata.points.views import INTERFACE_VIEWS, VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.tidy.frames import frame_kind, to_frame
from marketdata.times import HOUR, to_text
from marketdata.typing import FrameKind
from marketdata.wire.decode import decode_pages

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame

_ITERATED_FRAME_BYTES = 34_000_000
_TEMPORARY_ERRORS = (errors.NetworkError, errors.ContractError, errors.ServerError, errors.RateLimitError)
_RESUME_HINT = "The rows that arrived are in .partial; client.resume(error.resume) fetches the rest."


class _Batch:
    """The points that arrived and are in no frame yet."""

    def __init__(self, view: View, levels: int | None, target: BucketWidth | None) -> None:
        self.view = view
        self.parts: list[Data] = []
        self.has_come = False  # whether points were taken before
        self._levels, self._target = levels, target
        self._names: dict[str, str] = {}  # by which each market was requested
        self._no_rows: Data = empty(view)

    @property
    def is_full(self) -> bool:
        """Whether the points are enough for a frame."""
        return sum(map(len, self.parts)) * VIEWS[self.view].point_bytes >= _ITERATED_FRAME_BYTES

    def add(self, fetched: Fetched) -> None:
        """Add the points of a window, unless the same market was requested under another of its names."""
        window, columns = fetched.window, fetched.columns
        if window.kind == "market" and self._names.setdefault(fetched.market_id, window.id) != window.id:
            return
        if self._levels is not None and isinstance(columns, Books):
            columns = columns.cut(self._levels)
        if len(columns):
            self.parts.append(columns)
        else:
            self._no_rows = columns  # even without rows they may have further columns

    def take(self, until: int | None = None, *, is_partial: bool = False) -> Data:
        """The points at the target, unchanged if ``is_partial``; a bucket that ends after ``until`` stays for later."""
        columns = joined(self.parts) if self.parts else self._no_rows
        self.parts.clear()
        if is_partial or self._target is None:
            self.has_come = True
            return columns
        if until is not None:
            is_later = columns.ts >= self._target.floor(until)
            self.parts.extend([columns.take(np.flatnonzero(is_later))] if is_later.any() else [])
            columns = columns.take(np.flatnonzero(~is_later))
        self.has_come = True
        return resample_columns(columns, self._target)


def _explain(error: MarketDataError, *, has_rows: bool) -> None:
    """Say how the rest is fetched, if rows arrived and the error may pass."""
    may_pass = isinstance(error, _TEMPORARY_ERRORS) and not isinstance(error, errors.RedirectError)
    if has_rows and may_pass and not error.hint:
        error.hint, error.args = _RESUME_HINT, (f"{error} {_RESUME_HINT}",)


class History:
    """Fetches windows and yields what they contain, with the options of `Client`."""

    def __init__(self, source: Source, *, strict: bool, progress: bool | None) -> None:
        self.markets = Markets(source)
        self._source, self._order = source, SourceOrder()
        self.strict = strict
        self.progress = progress
        self.last_report: Report | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(History, strict=self.strict, progress=self.progress), (self._source,)

    def fetch(self, windows: Sequence[Window], report: Report | None = None, **how: Any) -> Scheduler:
        """The fetch of windows, with its ``report``; iterate over it once."""
        how |= {"report": report, "strict": self.strict, "order": self._order}
        fetch = Scheduler(self._source, Group(windows).windows, self.markets, **how)
        self.last_report = fetch.report
        return fetch

    def frames(
        self,
        windows: Sequence[Window],
        levels: int | None,
        frame: FrameKind,
        *,
        target: BucketWidth | None = None,
        is_whole: bool = False,
        is_resumed: bool = False,
    ) -> Iterator[Any]:
        """Frames of bounded size in time order, market after market, or one whole; errors have ``.partial``.

        Each carries the report of the fetch so far.
        With ``target`` they are resampled to it, but for the rows of ``.partial``, whose last buckets may lack points.
        """
        if levels is not None:
            whole("levels", levels)
        fetch = self.fetch(windows, in_order=not is_whole, buffer=None if is_whole else 64)
        batch = _Batch(windows[0].view, levels, target)

        def framed(columns: Data, width: BucketWidth) -> Any:
            return carry(to_frame(columns, frame, width=width), fetch.report)

        requested = windows[0].resolution

        try:
            for columns in self._batches(fetch, windows, batch, is_whole=is_whole):
                yield framed(columns, target or requested)
        except MarketDataError as error:
            _explain(error, has_rows=batch.has_come or bool(batch.parts))
            error.partial = framed(batch.take(is_partial=True), requested)
            if isinstance(error, NotFoundError):
                self.markets.name_near_ones(error, [w.id for w in windows if w.kind == "market"])
            raise
        except KeyboardInterrupt as stop:
            received, resume = fetch.stop()
            for fetched in received:
                batch.add(fetched)
            stop.partial, stop.resume = framed(batch.take(is_partial=True), requested), resume  # type: ignore[attr-defined]
            raise
        finally:
            fetch.close()
        self._warn(fetch, is_resumed=is_resumed)

    def _batches(self, fetch: Scheduler, windows: Sequence[Window], batch: _Batch, *, is_whole: bool) -> Iterator[Data]:
        """The points of a fetch: all at once, or a batch where a window ends or its size is reached."""
        total, request, reached = sum(w.buckets for w in windows), 0, 0
        with progress_bar(self.progress, total=total, desc=batch.view, **BUCKETS) as bar:
            fetch.progress = bar.update
            for fetched in fetch:
                is_next = fetched.request != request
                if batch.parts and not is_whole and (is_next or batch.is_full):
                    yield batch.take(until=None if is_next else reached)
                request, reached = fetched.request, fetched.window.rng.end
                batch.add(fetched)
            if batch.parts or is_whole:
                yield batch.take()

    def _warn(self, fetch: Scheduler, *, is_resumed: bool) -> None:
        """Warn about odd answers, and about ranges without points outside of their market."""
        self.warn_odd(fetch.report)
        for window in () if is_resumed else fetch.empty[:3]:
            if window.kind == "market":
                self._warn_outside(window)

    def warn_odd(self, report: Report) -> None:
        """Warn about values that were kept, and look odd."""
        if report.warnings:
            counts = ", ".join(f"{name} {n}" for name, n in sorted(report.warnings.items()))
            warn(f"The service's answers were kept as they came, but look odd: {counts}.", ServiceOddityWarning)

    def _warn_outside(self, window: Window) -> None:
        """Warn about a range without points before or after its market, or of one that was traded."""
        with suppress(MarketDataError):
            info = self.markets.look_up(window.id)
            what = f"No {window.view} of {window.id} in {window.rng}: the market"
            if info.start is not None and window.rng.end <= info.start:
                warn(f"{what} begins at {to_text(info.start)}.", EmptyRangeWarning)
            elif info.end is not None and window.rng.start >= info.end:
                warn(f"{what} ended at {to_text(info.end)}.", EmptyRangeWarning)
            elif info.volume and not self._source.service.is_sparse and _is_long(window, info):
                had = f"is over and had a volume of {info.volume:,.0f}, so that the source may lack its history"
                warn(f"{what} {had}.", EmptyRangeWarning)


def _is_long(window: Window, info: MarketInfo) -> bool:
    """Whether a range has so much of the life of a market that points are expected."""
    start, end = window.rng
    first, last = start if info.start is None else max(start, info.start), min(end, info.end or end)
    return last - first >= max(HOUR, 2 * window.resolution.micros)


@overload
def read_pages(view: View, pages: Sequence[bytes], frame: Literal["pandas"] = "pandas") -> PandasFrame: ...


@overload
def read_pages(view: View, pages: Sequence[bytes], frame: Literal["polars"]) -> PolarsFrame: ...


def read_pages(view: View, pages: Sequence[bytes], frame: FrameKind = "pandas") -> Any:
    """Raw page bodies as one tidy frame, without a network (interface 2.2 to 2.6).

    Returns the frame of the `Client` method named like ``view``, with each point once. ContractError if a page breaks
    the interface; the message names the page and the path of the value.

    Parameters
    ----------
    view : {"books", "prices", "metrics"}
    pages : sequence of bytes
        JSON bodies of a market's or a token's history, in any order.

    Examples
    --------
    >>> page = b'''{"market_id": "m", "resolution": "1h", "tokens": {"Yes": "1"},
    ...     "metadata": {"count": 1, "limit": 100},
    ...     "data": {"Yes": [{"t": "2026-01-01T00:00:00Z", "p": 0.25}]}}'''
    >>> md.read_pages("prices", [page])["price"].tolist()
    [0.25]
    """
    choice("view", view, INTERFACE_VIEWS)
    given: Any = pages
    if isinstance(given, bytes | str) or not isinstance(given, Iterable):
        raise ConfigError("pages is a list of page bodies, each as bytes.")
    bodies = list(given)
    for k, page in enumerate(bodies):
        if not isinstance(page, bytes):
            raise errors.ConfigError(
                f"pages[{k}] is a {type(page).__name__}; each page is a body as bytes, as it was sent."
            )
    kind = frame_kind(frame)
    columns, resolution, _ = decode_pages(view, bodies)
    hint = "; pages of one resolution and one state of the service belong together"
    width = BucketWidth.of(resolution) if resolution else None
    return to_frame(deduplicate(columns, hint=hint).columns, kind, width=width)
