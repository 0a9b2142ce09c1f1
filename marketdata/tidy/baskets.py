"""Verbs of a market, `by="event"`: all Yes or all No of the markets of an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.frame import Frame, Native
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import baskets
from marketdata.points.baskets import Event, Legs
from marketdata.points.columns import Books, Floats, Ints
from marketdata.points.fees import ALLOWED, Schedule, schedule
from marketdata.points.schema import refuse_cents, require
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of

# The names that the venue's own records have for the same.
_EXCLUSIVE = ("exclusive", "negRisk", "neg_risk")
# Whether markets may be added to the event.
_OPEN = ("open_list", "negRiskAugmented", "neg_risk_augmented")
# Ids of an event.
_EVENT = ("event_id", "event_slug")


def events_of(given: Any) -> list[Event]:
    """The events of market records, by id; NotTidyError where the records do not say what is needed."""
    if given is None:
        raise ConfigError(
            "by='event' needs events=, a frame of market records: market_id, event_id, token_ids, and for the event of "
            "the market exclusive (at most one of its markets resolves to Yes) and open_list (others may be added)."
        )
    data = columns_of(given, ("market_id", "token_ids", *_EVENT, *_EXCLUSIVE, *_OPEN))
    names = ["market_id", "token_ids"]
    names += [next((name for name in some if name in data), some[0]) for some in (_EVENT, _EXCLUSIVE, _OPEN)]
    require("events, a frame of market records,", names, data)
    found: dict[str, tuple[dict[str, tuple[str, str]], set[bool]]] = {}
    for market, ids, event, exclusive, open_list in zip(*(data[name] for name in names), strict=True):
        if event is None:
            continue
        is_basket = exclusive is not None and open_list is not None and bool(exclusive) and not open_list
        markets, said = found.setdefault(str(event), ({}, set()))
        tokens = tuple(str(one) for one in (ids if ids is not None else ()))
        if is_basket and len(tokens) != 2:
            raise NotTidyError(
                f"Market {market!r} of the exclusive event {event!r} has {len(tokens)} tokens; a basket is of markets "
                "with two, Yes first."
            )
        said.add(is_basket)
        pair = (tokens[0], tokens[1]) if len(tokens) == 2 else ("", "")
        if markets.setdefault(str(market), pair) != pair:
            raise NotTidyError(f"Market {market!r} has two records that differ; keep the right one.")
    for event, (_, said) in found.items():
        if len(said) > 1:
            raise NotTidyError(f"Records of event {event!r} differ in {names[3]} or {names[4]}; they are of the event.")
    return [Event(event, markets, said == {True}) for event, (markets, said) in sorted(found.items())]


def refuse_unused(by: str, **given: object) -> None:
    """ConfigError for arguments that the chosen ``by`` does not use."""
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise ConfigError(f"by={by!r} does not use {', '.join(f'{name}=' for name in unused)}; leave it out.")


def known_fees(fees: object) -> Schedule:
    """The fees of a basket, which have to be said."""
    if fees is None:
        raise ConfigError(f"An edge is net of fees, and none is not assumed: give fees=; {ALLOWED}.")
    return schedule(fees)


def of_books(
    frame: Frame, events: Sequence[Event], rule: Callable[[Legs, Books], Mapping[str, Floats | Ints]]
) -> Native:
    """One row per event and time: the columns of a rule on the books of its markets."""
    books = frames.books(frame)
    for name, side in (("best_bid", books.bids), ("best_ask", books.asks)):
        refuse_cents(name, side.best)
    legs = Legs.of(events, books.tokens, books.token, books.ts)
    event, ts, _ = legs.groups()
    names = [legs.events[i].event_id for i in event.tolist()]
    return frame.build({"ts": frames.times(ts), "event_id": names, **rule(legs, books)}, len(names))


def probabilities(frame: Frame, events: Sequence[Event]) -> Native:
    """See `cross_token.probabilities`."""
    series, value = probability_of(frame)
    legs = Legs.of(events, series.tokens, series.token, series.ts)
    rows = np.flatnonzero(legs.side == baskets.YES)
    values = baskets.probabilities(legs, series.values[value])[rows]
    return frames.to_frame(frame, series.take(rows), {"probability": values})
