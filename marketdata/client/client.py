"""The client: one line from a market to a tidy frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from inspect import signature
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    Optional,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)  # fmt: skip

import numpy as np

from marketdata.accessor import carry
from marketdata.adapters.names import names
from marketdata.addresses import event_in
from marketdata.client.discovery import Record
from marketdata.client.history import History
from marketdata.client.offer import Offer, Request
from marketdata.client.prints import fetch_prints
from marketdata.conformance.probe import verify
from marketdata.conformance.report import Verification
from marketdata.display import html_table
from marketdata.errors import (
    BadRequestError,
    ConfigError,
    ContractError,
    MarketDataError,
    NotFoundError,
    ParameterError,
    PlanWarning,
    RequestError,
    ServiceOddityWarning,
    warn,
)
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.auth import KeyProvider, veiled
from marketdata.fetch.plans import Plan, make_plan
from marketdata.fetch.sources import connect
from marketdata.fetch.threads import run_all
from marketdata.fetch.windows import IdKind, Window
from marketdata.points import candles
from marketdata.points.arguments import choice, flag, whole
from marketdata.points.columns import Books, Data, Series, Token, Trades, joined
from marketdata.points.records import State, names_of
from marketdata.points.views import VIEWS, View, empty, quotes_of
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import Channel, channel_of
from marketdata.tidy import records
from marketdata.tidy.frames import frame_kind, to_frame
from marketdata.times import MINUTE, SECOND, Duration, Range, TimeLike, ends_of, now, to_datetime, to_range, to_text
from marketdata.typing import Frame, FrameKind
from marketdata.vendors import (
    LARGEST_LISTING,
    VENUES,
    KalshiPrice,
    PolymarketRoute,
    check_filters,
    check_params,
    refuse_unknown,
)
from marketdata.wire.models import LARGEST_LIMIT
from marketdata.wire.records import completed

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Client[Any]")
ApiKey = str | Callable[[], str] | KeyProvider
Markets = str | Iterable[str]
Span = tuple[Optional[TimeLike], Optional[TimeLike]]  # noqa: UP045 a name in quotes has no |
# A fetch without times that takes more requests needs ``all=True``.
_MOST_REQUESTS = 50


class _Options(TypedDict, total=False):
    """Keyword arguments of `Client`, for its overloads."""

    strict: bool
    progress: bool | None
    page_limit: int
    allow_insecure: bool
    archive: Any
    hosts: str | Mapping[str, str] | None
    route: PolymarketRoute | None
    price: KalshiPrice | None


def _in_parts(method: Callable[Concatenate[C, P], R], doc: str) -> Callable[Concatenate[C, P], Iterator[R]]:
    """A method that yields what ``method`` returns in frames of bounded size, with the same arguments."""
    takes, view = signature(method), method.__name__
    name = f"iter_{view}"

    def iterate(self: C, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        try:
            given = takes.bind(self, *args, **kwargs)
        except TypeError as wrong:
            raise TypeError(f"Client.{name}(): {wrong}") from None
        given.apply_defaults()
        _, market, start, end, resolution = given.args
        options = dict(given.kwargs)
        every_page, span = options.pop("all"), ends_of(start, end, options.pop("period"))
        return self._frames(cast("View", view), "market", market, span, resolution, every_page=every_page, **options)

    iterate.__name__, iterate.__qualname__, iterate.__doc__ = name, f"Client.{name}", doc
    iterate.__signature__ = takes.replace(  # type: ignore[attr-defined] # what help() shows
        return_annotation=f"Iterator[{takes.return_annotation}]"
    )
    return iterate


# What people call methods of clients, without get_ and fetch_, and what they are here.
MEANT = {
    **{one: one for one in ("books", "prices", "metrics", "quotes", "trades", "markets", "market", "events", "series")},
    **dict.fromkeys(("history", "price", "price_history", "prices_history", "ohlcv", "download", "data"), "prices"),
    **dict.fromkeys(("order_book", "orderbook", "order_books", "orderbooks", "book", "depth"), "books"),
    **dict.fromkeys(("search", "public_search", "list", "list_markets", "all_markets", "find"), "markets"),
    **dict.fromkeys(("quote", "bbo", "best_bid_ask"), "quotes"), "trade": "trades", "fills": "trades",
    **dict.fromkeys(("candlesticks", "market_candlesticks", "ohlc", "klines"), "candles"),
    "event": "events", "status": "health", "ping": "health", "limits": "usage", "ticker": "market", "info": "market",
}  # fmt: skip


def _whole_span(
    start: TimeLike | None, end: TimeLike | None, period: Duration | None = None
) -> tuple[TimeLike, TimeLike]:
    """The times of a range that has a start, up to now without an end."""
    first, last = ends_of(start, end, period)
    if first is None:
        raise ConfigError("is missing.", argument="start", hint="Give start= or period=, such as period='7d'.")
    return first, to_datetime(now()) if last is None else last


class Client(Generic[Frame]):
    """Reads a historical market data service into tidy frames.

    All clients of one key are paced together to its requests per minute (interface 4, 5). Threads may share a client.

    Parameters
    ----------
    base_url : str, optional
        Address of a service, with or without ``/v1``, or a name: "polymarket" and "kalshi" are public and take no key,
        "polymarketdata" and "polyorderbooks" are vendors. By default it is the environment variable
        MARKETDATA_BASE_URL, or the address of the vendor whose key is set.
    api_key : str or callable, optional
        The key, or a function that returns it; by default MARKETDATA_API_KEY, or at the address of a vendor its
        POLYMARKETDATA_API_KEY or POLYORDERBOOKS_API_KEY. It is sent in ``X-API-Key``, shown never.
    frame : {"pandas", "polars"}
        Kind of every frame.
    strict : bool
        Raise ContractError for a repaired or odd answer, instead of a note in the report.
    progress : bool, optional
        Show a bar on fetches of more than a second; by default in terminals and notebooks only.
    page_limit : int
        Points per page, 1 to 200; the most costs the fewest requests.
    allow_insecure : bool
        Allow ``http://`` beyond this machine, where others can read the key.
    archive : Archive, optional
        Archive that `books`, `prices` and `metrics` read through: what is missing is fetched into it once, at 1m
        whatever the resolution, and coarser buckets are derived from that.
    hosts : str or mapping of str, optional
        Other addresses of a venue, such as those of a proxy or a test: one for all of its hosts, or some by name. By
        default the environment variable MARKETDATA_POLYMARKET_URL or MARKETDATA_KALSHI_URL, if it is set, is the
        address of all hosts of that venue.
    route : {"clob", "data"}, optional
        Where prices of Polymarket come from. By default they are means of the points of its order book, which reach
        back for years: its minutes for buckets below an hour, else its hours. "data" takes the buckets of its Data API,
        which keeps minutes for seven days.
    price : {"mid", "last", "mean"}, optional
        Which price of a candle of Kalshi: by default the mid of the last quotes, else the last or the mean trade of the
        bucket, null where none traded. The mid of an hour is that at its end; minutes that are resampled give a mean.

    Examples
    --------
    >>> md.Client("http://127.0.0.1:8000", "some-key-of-mine-1")
    Client('http://127.0.0.1:8000', frame='pandas')
    """

    @overload
    def __init__(
        self: Client[PandasFrame],
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        frame: Literal["pandas"] = "pandas",
        **options: Unpack[_Options],
    ) -> None: ...

    @overload
    def __init__(
        self: Client[PolarsFrame],
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        frame: Literal["polars"] = ...,
        **options: Unpack[_Options],
    ) -> None: ...

    def __init__(
        self,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        frame: FrameKind = "pandas",
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: Any = None,
        hosts: str | Mapping[str, str] | None = None,
        route: PolymarketRoute | None = None,
        price: KalshiPrice | None = None,
    ) -> None:
        api_key = veiled(api_key)  # a crash report shows the locals of this frame
        self.frame: FrameKind = frame_kind(frame)
        if archive is not None and not hasattr(archive, "attach"):
            raise ConfigError(f"archive={archive!r} is no archive; pass md.Archive(path_or_url).")
        flag("allow_insecure", allow_insecure)
        self._source = connect(base_url, api_key, hosts=hosts, allow_insecure=allow_insecure, route=route, price=price)
        progress = None if progress is None else flag("progress", progress)
        self._history = History(self._source, strict=flag("strict", strict), progress=progress)
        self._page_limit = whole("page_limit", page_limit, 1, LARGEST_LIMIT)
        self._offer = Offer(self._source)
        self._archive = archive
        self._report: Report | None = None  # of a read through the archive
        self._tokens_by_name: dict[str, list[Token]] = {}  # for `now`

    if not TYPE_CHECKING:  # checkers know the names that there are

        def __getattr__(self, name: str) -> Any:
            meant = MEANT.get(name.removeprefix("get_").removeprefix("fetch_"))
            hint = f"; did you mean client.{meant}(...)?" if meant and not name.startswith("_") else ""
            raise AttributeError(f"'Client' object has no attribute {name!r}{hint}", name=name, obj=None)

    def close(self) -> None:
        """Close idle connections, as ``with md.Client(...)`` does. A later call opens new ones; see `Client`."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_source"):
            return "Client(not made)"
        service = self._source.service
        name = "" if service.base_url is None else f", service={service.name!r}"
        return f"Client({self._source.base_url!r}, frame={self.frame!r}{name})"

    def _repr_html_(self) -> str:
        return html_table([("service", self._source.base_url), ("frames", self.frame), ("archive", self._archive)])

    # -- history
    def books(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        levels: int | None = None,
        clamp: bool = False,
        all: bool = False,
    ) -> Frame:
        """Order books of all tokens of a market, one row per level (interface 4.1, 4.2).

        Returns the tidy frame ``ts market_id token_id token_label side level price size``: ``ts`` is the bucket start
        [UTC, microseconds], ``level`` 0 the best, ``price`` a probability 0 to 1, ``size`` shares. An empty side is one
        row with null level, price and size. Sorted by market, token, ts, side (bid first), level. No data: no rows.

        A wrong argument is a ConfigError before anything is sent. A refusal of the service is a RequestError, such as
        NotFoundError, PlanError, AuthenticationError, ParameterError, RateLimitError or ServerError. NetworkError or
        ContractError means that no valid answer arrived. ``.partial`` has the rows so far; ``.resume`` is for `resume`.
        ``frame.md.report`` says what was repaired, what looked odd, and how many requests it took.

        Parameters
        ----------
        market : str, record, or list of these
            Id or slug, or several; an unknown one of several is an error once the others have arrived.
        start, end : datetime, date, str or number, optional
            Start inclusive, end exclusive [UTC if no zone is given; numbers are Unix s]; "-1d" is a day before now. By
            default they are those of the market, as far back as the plan allows.
        resolution : str, optional
            Width of the buckets, such as "1m" or "1h"; each gives its last book. One that the service lacks is made of
            a finer one. By default it is 1m, or the finest that the plan allows.
        period : str or timedelta, optional
            The length of the range, such as "7d", in the place of its start or end; without both it ends now.
        levels : int, optional
            At most so many levels of each side.
        clamp : bool
            Begin where the plan's history begins, instead of a PlanError for an earlier start.
        all : bool
            Fetch the whole market even if that takes more than 50 requests.

        Warns
        -----
        PlanWarning
            The market began before the history of the plan.

        Examples
        --------
        >>> books = client.books(market, "2025-12-31", "2026-01-01", "6h", levels=1)
        >>> books["ts"].dt.hour.unique().tolist()
        [0, 6, 12, 18]
        """
        return self._get(
            "books",
            "market",
            market,
            ends_of(start, end, period),
            resolution,
            levels=levels,
            clamp=clamp,
            every_page=all,
        )

    def prices(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        clamp: bool = False,
        all: bool = False,
    ) -> Frame:
        """Prices of all tokens of a market, the mean of each bucket (interface 4.1, 4.3); see `books`.

        One row per token and bucket with points: ``ts market_id token_id token_label price`` [probability 0 to 1].
        """
        span = ends_of(start, end, period)
        return self._get("prices", "market", market, span, resolution, clamp=clamp, every_page=all)

    def metrics(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        clamp: bool = False,
        all: bool = False,
    ) -> Frame:
        """Metrics of a market such as volume, the mean of each bucket (interface 4.1, 4.4); see `books`.

        One row per market and bucket: ``ts market_id volume liquidity spread`` and further numeric metrics. ``spread``
        is the service's number for the market, not the one of a book.
        """
        span = ends_of(start, end, period)
        return self._get("metrics", "market", market, span, resolution, clamp=clamp, every_page=all)

    def quotes(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        clamp: bool = False,
        all: bool = False,
    ) -> Frame:
        """Best bid and ask of all tokens of a market, the last of each bucket, from venues that have them; see `books`.

        One row per token and bucket: ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size
        mid spread``. Prices are probabilities 0 to 1, sizes shares, null where the venue does not say them. A service
        without quotes is a ConfigError; ``md.bbo`` makes them of its books.
        """
        span = ends_of(start, end, period)
        return self._get("quotes", "market", market, span, resolution, clamp=clamp, every_page=all)

    def token_books(
        self,
        token_id: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        levels: int | None = None,
        clamp: bool = False,
    ) -> Frame:
        """Order books of one token, or of several (list of ``token_id``); see `books`."""
        span = ends_of(start, end, period)
        return self._get("books", "token", token_id, span, resolution, levels=levels, clamp=clamp)

    def token_prices(
        self,
        token_id: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
        clamp: bool = False,
    ) -> Frame:
        """Prices of one token, or of several (list of ``token_id``); see `prices` and `books`."""
        return self._get("prices", "token", token_id, ends_of(start, end, period), resolution, clamp=clamp)

    iter_books = _in_parts(
        books,
        """Frames of some 20,000 `books` each, in time order, market after market, in bounded memory; see `books`.

        Yields parts of the frame of `books`.

        Examples
        --------
        >>> sum(
        ...     map(len, client.iter_prices(market, "2025-12-31", "2026-01-01", "6h"))
        ... )
        8
        """,
    )
    iter_prices = _in_parts(prices, "Frames of `prices` of some 500,000 points each; see `iter_books` and `books`.")
    iter_metrics = _in_parts(metrics, "Frames of `metrics` of some 500,000 points each; see `iter_books` and `books`.")
    iter_quotes = _in_parts(quotes, "Frames of `quotes` of some 500,000 points each; see `iter_books` and `quotes`.")

    def iter_columns(
        self,
        requests: Iterable[tuple[View, str, Range]],
        resolution: str = "1m",
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Generator[tuple[int, Range, Data, bool], None, None]:
        """Parts of any number of ranges in the order in which they arrive, for writing; for errors see `books`.

        ``requests`` has (view, id or slug, Range [microseconds UTC]). Yields (index of the request, Range that is
        complete for all tokens, its points as columns, whether no page may be missing); the parts of a range touch.
        ``progress`` is called with the number of buckets that arrived since its last call, 0 while it waits.
        """
        width, asked = BucketWidth.of(resolution), list(requests)
        prints = [(k, name, rng) for k, (view, name, rng) in enumerate(asked) if not VIEWS[view].is_grid]
        grids = [k for k, (view, *_) in enumerate(asked) if VIEWS[view].is_grid]
        if prints:
            with closing(fetch_prints(self._source, prints, width.micros, progress or int)) as parts:
                for part in parts:
                    yield *part, True
        if prints and not grids:
            return
        every = [w for k in grids for w in self._windows(asked[k][0], "market", *asked[k][1:], width)]
        with closing(self._history.fetch(every, self._report, buffer=256)) as fetch:
            fetch.progress = progress or fetch.progress
            for fetched in fetch:
                if fetched.window.kind == "market":  # points of single tokens complete no range
                    yield grids[fetched.request], fetched.window.rng, fetched.columns, fetched.complete
            self._history.warn_odd(fetch.report)

    def trades(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        *,
        period: Duration | None = None,
    ) -> Frame:
        """Trades of a market, each fill once, from venues that publish them; for errors see `books`.

        One row per print: ``ts market_id token_id token_label side price size`` and what the venue says of it. ``side``
        is what the taker did, "buy" or "sell"; ``price`` is a probability 0 to 1, ``size`` shares; ``ts`` is the
        time of the print [UTC]. A service without trades is a ConfigError. An error has the trades that arrived in
        ``.partial``, and no ``.resume``.

        Parameters
        ----------
        market : str, record, or list of these
            Id or slug, or several.
        start, end : datetime, date, str or number, optional
            Start inclusive, end exclusive [UTC if no zone is given; numbers are Unix s], by default now.
        period : str or timedelta, optional
            As for `books`.

        Examples
        --------
        >>> client.trades(market, "2025-12-31", "2026-01-01")
        Traceback (most recent call last):
        marketdata.errors.ConfigError: another service has no trades; it has books, prices, metrics.
        """
        rng, parts = to_range(*_whole_span(start, end, period)), list[Trades]()
        given = self._names(market)

        def fetch(name: str) -> None:
            parts.extend(part.between(*rng) for part in self._source.trades(name, rng))

        def frame() -> Frame:
            filled = [part for part in parts if len(part)]
            return cast("Frame", to_frame(joined(filled) if filled else Trades.empty(), self.frame))

        try:
            run_all(self._source, [partial(fetch, name) for name in given])
        except MarketDataError as error:
            error.partial = frame()
            if isinstance(error, NotFoundError):
                self._history.markets.name_near_ones(error, given)
            raise
        return frame()

    def candles(
        self,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str = "1h",
        *,
        period: Duration | None = None,
    ) -> Frame:
        """Candles of all tokens of a market, as a venue has them; for errors see `books`.

        One row per token and bucket in which something changed: ``ts market_id token_id token_label``, then ``open``,
        ``high``, ``low`` and ``close`` of ``bid_``, ``ask_`` and ``price_`` [probability], ``price_mean``, ``volume``
        and ``open_interest`` [contracts]. ``ts`` is the start of the bucket [UTC]. A number that the venue lacks is
        null, as is a price where nobody traded, and a side without a quote.

        Kalshi has candles of quotes and trades. Its days begin in New York, so those here are made of hours. Polymarket
        has none: they are made of the minutes of its order book's mid, so that ``price_`` columns are no trades, and
        all others are null; ``frame.md.report`` says so. A service of the interface is a ConfigError.

        Parameters
        ----------
        market : str, record, or list of these
            Id or slug, or several.
        start, end : datetime, date, str or number, optional
            Start inclusive, end exclusive [UTC if no zone is given; numbers are Unix s], by default now.
        resolution : str
            Width of the buckets, one that the venue has.
        period : str or timedelta, optional
            As for `books`.

        Examples
        --------
        >>> client.candles(market, "2025-12-31", "2026-01-01", "1h")
        Traceback (most recent call last):
        marketdata.errors.ConfigError: another service has no candles; it has books, prices, metrics.
        """
        rng, width, service = (
            to_range(*_whole_span(start, end, period)),
            BucketWidth.of(resolution),
            self._source.service,
        )
        given, parts, report = self._names(market), list[Series](), Report()
        if service.resolutions is not None and str(width) not in service.resolutions:
            what = f"is no resolution of {service.name}; it has {', '.join(service.resolutions)}."
            raise ConfigError(what, argument="resolution", value=resolution)

        def fetch(name: str) -> None:
            parts.append(self._source.candles(name, rng, width, report))

        def frame() -> Frame:
            filled = [part for part in parts if len(part)] or parts[:1]
            found = joined(filled) if filled else candles.none()
            return cast("Frame", carry(to_frame(found, self.frame, width=width), report))

        self._history.last_report = report
        try:
            run_all(self._source, [partial(fetch, name) for name in given])
        except MarketDataError as error:
            error.partial = frame()
            if isinstance(error, NotFoundError):
                self._history.markets.name_near_ones(error, given)
            raise
        return frame()

    def now(self, market: Markets) -> Frame:
        """Best bid and ask of all tokens of markets at this moment; for errors see `books`.

        One row per token that is traded: ``ts market_id token_id token_label best_bid best_bid_size best_ask
        best_ask_size mid spread``, as of `quotes`. ``ts`` is the time of the answer by the venue's clock [UTC]. Many
        markets take one request: 500 tokens of Polymarket, 100 markets of Kalshi; what names them is asked for once. A
        token without a book has no row. An unknown market of several is an error, with the rows of the others in
        ``.partial``. A service of the interface is a ConfigError: ask for its last bucket.

        Parameters
        ----------
        market : str, record, or list of these
            Id or slug, or several.

        Examples
        --------
        >>> client.now(market)
        Traceback (most recent call last):
        marketdata.errors.ConfigError: another service has no books of this moment; ask for the last bucket.
        """
        given, parts = self._names(market), list[Data]()
        if "books" not in self._source.service.live:
            self._source.now("books", ())  # an error says what to ask for instead
        unseen = [name for name in given if name not in self._tokens_by_name]
        for record in self.market_records(unseen) if unseen else ():
            tokens = [Token(record["id"], str(token["id"]), token.get("label")) for token in record["tokens"]]
            others = unseen if len(unseen) == 1 else []
            self._tokens_by_name |= dict.fromkeys([*names_of(record), *others], tokens)
        known = {str(t.token_id): t for name in given for t in self._tokens_by_name.get(name, ())}
        for part in self._source.now("books", [*known]) if known else ():
            at = round((self._source.server_time or time.time()) * SECOND)
            quotes = quotes_of(cast("Books", part))
            named = [known[str(token.token_id)] for token in part.tokens]
            parts.append(replace(quotes.with_tokens(named, quotes.bounds), ts=np.full(len(quotes), at)).sort())
        frame = cast("Frame", to_frame(joined(parts) if parts else empty("quotes"), self.frame))
        for name in given:
            if name not in self._tokens_by_name:
                try:
                    self.market(name)
                except MarketDataError as error:
                    error.partial = frame
                    raise
        return frame

    def resume(self, resume: Resume, *, levels: int | None = None) -> Frame:
        """Fetch the rest after an error (``resume`` is ``error.resume``); parameters and errors as for `books`.

        Returns the rows that ``error.partial`` lacks.
        """
        if not isinstance(resume, Resume):
            raise ConfigError(f"resume={resume!r}: give the .resume of an error.")
        if not resume.windows:
            raise ConfigError("Nothing is left to resume: all rows are in .partial.")
        [frame] = self._history.frames(resume.windows, levels, self.frame, is_whole=True, is_resumed=True)
        return cast("Frame", frame)

    def verify(
        self, market: str, start: TimeLike, end: TimeLike, *, fine: str | None = None, coarse: str | None = None
    ) -> Verification:
        """The behaviour of the service where the interface leaves a choice (interface 2.3, 4.1 to 4.4); see `books`.

        Returns a Verification with one finding per choice, each followed, a named variant, or undecided. ``label`` is
        the time that ``t`` names, ``averages`` the values behind a mean, and ``books`` the book of a bucket. ``empty``
        is the points of an empty bucket, and ``limit`` its unit. Pages of the resolutions ``fine`` and ``coarse`` are
        compared over at least two coarse buckets. A ``market`` of two tokens with gaps decides most. By default they
        are 1m, or the finest that the plan allows, and 1h. The report also has a table of the service, and goes on
        without a view that the plan does not allow.

        Examples
        --------
        >>> client.verify(market, "2025-12-31", "2026-01-01")["label"].state
        'followed'
        """
        return verify(self._source, market, to_range(start, end), fine, coarse)

    @property
    def last_report(self) -> Report | None:
        """The Report of the last listing or fetch of this client, None before the first.

        Its ``left_out`` has the names of records that could not be read, or that the source refused, by reason.

        Examples
        --------
        >>> len(client.markets(max_rows=1)), client.last_report.left_out
        (1, {})
        """
        return self._history.last_report

    @property
    def views(self) -> tuple[str, ...]:
        """The views that the source has, such as ``("books", "prices", "metrics")``; see `Archive.pull`."""
        return self._source.service.views

    @property
    def live_views(self) -> tuple[str, ...]:
        """The views that the source has of the present alone; see `Archive.follow`."""
        return self._source.service.live

    @property
    def is_sparse(self) -> bool:
        """Whether the source has no point for a bucket without a change, as with candles; see `Archive.coverage`."""
        return self._source.service.is_sparse

    def resolutions(self) -> list[str]:
        """The resolutions that the source and the plan of the key have, as far as they say so.

        Returns a list of str, the finest first. It may request ``usage``; an error of that is none here.

        Examples
        --------
        >>> client.resolutions()
        ['1m', '10m', '1h', '6h', '1d']
        """
        self._source.learn_limits()
        return [str(width) for width in self._offer.resolutions]

    def live_columns(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:
        """The points of a ``view`` of ``tokens`` (ids) at this moment, for writing; for errors see `books`.

        Yields parts as they arrive. Times are as the source states them. A token that is not traded has no points.
        """
        return self._source.now(view, tokens)

    def stream(self) -> Channel:
        """The stream of the source, for `Archive.record`; ConfigError if it has none.

        Returns what a recorder needs to know about it, such as its ``address``.

        Examples
        --------
        >>> md.Client("polymarket").stream().address
        'wss://ws-subscriptions-clob.polymarket.com/ws/market'
        """
        return channel_of(self._source.service.short, self._source.stream_address)

    def plan(
        self,
        view: View,
        market: Markets,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        resolution: str | None = None,
        *,
        period: Duration | None = None,
    ) -> Plan:
        """The cost of a fetch of a ``view``, without fetching; parameters and errors as for `books`.

        Returns a Plan ``requests points minutes memory refused``: pages, points, minutes at the key's rate, bytes of
        the frame, and the parts that the plan of the key does not allow.

        Examples
        --------
        >>> client.plan("books", market, "2025-12-31", "2026-01-01", "1m").points > 0
        True
        """
        choice("view", view, VIEWS)
        self._check_view(view)
        target = None if resolution is None else BucketWidth.of(resolution)
        rng = to_range(*self._own_span(market, ends_of(start, end, period)))
        names = [window.id for window in self._windows(view, "market", market, rng, target or BucketWidth.of("1m"))]
        infos = self._history.markets.look_up_all(names)
        self.usage()
        request = self._offer.request(rng, target, clamp=False)
        windows = self._windows(view, "market", names, request.rng, request.resolution)
        now = int(time.time() * SECOND)
        return make_plan(windows, infos, self._source.limits, now, self._source.requests)

    # -- discovery

    def series(
        self,
        *,
        search: str | None = None,
        tags: str | Sequence[str] | None = None,
        category: str | None = None,
        sort: str | None = None,
        order: str | None = None,
        max_rows: int | None = None,
        page_size: int | None = None,
        params: Mapping[str, str] | None = None,
        **unknown: object,
    ) -> Frame:
        """Series, which are broad themes or recurring categories (interface 4.5); for errors see `books`.

        One row per series: ``series_id slug title status start_date end_date`` [UTC] and further fields.

        Parameters
        ----------
        search : str, optional
            Text to look for.
        tags : str or list of str, optional
            Tags; ``category`` is one of the service's categories, such as "crypto".
        sort, order : str, optional
            Field to sort by; "asc" or "desc".
        max_rows, page_size : int, optional
            Rows in all (by default every one) and per request (1 to 1,000; by default as many as the service gives).
        params : mapping of str, optional
            Further query parameters, sent as they are. One that the client sets itself, such as a cursor, is a
            ConfigError, and so is any other keyword.

        Examples
        --------
        >>> client.series().columns[:3].tolist()
        ['series_id', 'slug', 'title']
        """
        filters = {"search": search, "tags": tags, "category": category, "sort": sort, "order": order}
        return self._listing("series", filters, max_rows, page_size, params, unknown)

    def events(
        self,
        series_slug: str | None = None,
        *,
        series_id: str | None = None,
        search: str | None = None,
        tags: str | Sequence[str] | None = None,
        category: str | None = None,
        start_date_min: TimeLike | None = None,
        start_date_max: TimeLike | None = None,
        end_date_min: TimeLike | None = None,
        end_date_max: TimeLike | None = None,
        sort: str | None = None,
        order: str | None = None,
        max_rows: int | None = None,
        page_size: int | None = None,
        params: Mapping[str, str] | None = None,
        **unknown: object,
    ) -> Frame:
        """Events, which are happenings inside a series, of one (``series_slug`` or ``series_id``) or all.

        One row per event: ``event_id slug title status start_date end_date tags`` [UTC] and further fields. For errors
        see `books`.

        Parameters
        ----------
        series_slug, series_id : str, optional
            The series whose events are listed.
        search : str, optional
            Text to look for.
        tags : str or list of str, optional
            Tags; ``category`` is one of the service's categories, such as "crypto".
        start_date_min, start_date_max, end_date_min, end_date_max : datetime, date, str or number, optional
            Limits of the dates of the events.
        sort, order : str, optional
            Field to sort by; "asc" or "desc".
        max_rows, page_size, params
            As for `series`.

        Examples
        --------
        >>> client.events(max_rows=1).columns[:3].tolist()
        ['event_id', 'slug', 'title']
        """
        filters = {
            "series_slug": series_slug, "series_id": series_id, "search": search, "tags": tags, "category": category,
            "start_date_min": start_date_min, "start_date_max": start_date_max, "end_date_min": end_date_min,
            "end_date_max": end_date_max, "sort": sort, "order": order,
        }  # fmt: skip
        return self._listing("events", filters, max_rows, page_size, params, unknown)

    def markets(
        self,
        search: str | None = None,
        *,
        event_slug: str | None = None,
        event_id: str | None = None,
        series_slug: str | None = None,
        state: State | Sequence[State] | None = None,
        sort: str | None = None,
        tags: str | Sequence[str] | None = None,
        tags_match: str | None = None,
        start_date_min: TimeLike | None = None,
        start_date_max: TimeLike | None = None,
        end_date_min: TimeLike | None = None,
        end_date_max: TimeLike | None = None,
        resolved_at_min: TimeLike | None = None,
        resolved_at_max: TimeLike | None = None,
        min_liquidity: float | None = None,
        category: str | None = None,
        include_closed: bool | None = None,
        order: str | None = None,
        params: Mapping[str, str] | None = None,
        max_rows: int | None = None,
        page_size: int | None = None,
        **unknown: object,
    ) -> Frame:
        """Tradable questions inside an event, of one event (``event_slug`` or ``event_id``) or all.

        ``series_slug`` selects the markets of all events of a series, by one request per event if the service has no
        such filter.

        One row per market: ``market_id slug question status start_date end_date`` [UTC] ``token_ids token_labels``
        (lists) and further fields, as `Archive.add` takes them. For errors see `books`.

        Parameters
        ----------
        search : str, optional
            Words to look for. At "kalshi" they are looked for in the titles of its series and open events; markets of
            another ``state`` are found by the titles of their series.
        state : {"open", "closed", "resolved"} or list of these, optional
            Closed ones are no longer traded and have no outcome so far. A service other than "polymarket" and "kalshi"
            has its own words, which ``params`` takes.
        sort : {"volume_24h", "volume", "newest", "end_date"}, optional
            The most traded first, the newest, or those that end soonest; ``order="asc"`` or ``"desc"`` turns it round.
            By "volume_24h" open markets are listed, unless ``state`` says otherwise. Other services sort by the names
            of their fields.
        resolved_at_min, resolved_at_max : datetime, date, str or number, optional
            Only markets whose outcome was known in between, at "polymarket" and "kalshi".
        tags : str or list of str, optional
            Tags of the markets; ``tags_match`` says how many of them must fit, in words of the service.
        start_date_min, start_date_max, end_date_min, end_date_max : datetime, date, str or number, optional
            Limits of the dates of the markets.
        min_liquidity : float, optional
            Least liquidity.
        category : {"crypto", "sports"}, optional
            Category, of services that have one.
        include_closed : bool, optional
            Whether closed markets are listed; by default they are.
        max_rows, page_size : int, optional
            Rows in all (by default every one) and per request (1 to 1,000; by default as many as the service gives).
        params : mapping of str, optional
            Further query parameters, sent as they are. One that the client sets itself, such as a cursor, is a
            ConfigError, and so is any other keyword.

        Examples
        --------
        >>> client.markets("harbour", max_rows=1)["market_id"].tolist() == [market]
        True
        """
        if include_closed is not None:
            flag("include_closed", include_closed)
        elif self._source.service.hides_closed and state is None:
            include_closed = True
        filters = {
            "event_slug": event_slug, "event_id": event_id, "series_slug": series_slug, "search": search, "tags": tags,
            "tags_match": tags_match, "start_date_min": start_date_min, "start_date_max": start_date_max,
            "end_date_min": end_date_min, "end_date_max": end_date_max, "min_liquidity": min_liquidity,
            "category": category, "include_closed": include_closed, "state": state, "sort": sort, "order": order,
            "resolved_at_min": resolved_at_min, "resolved_at_max": resolved_at_max,
        }  # fmt: skip
        return self._listing("markets", filters, max_rows, page_size, params, unknown)

    def market(self, id_or_slug: str) -> Record:
        """One market (``id_or_slug``), with all fields of the service; NotFoundError if there is none.

        Returns a dict with its fields also as attributes: ``id slug question status start_date end_date tokens
        description closed_at resolved_token_id resolved_token_label`` and further ones.

        Examples
        --------
        >>> client.market(market).id == market
        True
        """
        (id_or_slug,) = self._names([id_or_slug], "id_or_slug")
        try:
            return Record(completed(self._source.record(id_or_slug)))
        except NotFoundError as error:
            self._history.markets.name_near_ones(error, [id_or_slug])
            raise

    def market_records(self, names: Iterable[str]) -> list[Record]:
        """The records of markets (ids or slugs in ``names``) in that order, without the unknown ones; see `market`."""
        records_by_name: dict[str, Record] = {}

        def fetch(name: str) -> None:
            try:
                records_by_name[name] = Record(completed(self._source.record(name)))
                self._history.markets.remember(records_by_name[name])
            except NotFoundError:
                pass
            except (ContractError, BadRequestError, ParameterError) as error:
                said = getattr(error, "detail", None)
                report.leave_out(f"refused: {said}" if said else str(error).replace(name, "..."), name)

        wanted = [name for one in names for name in self._known_names(one)]
        with self._reporting() as report:
            if self._source.service.names_filter is not None and len(wanted) > 1:
                found = self._source.records("markets", {self._source.service.names_filter: ",".join(wanted)})
                records_by_name = {name: Record(completed(row)) for row in found for name in names_of(row)}
                for row in found:
                    self._history.markets.remember(row)
            run_all(self._source, [partial(fetch, name) for name in wanted if name not in records_by_name])
        return [records_by_name[name] for name in wanted if name in records_by_name]

    def tokens(self, id_or_slug: str) -> Frame:
        """One row per token of a market, ``market_id token_id token_label`` and further fields; see `market`.

        If the winner is known, ``winner`` says whether it is this token.
        """
        market = self.market(id_or_slug)
        won = market.get("resolved_token_id")
        rows = [
            {"market_id": market["id"], **{"token_label" if k == "label" else k: v for k, v in token.items()}}
            | ({} if won is None else {"winner": token["id"] == won})
            for token in market["tokens"]
        ]
        return self._to_frame("tokens", rows)

    def tags(self) -> list[str]:
        """Every tag in use, as a list of str; see `series`."""
        return self._source.tags()

    def health(self) -> Record:
        """Whether the service is up.

        Returns a record of its ``status`` and its clock ``timestamp`` [UTC].

        Examples
        --------
        >>> client.health().status
        'ok'
        """
        return Record(self._source.health())

    def server_time(self) -> datetime | None:
        """The service's clock [UTC] by the last answer, or None if none has a date; see `health`."""
        if self._source.server_time is None:
            self._source.health()
        date = self._source.server_time
        return None if date is None else to_datetime(round(date * SECOND))

    def usage(self) -> Record:
        """Plan of the key and what is left of it; see `health`.

        Returns a record ``plan organization limits reset_at`` [Unix s]; ``limits`` has ``requests_per_minute
        requests_remaining granularity_allowed max_history_days``, each as the service writes it, or None.
        """
        usage = self._source.usage()
        limits = usage.get("limits")
        names = ("requests_per_minute", "requests_remaining", "granularity_allowed", "max_history_days")
        limits = {**dict.fromkeys(names), **(limits if isinstance(limits, dict) else {"limits": limits})}
        return Record({**dict.fromkeys(("plan", "organization", "limits", "reset_at")), **usage, "limits": limits})

    def _get(
        self,
        view: View,
        kind: IdKind,
        ids: Any,
        span: Span,
        resolution: str | None,
        *,
        clamp: bool,
        every_page: bool = False,
        **options: Any,
    ) -> Frame:
        flag("clamp", clamp)
        if kind == "token":
            span = _whole_span(*span)
        span = self._span_of(view, ids, span, resolution, every_page=every_page)
        if self._archive is None or kind == "token":
            [frame] = self._frames(view, kind, ids, span, resolution, clamp=clamp, is_whole=True, **options)
            return frame
        client, report = copy(self), Report()
        client.__dict__.update(_report=report)
        archive = self._archive.attach(client, progress=self._history.progress, clamp=clamp)
        read = partial(getattr(archive, view), ids, *span, resolution, **options)
        try:
            return cast("Frame", carry(read(on_missing="fetch"), report))
        except MarketDataError as error:
            # Points that arrived are in the archive: the same call continues, and a resume would return less.
            error.resume = None
            with suppress(MarketDataError):
                error.partial = carry(read(on_missing="partial"), report)
            raise

    def _frames(
        self,
        view: View,
        kind: IdKind,
        ids: Any,
        span: Span,
        resolution: str | None,
        *,
        levels: int | None = None,
        clamp: bool = False,
        every_page: bool = False,
        is_whole: bool = False,
    ) -> Iterator[Frame]:
        """Frames at the requested resolution, or made from a finer one of the service; arguments are checked first."""
        flag("clamp", clamp)
        known = self._span_of(view, ids, span, resolution, every_page=every_page)
        target = None if resolution is None else BucketWidth.of(resolution)
        rng = to_range(*known)

        def asked() -> tuple[Request, list[Window]]:
            request = self._offer.request(rng, target, clamp=clamp)
            return request, self._windows(view, kind, ids, request.rng, request.resolution)

        def frames(request: Request, windows: list[Window]) -> Iterator[Frame]:
            while True:
                fetched = self._history.frames(windows, levels, self.frame, target=request.target, is_whole=is_whole)
                try:
                    first = next(fetched, None)
                    break
                except RequestError as error:
                    self._offer.learn(error, request)
                    refused, (request, windows) = request, asked()
                    if request == refused:
                        raise
            if first is not None:
                yield first
                yield from fetched

        return frames(*asked())

    def _span_of(
        self, view: View, ids: Any, span: Span, resolution: str | None, *, every_page: bool
    ) -> tuple[TimeLike, TimeLike]:
        """`_own_span`, if a fetch of it takes few requests or ``every_page`` is wanted."""
        flag("all", every_page)
        self._check_view(view)
        start, end = self._own_span(ids, span)
        if every_page or all(one is not None for one in span):
            return start, end
        cost = self.plan(view, ids, start, end, resolution)
        if cost.requests > _MOST_REQUESTS:
            of = ", ".join(self._names(ids)[:3])
            first, last = map(to_datetime, to_range(start, end))
            what = f"{view} of {of} from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
            hint = "Give start= and end=, a coarser resolution=, or all=True."
            raise ConfigError(f"{what} takes more than {_MOST_REQUESTS} requests: {cost}", hint=hint)
        return start, end

    def _own_span(self, ids: Any, span: Span) -> tuple[TimeLike, TimeLike]:
        """The times of a fetch. Without them it takes the active range of its markets, as far as the plan reaches."""
        start, end = span
        if start is not None and end is not None:
            return start, end
        given = self._names(ids)
        infos = self._history.markets.look_up_all(given).values()
        if start is None:
            starts = [info.start for info in infos if info.start is not None]
            if len(starts) < len(given) or not given:
                raise ConfigError("is missing, and a market has no start date; give start=.", argument="start")
            start = to_datetime(min(starts))
        if end is None:
            now = round((self._source.server_time or time.time()) * SECOND)
            end = to_datetime(min(now, max(now if info.end is None else info.end for info in infos)))
        return self._within_plan(to_range(start, end))

    def _within_plan(self, rng: Range) -> tuple[datetime, datetime]:
        """A range without the part before the history of the plan, with a warning."""
        start, earliest = rng.start, self._offer.earliest
        if earliest is not None and start < earliest < rng.end:
            start = -(-(earliest + MINUTE) // MINUTE) * MINUTE
            text = f"The market begins at {to_text(rng.start)}; the plan reaches back to {to_text(start)}."
            warn(text, PlanWarning)
        return to_datetime(start), to_datetime(rng.end)

    def _check_view(self, view: View) -> None:
        """ConfigError for a view that the source does not have, before anything is asked."""
        if view not in self._source.service.views:
            raise self._source.service.lacks(view)

    def _names(self, given: Any, argument: str = "market", what: str = "an id or slug") -> list[str]:
        """The markets or tokens of an argument; the address of an event stands for its market, if it has one."""
        service, out = self._source.service, list[str]()
        for name in names(argument, given, what, service.short if service.short in VENUES else None):
            if (event := event_in(name)) is None:
                out.append(name)
                continue
            rows = self._source.records("markets", {"event_slug": event})
            if len(rows) != 1:
                raise NotFoundError.from_event(event, [str(row.get("slug") or row["id"]) for row in rows])
            self._history.markets.remember(rows[0])
            out.append(str(rows[0].get("slug") or rows[0]["id"]))
        return out

    def _known_names(self, given: str) -> list[str]:
        """The market of a name, none for an event of another number of markets."""
        with suppress(NotFoundError):
            return self._names(given)
        return []

    def _windows(self, view: View, kind: IdKind, ids: Any, rng: Range, width: BucketWidth) -> list[Window]:
        """One window of the whole range per id, each id once; ConfigError if there are none, or they are not text."""
        self._check_view(view)
        name, what = ("market", "an id or slug") if kind == "market" else ("token_id", "an id")
        given = self._names(ids, name, what)
        if not given:
            raise ConfigError(f"{name}={ids!r} is refused; pass {what} as text, or a list of them.")
        return [Window(view, kind, i, rng, width, self._page_limit) for i in given]

    def _listing(
        self,
        kind: records.FrameOf,
        filters: Mapping[str, Any],
        max_rows: int | None,
        page_size: int | None,
        params: Mapping[str, str] | None,
        unknown: Mapping[str, object],
    ) -> Frame:
        """A frame of all records that pass the filters."""
        refuse_unknown(kind, unknown, filters)
        service = self._source.service
        size = service.listing_page if page_size is None else whole("page_size", page_size, 1, LARGEST_LISTING)
        if max_rows is not None:
            whole("max_rows", max_rows, 0)
        query = {**check_filters(service, filters), **check_params(service, params or {}, filters)}
        with self._reporting() as report:
            rows = self._records(kind, query, max_rows, size, report)
        if kind == "markets":
            rows = [completed(row) for row in rows]
            for row in rows:
                self._history.markets.remember(row)
        return self._to_frame(kind, rows)

    @contextmanager
    def _reporting(self) -> Iterator[Report]:
        """A report of a call about records; a warning counts those that were left out, an error in strict mode."""
        report = self._history.last_report = Report()
        yield report
        if report.left_out:
            names = [*dict.fromkeys(name for some in report.left_out.values() for name in some)]
            reasons = "; ".join(f"{reason} ({len(some)})" for reason, some in report.left_out.items())
            what = (
                f"{len(names)} records were left out, {', '.join(names[:3])}{', ...' if names[3:] else ''}: {reasons}"
            )
            if self._history.strict:
                raise ContractError(what)
            warn(f"{what} client.last_report.left_out has their names.", ServiceOddityWarning)

    def _records(
        self, kind: str, query: dict[str, str], max_rows: int | None, size: int, report: Report
    ) -> list[dict[str, Any]]:
        """Records of a listing. A series is listed event by event if the service cannot filter by it."""
        if kind != "markets" or "series_slug" not in query or "series_slug" in (self._source.service.filters or ()):
            return self._source.records(kind, query, max_rows, size, report)
        if "event_slug" in query or "event_id" in query:
            raise ConfigError("and an event exclude each other; name one of them.", argument="series_slug")
        rows, series = dict[Any, dict[str, Any]](), query.pop("series_slug")
        for event in self._source.records("events", {"series_slug": series}, report=report):
            missing = None if max_rows is None else max_rows - len(rows)
            slug = event.get("slug") or event["id"]
            of_event = self._source.records("markets", {**query, "event_slug": slug}, missing, size, report)
            rows |= {row["id"]: {**row, "event_slug": row.get("event_slug") or slug} for row in of_event}
            if len(rows) == max_rows:
                break
        return [*rows.values()]

    def _to_frame(self, kind: records.FrameOf, rows: list[dict[str, Any]]) -> Frame:
        return cast("Frame", records.to_frame(kind, rows, self.frame))
