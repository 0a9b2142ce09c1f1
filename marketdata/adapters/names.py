"""Markets and tokens as an argument names them: by texts, records, rows or frames of any library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marketdata.addresses import name_in, read
from marketdata.errors import ConfigError
from marketdata.points.arguments import texts


def names(name: str, value: object, what: str = "an id or slug", venue: str | None = None) -> list[str]:
    """The markets or tokens that an argument names by id, slug, record, row or frame, each once; else a ConfigError.

    A web address of a market gives the name in it; that of an event stays, see `addresses.name_in`. One of another
    ``venue`` than this is refused.
    """
    column = "token_id" if name == "token_id" else "market_id"
    given = texts(name, list(_names_in(value, name, column)), what)
    for one in given if venue else ():
        if (named := read(one)) is not None and named.venue != venue:
            hint = f"md.Client({named.venue!r}) asks that venue."
            raise ConfigError(f"is an address of {named.venue}, not of {venue}.", argument=name, value=one, hint=hint)
    return list(dict.fromkeys(map(name_in, given)))


def _names_in(value: Any, name: str, column: str) -> Iterator[object]:
    if hasattr(value, "_asdict"):
        value = value._asdict()
    is_pandas_row = type(value).__name__ == "Series" and column in getattr(value, "index", ())
    if isinstance(value, Mapping) or is_pandas_row:
        identity = next((value[key] for key in (column, "id", "slug") if value.get(key)), None)
        if identity is None:
            raise ConfigError(f"is a record without {column}, id and slug.", argument=name, value=dict(value))
        yield str(identity)
    elif hasattr(value, "columns"):
        if column not in value.columns:
            raise ConfigError(f"is a frame without the column {column}; pass frame[{column!r}].", argument=name)
        yield from dict.fromkeys(str(one) for one in value[column])
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for one in value:
            yield from _names_in(one, name, column)
    else:
        yield value
