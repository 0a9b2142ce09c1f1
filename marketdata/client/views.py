"""The views of the service as tidy frames: books, prices and metrics of markets and tokens."""

from __future__ import annotations

from typing import Any, Literal, overload

from marketdata.client.asking import Asking, Markets
from marketdata.fetch.position import Report
from marketdata.typing import Frame


class Views(Asking[Frame]):
    """The history half of the client."""

    @overload
    def books(
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
    def books(
        self,
        market: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: Literal[True],
    ) -> tuple[Frame, Report]: ...

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

    @overload
    def prices(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[False] = False
    ) -> Frame: ...

    @overload
    def prices(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[True]
    ) -> tuple[Frame, Report]: ...

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

    @overload
    def metrics(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[False] = False
    ) -> Frame: ...

    @overload
    def metrics(
        self, market: Markets, start: Any, end: Any, resolution: str, *, report: Literal[True]
    ) -> tuple[Frame, Report]: ...

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

    @overload
    def token_books(
        self,
        token_id: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: Literal[False] = False,
    ) -> Frame: ...

    @overload
    def token_books(
        self,
        token_id: Markets,
        start: Any,
        end: Any,
        resolution: str,
        *,
        levels: int | None = None,
        report: Literal[True],
    ) -> tuple[Frame, Report]: ...

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
        """Order books of one token, or of several.

        Parameters
        ----------
        token_id : str or list of str
            Id, or several.
        start, end, resolution, levels, report
            As in `books`.

        Returns
        -------
        frame
            One row per level of a book side, as `books` gives them.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `books`.

        Notes
        -----
        Source: interface 4.1, 4.2.

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

    @overload
    def token_prices(
        self, token_id: Markets, start: Any, end: Any, resolution: str, *, report: Literal[False] = False
    ) -> Frame: ...

    @overload
    def token_prices(
        self, token_id: Markets, start: Any, end: Any, resolution: str, *, report: Literal[True]
    ) -> tuple[Frame, Report]: ...

    def token_prices(self, token_id: Markets, start: Any, end: Any, resolution: str, *, report: bool = False) -> Any:
        """Prices of one token, or of several.

        Parameters
        ----------
        token_id : str or list of str
            Id, or several.
        start, end, resolution, report
            As in `prices`.

        Returns
        -------
        frame
            One row per token and bucket, as `prices` gives them.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `prices`.

        Notes
        -----
        Source: interface 4.1, 4.3.

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
