"""The client: one line from a market to a tidy frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from marketdata.accessor import to_frame
from marketdata.client.asking import Markets
from marketdata.client.discovery import Discovery
from marketdata.client.history import History, Options, safe_parts
from marketdata.client.loops import Awaited
from marketdata.client.probing import verify
from marketdata.client.targets import wanted, whole
from marketdata.client.through import KeepsHistory
from marketdata.client.verification import Verification
from marketdata.errors import ConfigError
from marketdata.fetch.keys import KeyProvider, veiled
from marketdata.fetch.plan import Plan, make_plan
from marketdata.fetch.position import LARGEST_LIMIT, Report, Request, Resume
from marketdata.fetch.transport import Transport
from marketdata.resolution import Resolution
from marketdata.tidy.frames import frame_kind
from marketdata.times import SECOND, Range, to_range
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import VIEWS, AnyColumns, View

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame

Key = str | Callable[[], str] | KeyProvider


class Client(Awaited[Frame], Discovery[Frame]):
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
    archive : Archive, optional
        Where `books`, `prices` and `metrics` read through: what it holds as final is not asked again, what it lacks is
        fetched into it, at 1m whatever the resolution, and coarser buckets are derived from that.

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

    @overload
    def __init__(
        self: Client[PandasFrame],
        base_url: str | None = None,
        api_key: Key | None = None,
        frame: Literal["pandas"] = "pandas",
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: KeepsHistory | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Client[PolarsFrame],
        base_url: str | None = None,
        api_key: Key | None = None,
        *,
        frame: Literal["polars"],
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: KeepsHistory | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Client[PolarsFrame],
        base_url: str | None,
        api_key: Key | None,
        frame: Literal["polars"],
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: KeepsHistory | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        base_url: str | None = None,
        api_key: Key | None = None,
        frame: FrameKind = "pandas",
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: KeepsHistory | None = None,
    ) -> None: ...

    def __init__(
        self,
        base_url: str | None = None,
        api_key: Key | None = None,
        frame: FrameKind = "pandas",
        *,
        strict: bool = False,
        progress: bool | None = None,
        page_limit: int = LARGEST_LIMIT,
        allow_insecure: bool = False,
        archive: KeepsHistory | None = None,
    ) -> None:
        api_key = veiled(api_key)  # a crash report shows the locals of this frame
        self.frame = frame_kind(frame)
        self._transport = Transport(base_url, api_key, allow_insecure=allow_insecure)
        self._options = Options(strict, progress, whole("page_limit", page_limit, 1, LARGEST_LIMIT))
        self._history = History(self._transport, self._options)
        self._archive = archive

    def iter_books(
        self, market: Markets, start: Any, end: Any, resolution: str, *, levels: int | None = None
    ) -> Iterator[Frame]:
        """Frames of `books` in time order, market after market, in bounded memory.

        Parameters
        ----------
        market, start, end, resolution, levels
            As in `books`.

        Yields
        ------
        frame
            Some 20,000 snapshots each; put together they are the frame of `books`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     frames = client.iter_books(market, "2025-12-31", "2026-01-01", "1h")
        ...     {side for frame in frames for side in frame["side"]} == {"bid", "ask"}
        True
        """
        return self._iter("books", market, (start, end), resolution, levels)

    def iter_prices(self, market: Markets, start: Any, end: Any, resolution: str) -> Iterator[Frame]:
        """Frames of `prices` in time order, market after market, in bounded memory.

        Parameters
        ----------
        market, start, end, resolution
            As in `prices`.

        Yields
        ------
        frame
            Some 500,000 points each; put together they are the frame of `prices`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     markets = client.markets(max_rows=2)["slug"]
        ...     frames = client.iter_prices(markets, "2025-12-31", "2026-01-01", "1h")
        ...     sum(frame["market_id"].nunique() for frame in frames)
        2
        """
        return self._iter("prices", market, (start, end), resolution, None)

    def iter_metrics(self, market: Markets, start: Any, end: Any, resolution: str) -> Iterator[Frame]:
        """Frames of `metrics` in time order, market after market, in bounded memory.

        Parameters
        ----------
        market, start, end, resolution
            As in `metrics`.

        Yields
        ------
        frame
            Some 500,000 points each; put together they are the frame of `metrics`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     sum(map(len, client.iter_metrics(market, "2025-12-31", "2026-01-01", "6h")))
        4
        """
        return self._iter("metrics", market, (start, end), resolution, None)

    def iter_columns(
        self, view: View, market: Markets, rng: Range, resolution: str = "1m", *, report: Report | None = None
    ) -> Iterator[tuple[Request, Range, AnyColumns, bool]]:
        """Stretches that are complete, as they become so: what an archive writes.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market, resolution
            As in `books`.
        rng : Range
            Start inclusive, end exclusive [microseconds UTC].
        report : Report, optional
            Counts what it costs.

        Yields
        ------
        tuple of (Request, Range, columns, bool)
            What was asked, the stretch that is complete [microseconds UTC], its points, and whether its end is proven.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import marketdata as md
        >>> from marketdata.times import to_range
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client, day = md.Client(service.base_url, service.api_key), to_range("2025-12-31", "2026-01-01")
        ...     parts = client.iter_columns("prices", client.markets(max_rows=1)["slug"][0], day, "6h")
        ...     sum(len(points) for _, _, points, _ in parts)
        8
        """
        requests = self._requests(view, "market", market, rng, resolution, bounded=True)
        return safe_parts(self._history.walks(requests, report or Report(), buffer=64))

    def resume(self, resume: Resume, *, levels: int | None = None) -> Frame:
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
        columns = self._history.columns(resume.positions, Report(), levels, self.frame)
        return cast("Frame", to_frame(columns, self.frame))

    def verify(self, market: str, start: Any, end: Any, *, fine: str = "1m", coarse: str = "1h") -> Verification:
        """Which reading the service follows where the interface is silent.

        Parameters
        ----------
        market : str
            Id or slug; one with holes and at least two tokens tells most.
        start, end : datetime, date, str or number
            As in `books`; whole buckets of ``coarse`` inside are compared, two at least. A day is enough.
        fine, coarse : {"1m", "10m", "1h", "6h", "1d"}
            The resolutions that are compared.

        Returns
        -------
        Verification
            One finding per reading: what ``t`` names (label), what means are taken over (averages), which book of a
            bucket is given (books), what stands in an empty bucket (empty), what ``limit`` counts (limit). Each is
            followed, a variant that is named, or not decidable with this data. Shows itself as text and HTML.

        Raises
        ------
        ConfigError
            If an argument is refused.
        RequestError, NetworkError, ContractError
            As in `books`.

        Notes
        -----
        Source: interface 2.3, 4.1 to 4.4; readings. Pages are compared as they came: nothing is repaired.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1), variants={"label": "end"}) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.verify(client.markets(max_rows=1)["slug"][0], "2025-12-31", "2026-01-01").variants
        {'label': 'end'}
        """
        return verify(self._transport, market, to_range(start, end), fine, coarse)

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
