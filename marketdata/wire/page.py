"""One decoded page of a history view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from marketdata.wire.columns import AnyColumns


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """What one answer of a history endpoint says (interface 2.2 to 2.6).

    Attributes
    ----------
    columns : BookColumns, PriceColumns or MetricColumns
        The points in the order of the answer, label by label.
    market_id, resolution : str
        As the answer names them.
    labels : dict of str to str or None
        Token label to token id, labels without points included; empty for metrics.
    count, limit : int or None
        ``metadata.count`` and ``metadata.limit``.
    next_cursor : str or None
        None: complete. An empty text is kept: it proves nothing.
    notes : Counter of str
        Repairs and oddities by name, with how often each was met.
    """

    columns: AnyColumns
    market_id: str
    resolution: str
    labels: dict[str, str | None]
    count: int | None
    limit: int | None
    next_cursor: str | None
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def points(self) -> int:
        """Points of the page: label x bucket."""
        return len(self.columns)
