"""The unit of each column of tidy frames; those of measures are in their registry."""

from __future__ import annotations

from marketdata.points.columns import METRICS
from marketdata.points.measures import MEASURES
from marketdata.points.views import View

_TIDY = {
    "ts": "start of the bucket, UTC",
    "level": "0 is the best",
    **dict.fromkeys(("price", "bid_price", "ask_price"), "probability, 0 to 1"),
    **dict.fromkeys(("size", "bid_size", "ask_size", "bid_total", "ask_total"), "shares"),
}
# The spread of a market is another number than that of a book.
_METRICS = dict(
    zip(
        METRICS,
        (*["in the unit of the service, which names none"] * 2, "probability, of the market and not of a book"),
        strict=True,
    )
)


def units_of(view: View) -> dict[str, str]:
    """The unit of each column of a view, and of what measures add to it."""
    of_measures = {column: unit for one in MEASURES.values() for column, unit in one.units.items()}
    return _TIDY | of_measures | (_METRICS if view == "metrics" else {})
