"""The unit of each column of tidy frames; the registry of measures has the others."""

from __future__ import annotations

from marketdata.points.measures import MEASURES
from marketdata.points.views import View


def units_of(view: View) -> dict[str, str]:
    """The unit of each column of a view, and of what measures add to it."""
    units = {"ts": "start of the bucket, UTC", "level": "0 is the best"}
    units |= dict.fromkeys(("price", "bid_price", "ask_price"), "probability, 0 to 1")
    units |= dict.fromkeys(("size", "bid_size", "ask_size", "bid_total", "ask_total"), "shares")
    for measure in MEASURES.values():
        units |= measure.units
    if view == "metrics":
        units |= dict.fromkeys(("volume", "liquidity"), "in the unit of the service, which names none")
        units["spread"] = "probability, of the market and not of a book"
    return units
