"""The client: one line from a market to a tidy frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from marketdata.accessor import to_frame
from marketdata.client.discovery import Discovery
from marketdata.client.history import History, Options, safe_parts
from marketdata.client.targets import wanted, whole
from marketdata.client.threads import awaited
from marketdata.errors import ConfigError
from marketdata.fetch.keys import KeyProvider
from marketdata.fetch.plan import Plan, make_plan
from marketdata.fetch.position import LARGEST_LIMIT, Kind, Report, Request, Resume
from marketdata.fetch.transport import Transport
from marketdata.resolution import Resolution
from marketdata.tidy.frames import FrameKind, frame_kind
from marketdata.times import SECOND, Range, to_range
from marketdata.wire.columns import VIEWS, AnyColumns, View

Markets = str | Iterable[str]


class Client(Discovery):
    """Reads a historical market data service into tidy frames.

    Parameters
    ----------
    base_url : str, optional
        Address of the service, with or without ``/v1``; None reads MARKETDATA_BASE_URL.
    api_key : str or callable, optional
        The key, or what gives it; None reads MARKETDATA_API_KEY. It is sent in ``X-API-Key`` only and shown nowhere.
    frame : {"pandas", "polars"}
        Kind of every frame.
    strict : bool
        A repaired or odd answer is a ContractError instead of a note in the report.
    progress : bool, optional
        Show a bar on long fetches; None: in terminals and notebooks only.
    page_limit : int
        Points asked for per page, 1 to 200; the most costs the fewest requests.
    allow_insecure : bool
        Allow ``http://`` beyond this machine, where the key can be read on its way.

    Raises
    ------
    ConfigError
        If an argument is refused; nothing was sent.

    Notes
    -----
    Source: interface 4, 5. Requests of all clients of one key are paced together to the key's requests per minute.
    Threads may share a client.

    Examples
    --------
    >>> import marketdata as md
    >>> with md.serve(md.simulate(events=1, days=1)) as service:
    ...     client = md.Client(service.base_url, service.api_key)
    ...     market = client.markets(max_rows=1)["slug"][0]
    ...     books = client.books(market, "2025-12-31", "2025-12-31T01:00", "10m")
    >>> books.columns.tolist()
    ['ts', 'market_id', 'token_id', 'token_label', 'side', 'level', 'price', 'size']
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | Callable[[], str] | KeyProvider | None = None,
        frame: FrameKind = "pandas",
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
    ) -> None:
        self.frame = frame_kind(frame)
        self._transport = Transport(base_url, api_key, allow_insecure=allow_insecure)
        self._options = Options(strict, progress, whole("page_limit", page_limit, 1, LARGEST_LIMIT))
        self._history = History(self._transport, self._options)

    def books(
        self, market: Markets, start: Any, end: Any, resolution: str, *, levels: int | None = None, report: bool = False
    ) -> Any:
        """Order books of all tokens of a market, exploded into level rows.

        Parameters
        ----------
        market : str or list of str
            Id or slug, or several.
        start, end : datetime, date, str or number
            Range: start inclusive, end exclusive [UTC where no zone is given; numbers are Unix s].
        resolution : {"1m", "10m", "1h", "6h", "1d"}
            Within each bucket the last book is returned.
        levels : int, optional
            At most so many levels of each side.
        report : bool
            Give ``(frame, report)``: what was repaired, what looked odd, what it cost.

        Returns
        -------
        frame
            One row per level of a book side: ``ts market_id token_id token_label side level price size``. ``ts`` is the
            bucket start [UTC, microseconds], ``level`` 0 the best, ``price`` a probability 0 to 1, ``size`` shares. An
            empty side is one row with null level, price and size. Sorted by market, token, ts, side (bid first),
            level. No data: no rows, all columns.

        Raises
        ------
        ConfigError
            If an argument is refused; nothing was sent.
        NotFoundError, PlanError, AuthenticationError, ParameterError, RateLimitError, ServerError
            If the service says no.
        NetworkError, ContractError
            If no answer, or no answer of the interface, came. ``.partial`` has the rows so far, ``.resume`` what
            `resume` takes.

        Notes
        -----
        Source: interface 4.1, 4.2. Markets of more than 200 tokens are asked token by token.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     int(client.books(market, "2025-12-31", "2026-01-01", "6h", levels=1)["level"].max())
        0
        """
        return self._get("books", "market", market, (start, end), resolution, levels, report)

    def prices(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """Prices of all tokens of a market.

        Parameters
        ----------
        market, start, end, resolution, report
            As in `books`; within each bucket the mean price is returned.

        Returns
        -------
        frame
            One row per token and bucket: ``ts market_id token_id token_label price``. ``ts`` is the bucket start [UTC,
            microseconds], ``price`` a probability 0 to 1, null where the service says null. No point, no row.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Notes
        -----
        Source: interface 4.1, 4.3; readings "price point".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key, frame="polars")
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     client.prices(market, "2025-12-31", "2026-01-01", "1h").columns
        ['ts', 'market_id', 'token_id', 'token_label', 'price']
        """
        return self._get("prices", "market", market, (start, end), resolution, None, report)

    def metrics(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """Metrics of a market: volume, liquidity, spread, and whatever more the service gives.

        Parameters
        ----------
        market, start, end, resolution, report
            As in `books`; within each bucket the mean of each metric is returned.

        Returns
        -------
        frame
            One row per market and bucket: ``ts market_id volume liquidity spread``, further numeric metrics. ``ts``
            is the bucket start [UTC, microseconds]. This ``spread`` is the service's number for the market, not the one
            of a book.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Notes
        -----
        Source: interface 4.1, 4.4; readings "metric point".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key, frame="polars")
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     client.metrics(market, "2025-12-31", "2026-01-01", "1h").columns[:5]
        ['ts', 'market_id', 'volume', 'liquidity', 'spread']
        """
        return self._get("metrics", "market", market, (start, end), resolution, None, report)

    def token_books(
        self,
        token_id: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: bool = False,
    ) -> Any:
        """Order books of one token, or of several; everything else as in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     token = client.markets(max_rows=1)["token_ids"][0][0]
        ...     client.token_books(token, "2025-12-31", "2026-01-01", "6h")["token_id"].nunique()
        1
        """
        return self._get("books", "token", token_id, (start, end), resolution, levels, report)

    def token_prices(self, token_id: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """Prices of one token, or of several; everything else as in `prices`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     token = client.markets(max_rows=1)["token_ids"][0][0]
        ...     client.token_prices(token, "2025-12-31", "2026-01-01", "6h")["token_id"].nunique()
        1
        """
        return self._get("prices", "token", token_id, (start, end), resolution, None, report)

    def iter_books(
        self, market: Markets, start: Any, end: Any, resolution: str, *, levels: int | None = None
    ) -> Iterator[Any]:
        """Frames of `books` in time order, market after market, in bounded memory.

        Yields
        ------
        frame
            Some 20,000 snapshots each; put together they are the frame of `books`.
        """
        return self._iter("books", market, (start, end), resolution, levels)

    def iter_prices(self, market: Markets, start: Any, end: Any, resolution: str) -> Iterator[Any]:
        """Frames of `prices` in time order, market after market, in bounded memory."""
        return self._iter("prices", market, (start, end), resolution, None)

    def iter_metrics(self, market: Markets, start: Any, end: Any, resolution: str) -> Iterator[Any]:
        """Frames of `metrics` in time order, market after market, in bounded memory."""
        return self._iter("metrics", market, (start, end), resolution, None)

    def iter_columns(
        self, view: View, market: Markets, rng: Range, resolution: str = "1m"
    ) -> Iterator[tuple[Request, Range, AnyColumns, bool]]:
        """Stretches that are complete, as they become so: what an archive writes.

        Yields
        ------
        tuple of (Request, Range, columns, bool)
            What was asked, the stretch that is complete [microseconds UTC], its points, and whether its end is proven.
        """
        requests = self._requests(view, "market", market, rng, resolution, bounded=True)
        return safe_parts(self._history.walks(requests, Report(), buffer=64))

    def resume(self, resume: Resume, *, levels: int | None = None) -> Any:
        """Go on after an error, without asking again for what had arrived.

        Parameters
        ----------
        resume : Resume
            ``error.resume`` of any fetch.
        levels : int, optional
            As in `books`.

        Returns
        -------
        frame
            The rows that were missing: ``error.partial`` and these together are the whole.

        Raises
        ------
        ConfigError
            If it is no such object.
        RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> client = md.Client("http://127.0.0.1:9", "some-key-of-mine-1")
        >>> client.resume("2026-01-01")
        Traceback (most recent call last):
        ...
        marketdata.errors.ConfigError: resume='2026-01-01': give the .resume of an error.
        """
        if not isinstance(resume, Resume):
            raise ConfigError(f"resume={resume!r}: give the .resume of an error.")
        if not resume.positions:
            raise ConfigError("Nothing is left to resume: all rows are in .partial.")
        return to_frame(self._history.columns(resume.positions, Report(), levels, self.frame), self.frame)

    def plan(self, view: View, market: Markets, start: Any, end: Any, resolution: str) -> Plan:
        """What a fetch would cost, without fetching.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market, start, end, resolution
            As in `books`.

        Returns
        -------
        Plan
            ``requests points minutes memory refused``: pages, points, minutes at the key's rate, bytes of the frame,
            and the parts that the plan of the key does not allow. Shows itself as text and HTML.

        Raises
        ------
        ConfigError
            If an argument is refused.
        RequestError, NetworkError
            If ``usage`` or the market can not be asked.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.plan("books", client.markets(max_rows=1)["slug"][0], "2025-12-31", "2026-01-01", "1m").points
        2880
        """
        if view not in VIEWS:
            raise ConfigError(f"view={view!r} does not exist; allowed are {', '.join(VIEWS)}.")
        requests = wanted(
            view, "market", market, to_range(start, end), Resolution.of(resolution), self._options.page_limit
        )
        tokens = {r.id: len(self._history.catalogue.facts(r.id).tokens) for r in requests}
        return make_plan(requests, tokens, self.usage(), int(time.time() * SECOND))

    async def abooks(
        self, market: Markets, start: Any, end: Any, resolution: str, *, levels: int | None = None, report: bool = False
    ) -> Any:
        """`books` for code that runs in an event loop."""
        return await awaited(self.books, market, start, end, resolution, levels=levels, report=report)

    async def aprices(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """`prices` for code that runs in an event loop."""
        return await awaited(self.prices, market, start, end, resolution, report=report)

    async def ametrics(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """`metrics` for code that runs in an event loop."""
        return await awaited(self.metrics, market, start, end, resolution, report=report)

    def close(self) -> None:
        """Close idle connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._transport.base_url!r}, {self._transport.keys!r}, frame={self.frame!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"transport": self._transport, "frame": self.frame, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.frame, self._transport, self._options = state["frame"], state["transport"], state["options"]
        self._history = History(self._transport, self._options)

    def _get(
        self, view: View, kind: Kind, ids: Any, span: tuple[Any, Any], resolution: str, levels: int | None, report: bool
    ) -> Any:
        account = Report()
        requests = self._requests(view, kind, ids, to_range(*span), resolution)
        frame = to_frame(self._history.columns(requests, account, levels, self.frame), self.frame)
        return (frame, account) if report else frame

    def _iter(
        self, view: View, market: Any, span: tuple[Any, Any], resolution: str, levels: int | None
    ) -> Iterator[Any]:
        requests = self._requests(view, "market", market, to_range(*span), resolution, bounded=True)
        return self._history.frames(requests, Report(), levels, self.frame)

    def _requests(
        self, view: View, kind: Kind, ids: Any, rng: Range, resolution: str, *, bounded: bool = False
    ) -> list[Request]:
        asked = wanted(view, kind, ids, rng, Resolution.of(resolution), self._options.page_limit)
        return self._history.catalogue.requests(asked, bounded=bounded)
