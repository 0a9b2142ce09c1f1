"""One record of the service, shown whole."""

from __future__ import annotations

from typing import Any

from marketdata.fetch.shown import html_table


class Record(dict[str, Any]):
    """A record as the service gave it: a dict whose fields can be read as attributes too.

    Examples
    --------
    >>> Record(slug="will-it-rain").slug
    'will-it-rain'
    """

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(f"This record has no field {name!r}; it has {', '.join(self)}.") from None
        return Record(value) if type(value) is dict else value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def _repr_html_(self) -> str:
        return html_table(self.items())
