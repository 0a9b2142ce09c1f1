"""Records of nautilus_trader as plain dictionaries: every event is at the end of its bucket, when it was known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError
from marketdata.points.arguments import text, whole
from marketdata.points.columns import Books, Floats, Token
from marketdata.points.fees import schedule
from marketdata.points.schema import require
from marketdata.resolution import BucketWidth
from marketdata.tidy.export.hftbacktest import book_columns
from marketdata.tidy.records import columns_of
from marketdata.times import to_micros

# Prices and sizes of levels, as texts.
Pairs = list[tuple[str, str]]
# An instrument, a time [ns], bids and asks.
Written = tuple[str, int, Pairs, Pairs]
# Levels of a side in OrderBookDepth10, and decimals of a price or quantity, as nautilus_trader has them.
_DEPTH10, _MOST_DIGITS = 10, 9


def to_nautilus_quotes(
    frame: Any, resolution: str, *, venue: str = "MARKETDATA", digits: tuple[int, int] | None = None
) -> Iterator[dict[str, Any]]:
    """Quotes for nautilus_trader (1.221): what ``QuoteTick.from_dict`` takes.

    Yields a dict per two-sided snapshot, in time order: ``type instrument_id bid_price ask_price bid_size ask_size
    ts_event ts_init``, numbers as texts, times the end of the bucket [ns]. ``resolution`` is the bucket width;
    ``venue`` follows the token id in the instrument id; ``digits`` are the decimals of prices and sizes, by default as
    many as needed, up to 9. ConfigError if a number needs more.

    Examples
    --------
    >>> quote = next(md.to_nautilus_quotes(md.testing.books(), "1m"))
    >>> quote["bid_price"], quote["ask_price"]
    ('0.39', '0.41')
    """
    for name, at, bids, asks in _texts(*_read(frame, resolution, digits), venue):
        if bids and asks:
            (bid, bid_size), (ask, ask_size) = bids[0], asks[0]
            sides = {"bid_price": bid, "ask_price": ask, "bid_size": bid_size, "ask_size": ask_size}
            yield {"type": "QuoteTick", "instrument_id": name, **sides, "ts_event": at, "ts_init": at}


def to_nautilus_depth(
    frame: Any, resolution: str, *, venue: str = "MARKETDATA", digits: tuple[int, int] | None = None
) -> Iterator[dict[str, Any]]:
    """Books of ten levels for nautilus_trader: what ``OrderBookDepth10.from_dict`` takes; see `to_nautilus_quotes`.

    Yields a dict per snapshot in time order, one-sided and empty ones too: ``type instrument_id bids asks bid_counts
    ask_counts flags sequence ts_event ts_init``. Each side has ten orders, best first; where the book has no such
    level, an order without a side, of price and size 0, counted 0. Deeper levels are cut.
    """
    books, width, places = _read(frame, resolution, digits)
    none = _order("NO_ORDER_SIDE", *(f"{0:.{n}f}" for n in places))
    for name, at, *levels in _texts(books, width, places, venue):
        out: dict[str, object] = {"type": "OrderBookDepth10", "instrument_id": name}
        counts = {}
        for side, order_side, found in (("bid", "BUY", levels[0]), ("ask", "SELL", levels[1])):
            orders = [_order(order_side, *level) for level in found[:_DEPTH10]]
            counts[f"{side}_counts"] = [1] * len(orders) + [0] * (_DEPTH10 - len(orders))
            out[f"{side}s"] = orders + [none] * (_DEPTH10 - len(orders))
        yield {**out, **counts, "flags": 0, "sequence": 0, "ts_event": at, "ts_init": at}


def _order(side: str, price: str, size: str) -> dict[str, str | int]:
    return {"type": "BookOrder", "side": side, "price": price, "size": size, "order_id": 0}


def to_nautilus_instruments(
    markets: Any, *, fees: Any, venue: str = "MARKETDATA", digits: tuple[int, int] = (3, 2), currency: str = "USDC"
) -> Iterator[dict[str, Any]]:
    """Instruments for nautilus_trader (1.221): what ``BinaryOption.from_dict`` takes.

    Yields a dict per token of ``markets``, records of any frame kind (``market_id token_ids token_labels``, and if
    known ``question start_date end_date``): ``id outcome description price_precision price_increment`` and so on; times
    are the dates [ns; 0 if unknown]. ``taker_fee`` is the rate of ``fees`` (see `Fees`; 0 is said), ``maker_fee`` is 0,
    and ``info`` has the formula and the rate as ``fee_schedule``: of quadratic fees the default fee model charges the
    rate of the notional, which is more than them; one that reads ``info`` charges them. ConfigError for fees that
    have no rate, or are not known. ``currency`` is what a share pays in; for the others see `to_nautilus_quotes`.

    Examples
    --------
    >>> markets = md.testing.markets()
    >>> yes = next(
    ...     md.to_nautilus_instruments(markets, fees=md.Fees.quadratic(0.05))
    ... )
    >>> yes["id"], yes["outcome"], yes["price_increment"], yes["taker_fee"]
    ('11.MARKETDATA', 'Yes', '0.001', '0.05')
    """
    text("venue", venue, "its name")
    text("currency", currency, "its name")
    fields = ("market_id", "token_ids", "token_labels", "question", "start_date", "end_date")
    data = columns_of(markets, fields)
    require("A frame of market records", fields[:3], data)
    rows = len(data["market_id"])
    places: dict[str, int | str] = {}
    for what, n in zip(("price", "size"), _given(digits) or (3, 2), strict=True):
        places |= {f"{what}_precision": n, f"{what}_increment": f"{10.0**-n:.{n}f}"}
    known = schedule(fees)
    for market, ids, labels, question, start, end in zip(*(data.get(c, [None] * rows) for c in fields), strict=True):
        own = known.of_market(str(market))
        if own.rate is None:
            raise ConfigError(
                "An instrument has one rate of fees, and a function has none; use md.Fees.quadratic(rate)."
            )
        for token, label in zip(ids if ids is not None else (), labels if labels is not None else (), strict=True):
            yield {
                "type": "BinaryOption",
                "id": f"{token}.{venue}",
                "raw_symbol": str(token),
                "outcome": label,
                "description": question or market,
                "asset_class": "ALTERNATIVE",
                "currency": currency,
                **places,
                "activation_ns": _nanoseconds(start, "start_date"),
                "expiration_ns": _nanoseconds(end, "end_date"),
                "max_quantity": None,
                "min_quantity": None,
                **dict.fromkeys(("margin_init", "margin_maint", "maker_fee"), "0"),
                "taker_fee": f"{Decimal(repr(own.rate)):f}",
                "ts_event": 0,
                "ts_init": 0,
                "tick_scheme_name": None,
                "info": {"market_id": str(market), "fee": own.text, "fee_schedule": {"rate": own.rate}},
            }


def write_nautilus_catalog(
    path: str | Path,
    books: Any,
    resolution: str,
    markets: Any,
    *,
    fees: Any,
    venue: str = "MARKETDATA",
    digits: tuple[int, int] | None = None,
    currency: str = "USDC",
) -> dict[str, int]:
    """Write instruments, quotes and books of ten levels into a ``ParquetDataCatalog`` of nautilus_trader.

    Returns a dict with the numbers of instruments, quotes and books; other files in the folder ``path`` stay, and later
    books can be added. A token has the same decimals everywhere: by default three or more for prices. ConfigError if a
    token of ``books`` is in none of ``markets`` (others are left out), or if the catalog has books of it in the same
    time, or another instrument; ModuleNotFoundError without nautilus_trader, which as of 1.221 needs
    pandas below 3. ``resolution`` is the bucket width; for ``fees venue digits currency`` see
    `to_nautilus_instruments`.

    Examples
    --------
    >>> books, markets = md.testing.books(), md.testing.markets()
    >>> md.write_nautilus_catalog(  # doctest: +SKIP
    ...     "catalog", books, "1m", markets, fees=0
    ... )
    {'instruments': 2, 'quotes': 6, 'books': 6}
    """
    from nautilus_trader.model.data import OrderBookDepth10, QuoteTick
    from nautilus_trader.model.instruments import BinaryOption
    from nautilus_trader.persistence.catalog import ParquetDataCatalog

    columns, _, places = _read(books, resolution, digits)
    if digits is None:
        places = max(3, places[0]), places[1]
    # Short token ids repeat across markets; books need not say of which market they are.
    market_of = {f"{token.token_id}.{venue}": token.market_id for token in columns.tokens}
    options = to_nautilus_instruments(markets, fees=fees, venue=venue, digits=places, currency=currency)
    own = [record for record in options if market_of.get(record["id"]) in ("", record["info"]["market_id"])]
    instruments = [BinaryOption.from_dict(record) for record in own]
    unknown = sorted(market_of.keys() - {record["id"] for record in own})
    if unknown:
        raise ConfigError(f"{len(unknown)} tokens of the books are in no record of markets, such as {unknown[0]!r}.")
    if len(own) > len(market_of):
        raise ConfigError("A token of the books is in several records of markets; give the books a column market_id.")
    quotes = [QuoteTick.from_dict(r) for r in to_nautilus_quotes(books, resolution, venue=venue, digits=places)]
    depths = [OrderBookDepth10.from_dict(r) for r in to_nautilus_depth(books, resolution, venue=venue, digits=places)]
    catalog = ParquetDataCatalog(str(path))
    # The package leaves a file that is there as it is, and says so nowhere but on the screen.
    for name, records in (("quotes", quotes), ("books", depths)):
        for token in sorted(market_of) if records else ():
            there = catalog.get_intervals(type(records[0]), token)
            if any(start <= records[-1].ts_init and end >= records[0].ts_init for start, end in there):
                raise ConfigError(f"The catalog has {name} of {token!r} in this time; give the path of another folder.")
    known = {str(one.id): BinaryOption.to_dict(one) for one in catalog.instruments()}
    for one in instruments:
        if known.get(str(one.id), BinaryOption.to_dict(one)) != BinaryOption.to_dict(one):
            problem = "The catalog has another instrument of this name, such as with other decimals or fees:"
            raise ConfigError(f"{problem} {str(one.id)!r}; give the path of another folder.")
    new = [one for one in instruments if str(one.id) not in known]
    for records in (new, quotes, depths):
        if records:
            catalog.write_data(records)
    return {"instruments": len(instruments), "quotes": len(quotes), "books": len(depths)}


def _nanoseconds(value: object, name: str) -> int:
    return 0 if value is None else to_micros(value, name) * 1000


def _read(frame: Native, resolution: str, digits: tuple[int, int] | None) -> tuple[Books, BucketWidth, tuple[int, int]]:
    """The books of a frame, the width of their buckets, and the decimals of their prices and sizes."""
    width, given = BucketWidth.of(resolution), _given(digits)
    books = book_columns(frame, width)
    price, size = books.levels()
    found = _digits(price), _digits(size)
    for name, needed, most in zip(("price", "size"), found, given or (_MOST_DIGITS, _MOST_DIGITS), strict=True):
        if needed > most:
            raise ConfigError(f"digits={digits!r}: some {name} needs more than {most} decimals.")
    return books, width, given or found


def _given(digits: object) -> tuple[int, int] | None:
    """The argument ``digits``, if it is one; ConfigError for anything else."""
    if digits is None:
        return None
    if not isinstance(digits, Sequence) or isinstance(digits, str) or len(digits) != 2:
        raise ConfigError("is refused; pass two, of prices and of sizes.", argument="digits", value=digits)
    price, size = (whole("digits", n, least=0, most=_MOST_DIGITS) for n in digits)
    return price, size


def _texts(books: Books, width: BucketWidth, places: tuple[int, int], venue: str) -> Iterator[Written]:
    """Instrument, time [ns], bids and asks as pairs of texts, in time order."""
    text("venue", venue, "its name")
    named: dict[str | None, Token] = {}
    for token in books.tokens:
        if named.setdefault(token.token_id, token) != token:
            raise ConfigError(
                f"token_id {token.token_id!r} is of several markets, and an instrument has one name; "
                "filter by market_id and give each market a venue."
            )
    texts = ([f"{v:.{n}f}" for v in values.tolist()] for values, n in zip(books.levels(), places, strict=True))
    pairs = list(zip(*texts, strict=True))
    ends = np.concatenate(([0], np.cumsum(books.counts))).tolist()
    for i in np.argsort(books.ts, kind="stable").tolist():
        a, b, c = ends[2 * i : 2 * i + 3]
        name = f"{books.tokens[books.token[i]].token_id}.{venue}"
        yield name, int(books.ts[i] + width.micros) * 1000, pairs[a:b], pairs[b:c]


def _digits(values: Floats) -> int:
    """The fewest decimals that represent every value; one more than allowed if none do."""
    fits = (n for n in range(_MOST_DIGITS + 1) if np.allclose(values, np.round(values, n), rtol=1e-12, atol=1e-12))
    return next(fits, _MOST_DIGITS + 1)
