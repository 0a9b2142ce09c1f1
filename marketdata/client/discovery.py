"""Records of the service: one, or all of a listing (interface 4.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from marketdata.display import described, html_table, without_middle
from marketdata.errors import BadRequestError, ParameterError
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.pagination import paginate
from marketdata.vendors import largest_limit
from marketdata.wire import models


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
        """The fields, those of a field too, with a label and a short id for each token."""
        tokens = [
            f"{token.get('label')} {without_middle(str(token.get('id')), 16)}"
            for token in self.get("tokens") or ()
            if isinstance(token, dict)
        ]
        shown: dict[str, Any] = {}
        for name, value in self.items():
            shown |= {f"{name}.{inner}": v for inner, v in value.items()} if type(value) is dict else {name: value}
        return {**shown, "tokens": ", ".join(tokens)} if tokens else shown


def record(transport: Transport, segments: tuple[str, ...], model: type[BaseModel]) -> Record:
    """One record; errors as for any request."""
    what = f"The answer of {'/'.join(segments)}"
    return Record(transport.get_json(segments, None, lambda body: models.parse(model, body, what).model_dump()))


def listing(
    transport: Transport, kind: str, params: Mapping[str, str | None], max_rows: int | None, page_size: int
) -> list[dict[str, Any]]:
    """Records of a listing, page after page, each id once; errors as for any request."""
    rows: dict[str | int, dict[str, Any]] = {}
    if max_rows == 0:
        return []

    def check(body: Any) -> models.Listing:
        page = models.parse(models.Listing, body, f"The answer of {kind}")
        transport.check_cursor(page.next_cursor)
        return page

    def fetch(cursor: str | None) -> Any:
        nonlocal page_size
        limit = page_size if max_rows is None else min(page_size, max_rows - len(rows))
        try:
            return transport.get_json((kind,), {**params, "limit": limit, "cursor": cursor}, check)
        except (BadRequestError, ParameterError) as error:
            allowed = largest_limit(error.detail)
            if allowed is None or not 1 <= allowed < limit:
                raise
            page_size = allowed  # fewer than this service was thought to give
            return fetch(cursor)

    for page in paginate(fetch, lambda page: (str(row.get("id")) for row in page.data), f"the listing of {kind}"):
        for row in page.data:
            # A record comes again if the listing moves between two pages; the later one is the newer.
            name = row.get("id")
            rows[len(rows) if name is None else str(name)] = row
        if max_rows is not None and len(rows) >= max_rows:
            break
    return list(rows.values())[:max_rows]
