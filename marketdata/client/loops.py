"""The views of the service for code that runs in an event loop."""

from __future__ import annotations

from typing import Any, Literal, overload

from marketdata.client.asking import Markets
from marketdata.client.threads import awaited
from marketdata.client.views import Views
from marketdata.fetch.position import Report
from marketdata.typing import Frame


class Awaited(Views[Frame]):
    """The history half of the client, and the same to be awaited."""

    @overload
    async def abooks(
        self,
        market: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: Literal[False] = False,
    ) -> Frame: ...

    @overload
    async def abooks(
        self,
        market: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: Literal[True],
    ) -> tuple[Frame, Report]: ...

    async def abooks(
        self, market: Markets, start: Any, end: Any, resolution: str, *, levels: int | None = None, report: bool = False
    ) -> Any:
        """`books` for code that runs in an event loop.

        Parameters
        ----------
        market, start, end, resolution, levels, report
            As in `books`.

        Returns
        -------
        frame
            The frame of `books`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import asyncio, marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     asyncio.run(client.abooks(market, "2025-12-31", "2026-01-01", "1d", levels=1)).md.bbo().shape[0]
        2
        """
        return await awaited(self.books, market, start, end, resolution, levels=levels, report=report)

    @overload
    async def aprices(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[False] = False
    ) -> Frame: ...

    @overload
    async def aprices(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[True]
    ) -> tuple[Frame, Report]: ...

    async def aprices(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """`prices` for code that runs in an event loop.

        Parameters
        ----------
        market, start, end, resolution, report
            As in `prices`.

        Returns
        -------
        frame
            The frame of `prices`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import asyncio, marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     asyncio.run(client.aprices(market, "2025-12-31", "2026-01-01", "1d"))["token_label"].tolist()
        ['No', 'Yes']
        """
        return await awaited(self.prices, market, start, end, resolution, report=report)

    @overload
    async def ametrics(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[False] = False
    ) -> Frame: ...

    @overload
    async def ametrics(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[True]
    ) -> tuple[Frame, Report]: ...

    async def ametrics(self, market: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """`metrics` for code that runs in an event loop.

        Parameters
        ----------
        market, start, end, resolution, report
            As in `metrics`.

        Returns
        -------
        frame
            The frame of `metrics`.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Examples
        --------
        >>> import asyncio, marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     market = client.markets(max_rows=1)["slug"][0]
        ...     asyncio.run(client.ametrics(market, "2025-12-31", "2026-01-01", "1h"))["ts"].is_monotonic_increasing
        True
        """
        return await awaited(self.metrics, market, start, end, resolution, report=report)
