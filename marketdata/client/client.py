"""The client: one line from a market to a tidy frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from marketdata.client.discovery import Discovery, Record
from marketdata.client.feed import Feed
from marketdata.client.fetching import Fetching, Wanted
from marketdata.client.history import History
from marketdata.client.offer import Offer
from marketdata.conformance.probe import verify
from marketdata.conformance.report import Verification
from marketdata.display import html_table
from marketdata.errors import ConfigError, MarketDataError, NotFoundError
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.auth import KeyProvider, veiled
from marketdata.fetch.plans import Plan
from marketdata.fetch.sources import connect
from marketdata.fetch.threads import run_all
from marketdata.filters import EventFilters, MarketFilters, SeriesFilters, takes
from marketdata.points import candles
from marketdata.points.arguments import choice, flag, whole
from marketdata.points.columns import Books, Data, Series, Token, Trades, joined
from marketdata.points.records import names_of
from marketdata.points.views import VIEWS, View, empty, quotes_of
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import Channel, channel_of
from marketdata.tidy import records
from marketdata.tidy.frames import frame_kind, to_frame
from marketdata.times import SECOND, Duration, TimeLike, ends_of, now, to_datetime, to_range
from marketdata.typing import Frame, FrameKind
from marketdata.vendors import KalshiPrice, PolymarketRoute
from marketdata.wire.models import LARGEST_LIMIT

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Client[Any]")
ApiKey = str | Callable[[], str] | KeyProvider
Markets = str | Iterable[str]


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
        wanted = Wanted(cast("View", view), "market", market, span, resolution, every_page=every_page, **options)
        return self._fetching.frames(wanted, self.frame)

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
        limit = whole("page_limit", page_limit, 1, LARGEST_LIMIT)
        self._offer, self._discovery = Offer(self._source), Discovery(self._source, self._history)
        self._fetching = Fetching(self._source, self._history, self._offer, self._discovery, limit)
        self._archive = archive
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
        span = ends_of(start, end, period)
        return self._get(Wanted("books", "market", market, span, resolution, levels, clamp, all))

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
        return self._get(Wanted("prices", "market", market, span, resolution, clamp=clamp, every_page=all))

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
        return self._get(Wanted("metrics", "market", market, span, resolution, clamp=clamp, every_page=all))

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
        return self._get(Wanted("quotes", "market", market, span, resolution, clamp=clamp, every_page=all))

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
        return self._get(Wanted("books", "token", token_id, span, resolution, levels, clamp))

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
        span = ends_of(start, end, period)
        return self._get(Wanted("prices", "token", token_id, span, resolution, clamp=clamp))

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

        def fetch(name: str) -> None:
            parts.extend(part.between(*rng) for part in self._source.trades(name, rng))

        def frame() -> Frame:
            filled = [part for part in parts if len(part)]
            return cast("Frame", to_frame(joined(filled) if filled else Trades.empty(), self.frame))

        return self._of_each(self._discovery.names(market), fetch, frame)

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
        rng, width = to_range(*_whole_span(start, end, period)), BucketWidth.of(resolution)
        given, parts, service = self._discovery.names(market), list[Series](), self._source.service
        if service.resolutions is not None and str(width) not in service.resolutions:
            what = f"is no resolution of {service.name}; it has {', '.join(service.resolutions)}."
            raise ConfigError(what, argument="resolution", value=resolution)
        report = self._history.last_report = Report()

        def fetch(name: str) -> None:
            parts.append(self._source.candles(name, rng, width, report))

        def frame() -> Frame:
            filled = [part for part in parts if len(part)] or parts[:1]
            found = joined(filled) if filled else candles.none()
            return cast("Frame", carry(to_frame(found, self.frame, width=width), report))

        return self._of_each(given, fetch, frame)

    def _of_each(self, names: Sequence[str], fetch: Callable[[str], None], frame: Callable[[], Frame]) -> Frame:
        """The frame of what is fetched of each market; an error has what arrived."""
        try:
            run_all(self._source, [partial(fetch, name) for name in names])
        except MarketDataError as error:
            error.partial = frame()
            if isinstance(error, NotFoundError):
                self._history.markets.name_near_ones(error, names)
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
        given, parts = self._discovery.names(market), list[Data]()
        if "books" not in self._source.service.live:
            self._source.now("books", ())  # an error says what to ask for instead
        unseen = [name for name in given if name not in self._tokens_by_name]
        for record in self._discovery.markets(unseen) if unseen else ():
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

    @property
    def feed(self) -> Feed:
        """What an archive asks of this client, such as points as they arrive; see `Archive.pull`."""
        return self._feed()

    def _feed(self, report: Report | None = None) -> Feed:
        parts = self._source, self._history, self._offer, self._discovery, self._fetching
        return Feed(self, *parts, report)

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
        return self._fetching.plan(Wanted(view, "market", market, ends_of(start, end, period), resolution))

    # -- discovery

    @takes(SeriesFilters)
    def series(
        self,
        search: str | None = None,
        *,
        max_rows: int | None = None,
        page_size: int | None = None,
        params: Mapping[str, str] | None = None,
        **filters: Unpack[SeriesFilters],
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
        rows = self._discovery.listing("series", {"search": search, **filters}, max_rows, page_size, params)
        return self._to_frame("series", rows)

    @takes(EventFilters)
    def events(
        self,
        search: str | None = None,
        *,
        max_rows: int | None = None,
        page_size: int | None = None,
        params: Mapping[str, str] | None = None,
        **filters: Unpack[EventFilters],
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
        rows = self._discovery.listing("events", {"search": search, **filters}, max_rows, page_size, params)
        return self._to_frame("events", rows)

    @takes(MarketFilters)
    def markets(
        self,
        search: str | None = None,
        *,
        max_rows: int | None = None,
        page_size: int | None = None,
        params: Mapping[str, str] | None = None,
        **filters: Unpack[MarketFilters],
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
        if (include_closed := filters.get("include_closed")) is not None:
            flag("include_closed", include_closed)
        elif self._source.service.hides_closed and filters.get("state") is None:
            filters["include_closed"] = True
        rows = self._discovery.listing("markets", {"search": search, **filters}, max_rows, page_size, params)
        return self._to_frame("markets", rows)

    def market(self, id_or_slug: str) -> Record:
        """One market (``id_or_slug``), with all fields of the service; NotFoundError if there is none.

        Returns a dict with its fields also as attributes: ``id slug question status start_date end_date tokens
        description closed_at resolved_token_id resolved_token_label`` and further ones.

        Examples
        --------
        >>> client.market(market).id == market
        True
        """
        return self._discovery.market(id_or_slug)

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

    def _get(self, wanted: Wanted) -> Frame:
        flag("clamp", wanted.clamp)
        if wanted.kind == "token":
            wanted = wanted._replace(span=_whole_span(*wanted.span))
        wanted = wanted._replace(span=self._fetching.span_of(wanted))
        if self._archive is None or wanted.kind == "token":
            [frame] = self._fetching.frames(wanted, self.frame, is_whole=True)
            return cast("Frame", frame)
        report = Report()
        archive = self._archive.attach(self._feed(report), progress=self._history.progress, clamp=wanted.clamp)
        levels = {"levels": wanted.levels} if wanted.view == "books" else {}
        read = partial(getattr(archive, wanted.view), wanted.ids, *wanted.span, wanted.resolution, **levels)
        try:
            return cast("Frame", carry(read(on_missing="fetch"), report))
        except MarketDataError as error:
            # Points that arrived are in the archive: the same call continues, and a resume would return less.
            error.resume = None
            with suppress(MarketDataError):
                error.partial = carry(read(on_missing="partial"), report)
            raise

    def _to_frame(self, kind: records.FrameOf, rows: list[dict[str, Any]]) -> Frame:
        return cast("Frame", records.to_frame(kind, rows, self.frame))
