"""What there is: series, events, markets, tokens, tags; and what the key may do (interface 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from marketdata.accessor import register
from marketdata.client.asking import Asking
from marketdata.client.record import Record
from marketdata.client.targets import whole
from marketdata.errors import ContractError, PaginationStalledError
from marketdata.tidy import records
from marketdata.times import SECOND, to_datetime
from marketdata.typing import Frame
from marketdata.wire import models

_LARGEST_PAGE = 200


class Discovery(Asking[Frame]):
    """The discovery and utility half of the client."""

    def series(
        self,
        *,
        search: str | None = None,
        sort: str | None = None,
        order: str | None = None,
        max_rows: int | None = None,
        page_size: int = 100,
        **filters: str,
    ) -> Frame:
        """Series: broad themes or recurring categories.

        Parameters
        ----------
        search : str, optional
            Text to look for.
        sort, order : str, optional
            Field to sort by; "asc" or "desc".
        max_rows : int, optional
            At most so many rows in all; None: every one.
        page_size : int
            Rows per request, 1 to 200.
        **filters : str
            Passed to the service as they are.

        Returns
        -------
        frame
            One row per series: ``series_id slug title status start_date end_date`` [UTC] and whatever more.

        Raises
        ------
        ConfigError
            If an argument is refused.
        RequestError, NetworkError, ContractError
            As any request.

        Notes
        -----
        Source: interface 4.5; readings "discovery listing".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.series().columns[:3].tolist()
        ['series_id', 'slug', 'title']
        """
        params = {"search": search, "sort": sort, "order": order, **filters}
        return self._listing("series", params, max_rows, page_size)

    def events(
        self,
        series_slug: str | None = None,
        *,
        series_id: str | None = None,
        search: str | None = None,
        sort: str | None = None,
        order: str | None = None,
        max_rows: int | None = None,
        page_size: int = 100,
        **filters: str,
    ) -> Frame:
        """Events: happenings inside a series.

        Parameters
        ----------
        series_slug, series_id : str, optional
            Only those of one series.
        search, sort, order, max_rows, page_size, **filters
            As in `series`.

        Returns
        -------
        frame
            One row per event: ``event_id slug title status start_date end_date tags`` [UTC] and whatever more.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: interface 4.5; readings "discovery listing".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     len(client.events())
        1
        """
        params = {"series_slug": series_slug, "series_id": series_id, "search": search, "sort": sort, "order": order}
        return self._listing("events", {**params, **filters}, max_rows, page_size)

    def markets(
        self,
        event_slug: str | None = None,
        search: str | None = None,
        max_rows: int | None = None,
        page_size: int = 100,
        *,
        event_id: str | None = None,
        sort: str | None = None,
        order: str | None = None,
        **filters: str,
    ) -> Frame:
        """Markets: tradable questions inside an event.

        Parameters
        ----------
        event_slug, event_id : str, optional
            Only those of one event.
        search, max_rows, page_size, sort, order, **filters
            As in `series`.

        Returns
        -------
        frame
            One row per market: ``market_id slug question status start_date end_date`` [UTC] ``token_ids token_labels``
            (lists) and whatever more. ``archive.add(markets=...)`` takes it as it is.

        Raises
        ------
        ConfigError, RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: interface 4.5; readings "discovery listing".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.markets(max_rows=1)["token_labels"].str.len().tolist()
        [2]
        """
        params = {"event_slug": event_slug, "event_id": event_id, "search": search, "sort": sort, "order": order}
        return self._listing("markets", {**params, **filters}, max_rows, page_size)

    def market(self, id_or_slug: str) -> Record:
        """One market, with all that the service says of it.

        Parameters
        ----------
        id_or_slug : str

        Returns
        -------
        Record
            A dict, fields also as attributes: ``id slug question status start_date end_date tokens description
            closed_at resolved_token_id resolved_token_label`` and whatever more.

        Raises
        ------
        NotFoundError
            If there is no such market.
        ConfigError, RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: readings "one market".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     slug = client.markets(max_rows=1)["slug"][0]
        ...     client.market(slug).slug == slug
        True
        """
        return self._record(("markets", id_or_slug), models.MarketDetail)

    def tokens(self, id_or_slug: str) -> Frame:
        """Tokens of a market.

        Parameters
        ----------
        id_or_slug : str

        Returns
        -------
        frame
            One row per token: ``market_id token_id token_label`` and whatever more.

        Raises
        ------
        NotFoundError
            If there is no such market.
        ConfigError, RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: readings "records".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.tokens(client.markets(max_rows=1)["slug"][0]).shape
        (2, 3)
        """
        market = self.market(id_or_slug)
        rows = [
            {"market_id": market["id"], **{"token_label" if k == "label" else k: v for k, v in token.items()}}
            for token in market["tokens"]
        ]
        return self._to_frame("tokens", rows)

    def tags(self) -> list[str]:
        """Every tag in use.

        Returns
        -------
        list of str
            One per tag.

        Raises
        ------
        RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: readings "tags".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     "simulated" in md.Client(service.base_url, service.api_key).tags()
        True
        """
        return list(self._record(("tags",), models.Tags)["data"])

    def health(self) -> Record:
        """Whether the service is up.

        Returns
        -------
        Record
            ``status timestamp``; ``timestamp`` is the service's clock [UTC].

        Raises
        ------
        RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: readings "health".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     md.Client(service.base_url, service.api_key).health().status
        'ok'
        """
        return self._record(("health",), models.Health)

    def server_time(self) -> datetime | None:
        """What time it is for the service.

        Returns
        -------
        datetime or None
            [UTC, whole seconds], from the ``Date`` of an answer; None where it has none.

        Raises
        ------
        RequestError, NetworkError, ContractError
            As in `series`.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     md.Client(service.base_url, service.api_key).server_time().tzname()
        'UTC'
        """
        date = self._transport.get(("health",)).date
        return None if date is None else to_datetime(round(date * SECOND))

    def usage(self) -> Record:
        """Plan of the key and what is left of it.

        Returns
        -------
        Record
            ``plan organization limits reset_at`` [Unix s]; ``limits`` has ``requests_per_minute requests_remaining
            granularity_allowed max_history_days``.

        Raises
        ------
        RequestError, NetworkError, ContractError
            As in `series`.

        Notes
        -----
        Source: readings "usage".

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     md.Client(service.base_url, service.api_key).usage().limits.requests_per_minute > 0
        True
        """
        return self._record(("usage",), models.Usage)

    def _to_frame(self, kind: records.RecordKind, rows: list[dict[str, Any]]) -> Frame:
        register(self.frame)
        return cast("Frame", records.to_frame(kind, rows, self.frame))

    def _record(self, segments: tuple[str, ...], model: type[BaseModel]) -> Record:
        return Record(_checked(model, self._transport.get_json(segments), segments))

    def _listing(
        self, kind: records.RecordKind, params: Mapping[str, str | None], max_rows: int | None, page_size: int
    ) -> Frame:
        whole("page_size", page_size, 1, _LARGEST_PAGE)
        if max_rows is not None:
            whole("max_rows", max_rows, 0)
        given = {k: str(v) for k, v in params.items() if v is not None}
        rows: list[dict[str, Any]] = []
        cursor: str | None = None
        seen: set[str] = set()
        while max_rows is None or len(rows) < max_rows:
            left = page_size if max_rows is None else min(page_size, max_rows - len(rows))
            query = {**given, "limit": str(left), **({"cursor": cursor} if cursor else {})}
            page = _checked(models.Listing, self._transport.get_json((kind,), query), (kind,))
            rows += page["data"]
            cursor = page["metadata"].get("next_cursor")
            if not cursor:
                break
            if cursor in seen:
                raise PaginationStalledError(f"The listing of {kind} repeats its cursor after {len(rows)} rows.")
            seen.add(cursor)
        return self._to_frame(kind, rows if max_rows is None else rows[:max_rows])


def _checked(model: type[BaseModel], body: Any, segments: tuple[str, ...]) -> dict[str, Any]:
    try:
        return model.model_validate(body).model_dump()
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(p) for p in first["loc"])
        raise ContractError(
            f"The answer of {'/'.join(segments)} is off the interface: {path} {first['msg']}."
        ) from None
