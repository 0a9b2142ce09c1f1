"""Records of a service: as users see them, and how they are found (interface 4.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from marketdata.adapters.names import names
from marketdata.addresses import event_in
from marketdata.client.history import History
from marketdata.display import described, html_table, without_middle
from marketdata.errors import (
    BadRequestError,
    ConfigError,
    ContractError,
    NotFoundError,
    ParameterError,
    ServiceOddityWarning,
    warn,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.source import Source
from marketdata.fetch.threads import run_all
from marketdata.points.arguments import whole
from marketdata.points.records import RecordKind, names_of
from marketdata.vendors import LARGEST_LISTING, VENUES, check_filters, check_params
from marketdata.wire.records import completed


class Record(dict[str, Any]):
    """A record of the service: a dict with its fields also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(f"This record has no field {name!r}; it has {', '.join(self)}.") from None
        return Record(value) if type(value) is dict else value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return described("Record", self._shown().items())

    def _repr_html_(self) -> str:
        return html_table(self._shown().items())

    def _shown(self) -> dict[str, Any]:
        """The fields and their inner fields, with a label and a short id for each token."""
        tokens = [
            f"{token.get('label')} {without_middle(str(token.get('id')), 16)}"
            for token in self.get("tokens") or ()
            if isinstance(token, dict)
        ]
        shown: dict[str, Any] = {}
        for name, value in self.items():
            shown |= {f"{name}.{inner}": v for inner, v in value.items()} if type(value) is dict else {name: value}
        return {**shown, "tokens": ", ".join(tokens)} if tokens else shown


class Discovery:
    """Looks for markets, events and series, with the filters of `vendors`."""

    def __init__(self, source: Source, history: History) -> None:
        self._source, self._history = source, history

    def names(self, given: Any, argument: str = "market", what: str = "an id or slug") -> list[str]:
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

    def market(self, id_or_slug: str) -> Record:
        """The record of a market; NotFoundError with similar names."""
        (id_or_slug,) = self.names([id_or_slug], "id_or_slug")
        try:
            return Record(completed(self._source.record(id_or_slug)))
        except NotFoundError as error:
            self._history.markets.name_near_ones(error, [id_or_slug])
            raise

    def markets(self, given: Iterable[str]) -> list[Record]:
        """The records of markets (ids or slugs) in that order, without the unknown ones."""
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

        wanted = [name for one in given for name in self._known_names(one)]
        with self._reporting() as report:
            if self._source.service.names_filter is not None and len(wanted) > 1:
                found = self._source.records("markets", {self._source.service.names_filter: ",".join(wanted)})
                records_by_name = {name: Record(completed(row)) for row in found for name in names_of(row)}
                for row in found:
                    self._history.markets.remember(row)
            run_all(self._source, [partial(fetch, name) for name in wanted if name not in records_by_name])
        return [records_by_name[name] for name in wanted if name in records_by_name]

    def listing(
        self,
        kind: RecordKind,
        filters: Mapping[str, Any],
        max_rows: int | None,
        page_size: int | None,
        params: Mapping[str, str] | None,
    ) -> list[dict[str, Any]]:
        """All records that pass the filters."""
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
        return rows

    def _known_names(self, given: str) -> list[str]:
        """The market of a name, none for an event of another number of markets."""
        with suppress(NotFoundError):
            return self.names(given)
        return []

    @contextmanager
    def _reporting(self) -> Iterator[Report]:
        """A report of a call about records; a warning counts those that were left out, an error in strict mode."""
        report = self._history.last_report = Report()
        yield report
        if report.left_out:
            names = [*dict.fromkeys(name for some in report.left_out.values() for name in some)]
            reasons = "; ".join(f"{reason} ({len(some)})" for reason, some in report.left_out.items())
            first = f"{', '.join(names[:3])}{', ...' if names[3:] else ''}"
            what = f"{len(names)} records were left out, {first}: {reasons}"
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
