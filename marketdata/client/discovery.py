"""A record of a service as users see it (interface 4.5)."""

from __future__ import annotations

from typing import Any

from marketdata.display import described, html_table, without_middle


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
