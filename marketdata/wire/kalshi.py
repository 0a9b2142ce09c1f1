"""Meanings of answers of Kalshi: records, candles, trades and order books.

The functions take decoded JSON, of a live answer or of a file. Prices are dollars as texts, under names with or without
a suffix; the name with it counts first. Whole numbers under a name without it, as in older files, are cents. The tokens
of a market are ``TICKER:yes`` and ``TICKER:no``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from marketdata.decimals import to_number
from marketdata.errors import ContractError
from marketdata.points.candles import CANDLES, CORNERS, coarser, mirrored
from marketdata.points.columns import Books, Floats, Ints, Series, Token, Trades
from marketdata.points.records import FLAG_TEXTS
from marketdata.points.views import VIEWS, View
from marketdata.times import HOUR, SECOND, Range, parse_moment
from marketdata.vendors import KalshiPrice
from marketdata.wire.decode import Number, Seconds, convert, numbers
from marketdata.wire.venues import (
    TRADE_SIDES,
    as_of_now,
    books_of,
    is_id,
    prints,
    refuse_no_text,
    renamed,
    say_unknown,
    word,
)

_OUTCOMES = {"yes": "Yes", "no": "No"}
_FINAL = ("finalized", "settled")
_OVER = ("closed", "determined", "disputed", "amended", *_FINAL)
_STATES = ("initialized", "inactive", "unopened", "active", "open", "resolved", *_OVER)
_SHARED = ("scalar", "void")  # results that pay a share to both
_CENTS = 100
_NUMBERS = ("_fp", "_dollars")  # how names of texts of numbers end
_DIGITS = 12  # of a price: those beyond are errors of the arithmetic
_NAMES = {"ticker": "id", "title": "question", "open_time": "start_date", "close_time": "end_date",
          "settlement_ts": "resolved_at", "created_time": "created_at", "updated_time": "updated_at",
          "rules_primary": "description", "status": "venue_status", "event_ticker": "event_id",
          "series_ticker": "series_id", "mutually_exclusive": "exclusive"}  # fmt: skip

_Price = int | float | str | None
Levels = list[tuple[float, float]]


class _Market(msgspec.Struct):
    ticker: str
    event_ticker: str | None = None
    title: str | None = None
    status: str | None = None
    result: str | None = None
    settlement_value: _Price = None


class _Closes(msgspec.Struct, gc=False):
    """The prices of one side, or of the trades, of a candle, under both names: `_bare` takes too long for candles."""

    close_dollars: _Price = None
    close: _Price = None
    mean_dollars: _Price = None
    mean: _Price = None


_NO_CLOSES = _Closes()


class _Candle(msgspec.Struct, gc=False):
    end_period_ts: Seconds
    yes_bid: _Closes | None = None
    yes_ask: _Closes | None = None
    price: _Closes | None = None
    volume_fp: Number | None = None
    volume: Number | None = None
    open_interest_fp: Number | None = None
    open_interest: Number | None = None


class _Bar(msgspec.Struct, gc=False):
    """A candle with all of its numbers."""

    end_period_ts: Seconds
    yes_bid: dict[str, Any] | None = None
    yes_ask: dict[str, Any] | None = None
    price: dict[str, Any] | None = None
    volume_fp: Number | None = None
    volume: Number | None = None
    open_interest_fp: Number | None = None
    open_interest: Number | None = None


class _Trade(msgspec.Struct):
    """A print, or a fill of one's own account, which has an ``action`` and is of the taker or of the maker."""

    trade_id: str
    ticker: str
    created_time: int | float | str | None = None
    count: Number | None = None
    yes_price: _Price = None
    no_price: _Price = None
    taker_outcome_side: str | None = None
    taker_side: str | None = None
    is_block_trade: bool | None = None
    side: str | None = None
    action: str | None = None
    is_taker: bool | None = None
    fee_cost: Number | None = None

    @property
    def print(self) -> tuple[str, str | None, str | None]:
        """The outcome that was traded, what the taker or the account did, and what the account was, None if unknown."""
        if self.action is None or self.side is None:
            bought = _outcome(self.taker_outcome_side) or _outcome(self.taker_side)
            return bought or "yes", "buy" if bought else None, None
        did = TRADE_SIDES.get(word(self.action) or "")
        if did is None:
            raise ContractError(f"The action of a fill is {self.action[:40]!r}; allowed are buy and sell.")
        role = None if self.is_taker is None else "taker" if self.is_taker else "maker"
        return _outcome(self.side) or "yes", did, role


class _Change(msgspec.Struct):
    side: str
    price: _Price
    delta: Number


class Candles(NamedTuple):
    """The ends of the periods [microseconds UTC] of a market's candles, and their closing values, NaN for none.

    ``bid`` and ``ask`` are quotes of Yes, ``last`` and ``mean`` prices of its trades, volumes are contracts.
    """

    end: Ints
    bid: Floats
    ask: Floats
    last: Floats
    mean: Floats
    volume: Floats
    open_interest: Floats

    def of(self, view: View, ticker: str, width: int, price: KalshiPrice = "mid") -> Series:
        """Prices and quotes of both tokens, or metrics, at the start of each period."""
        views = {"prices": self.prices, "quotes": self.quotes, "metrics": self.metrics}
        return self.prices(ticker, width, price) if view == "prices" else views[view](ticker, width)

    def between(self, first: int, last: int) -> Candles:
        """Only candles that end from the first to the last time [microseconds UTC]."""
        inside = (self.end >= first) & (self.end <= last)
        return Candles(*(values[inside] for values in self))  # type: ignore[arg-type]

    def coarser(self, width: int) -> Candles:
        """Candles of a width that those here divide, by UTC: the last quotes and interest, and all trades."""
        ends = -(-self.end // width) * width
        last = np.append(np.flatnonzero(np.diff(ends)), len(ends) - 1) if len(ends) else np.empty(0, np.int64)
        first = np.append(0, last[:-1] + 1)[: len(last)]

        def total(values: Floats) -> Floats:
            """The sum of each bucket, NaN where all are."""
            sums = np.add.reduceat(np.nan_to_num(values), first) if len(first) else values
            return np.where(np.logical_and.reduceat(np.isnan(values), first), np.nan, sums) if len(first) else sums

        traded = np.maximum.accumulate(np.where(np.isnan(self.last), -1, np.arange(len(ends))))
        price = np.where(traded[last] >= first, self.last[traded[last]], np.nan) if len(last) else self.last
        weight = np.where(np.isnan(self.mean), np.nan, self.volume)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total(self.mean * weight) / total(weight)
        volume, interest = total(self.volume), self.open_interest[last]
        return Candles(ends[last], self.bid[last], self.ask[last], price, mean, volume, interest)

    def prices(self, ticker: str, width: int, price: KalshiPrice = "mid") -> Series:
        """Prices of both tokens at the start of each period."""
        values = {"mid": np.round((self.bid + self.ask) / 2, _DIGITS), "last": self.last, "mean": self.mean}[price]
        return self._of_both(ticker, width, {"price": (values, others(values))})

    def quotes(self, ticker: str, width: int) -> Series:
        """Best bid and ask of both tokens, of unknown size."""
        bids, asks = (self.bid, others(self.ask)), (self.ask, others(self.bid))
        unknown = [np.full(len(self.end), np.nan)] * 2
        columns = (bids, unknown, asks, unknown)
        return self._of_both(ticker, width, dict(zip(VIEWS["quotes"].names, columns, strict=True)))

    def metrics(self, ticker: str, width: int) -> Series:
        """Volume and open interest [contracts], and the spread of the closes; liquidity is not known."""
        spread, unknown = np.round(self.ask - self.bid, _DIGITS), np.full(len(self.end), np.nan)
        values = {"volume": self.volume, "liquidity": unknown, "spread": spread, "open_interest": self.open_interest}
        bounds = np.array([0, len(self.end)], np.int64)
        return Series((), bounds, self.end - width, values).with_tokens([Token(ticker)], bounds)

    def _of_both(self, ticker: str, width: int, values: Mapping[str, Sequence[Floats]]) -> Series:
        bounds = np.arange(3, dtype=np.int64) * len(self.end)
        both = {name: np.concatenate(pair) for name, pair in values.items()}
        return Series((), bounds, np.tile(self.end - width, 2), both).with_tokens(tokens_of(ticker), bounds)


def tokens_of(ticker: str) -> list[Token]:
    """Yes and No of a market."""
    return [Token(ticker, f"{ticker}:{side}", label) for side, label in _OUTCOMES.items()]


def ticker_of(name: str) -> str:
    """The ticker in the name of a market, which may be the id of a token; one in small letters is meant in capitals."""
    ticker, _, side = name.strip().rpartition(":")
    found = ticker if ticker and side.lower() in _OUTCOMES else name.strip()
    return found.upper() if found == found.lower() else found


def ticker_in(row: Mapping[str, Any]) -> str:
    """The ticker of the market that a row of an answer is about."""
    if not (found := row.get("market_ticker") or row.get("ticker")):
        raise ContractError("A row of an answer does not name its market.")
    return str(found)


def market(
    row: Mapping[str, Any], event: Mapping[str, Any] | None = None, series: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The record of a market; ``event`` and ``series`` are answers about those that it belongs to, if known.

    ``payoffs`` are there once the market is final: 1 and 0 by the result, or what a scalar market paid. ``end_date`` is
    ``close_time`` while the market is open, and once it is over only where the venue could not move that.
    """
    if not isinstance(row, Mapping):
        raise ContractError(f"A market is no object: {str(row)[:80]!r}.")
    got = convert(_bare(row), _Market, f"The market {row.get('ticker')}")
    out = _renamed({**_group_facts(event, series), **row})
    paid = _payoffs(got)
    tokens = [{"id": token.token_id, "label": token.token_label} for token in tokens_of(got.ticker)]
    won = tokens[paid.index(1.0)] if paid and 1.0 in paid else {}
    said = word(got.status)
    state = "resolved" if paid else "closed" if said in _OVER else said if said in _STATES else got.status or "active"
    names = {"resolved_token_id": won.get("id"), "resolved_token_label": won.get("label"), "payoffs": paid}
    closed_at = out.get("end_date") if said in _OVER else None
    if closed_at is not None and not _is_fixed(row):
        out["end_date"] = None
    groups = {f"{name}_slug": out[f"{name}_id"] for name in ("event", "series") if f"{name}_id" in out}
    known = {"slug": got.ticker, "status": state, "closed_at": closed_at, "tokens": tokens}
    if event is not None and event.get("title") is not None:
        known["event_title"] = event["title"]
    bare = _bare(row)
    quotes = [_quote(bare.get(name)) for name in ("yes_bid", "yes_ask", "last_price")]
    counts = {name: bare.get(name) for name in ("volume", "volume_24h", "open_interest")}
    return {**out, **known, **groups, **names, **as_of_now(known, *quotes, **counts)}


def refuse_wrong_ids(row: Mapping[str, Any], kind: Literal["market", "event", "series"]) -> None:
    """ContractError for a row of an answer whose tickers are none, or whose title is no text."""
    own = "ticker" if kind != "event" else "event_ticker"
    for name in (own, "event_ticker", "series_ticker"):
        said = row.get(name)
        is_missing = said is None or said == ""
        # A colon would part the ticker from the outcome in the id of a token.
        is_ticker = isinstance(said, str) and is_id(said) and ":" not in said
        if not (is_ticker or (is_missing and name != own)):
            raise ContractError(f"The {name} of a record of {kind} is {str(said)[:80]!r}, which is no ticker.")
    refuse_no_text(row, ("title",), kind)


def _is_fixed(row: Mapping[str, Any]) -> bool:
    """Whether ``close_time`` of a market that is over is the time that was scheduled.

    The venue moves it when a market closes early, and nothing in the record says which of them did.
    """
    return FLAG_TEXTS.get(str(row.get("can_close_early")).strip().lower()) is False


def is_final(row: Mapping[str, Any]) -> bool:
    """Whether the answer says that a market has settled."""
    return word(str(row.get("status"))) in _FINAL


def event(row: Mapping[str, Any], series: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The record of an event, without its markets."""
    out = {name: value for name, value in row.items() if name not in ("markets", "event_ticker", "title")}
    out = _renamed({**_group_facts(None, series), **out})
    if "series_id" in out:
        out["series_slug"] = out["series_id"]
    return {"id": row.get("event_ticker"), "slug": row.get("event_ticker"), "title": row.get("title"), **out}


def markets_of(row: Mapping[str, Any], series: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The records of the markets inside an event."""
    return [market(one, row, series) for one in row.get("markets") or ()]


def series(row: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a series."""
    return {**row, "id": row.get("ticker"), "slug": row.get("ticker")}


def candles(rows: Sequence[Mapping[str, Any]]) -> Candles:
    """The candles of a market, oldest first. A quote of 0 or 1 is none: that side is empty."""
    got: list[_Candle] = convert(rows, list[_Candle], "The list of candles")
    got.sort(key=lambda candle: candle.end_period_ts)
    bids, asks, paid = ([getattr(c, name) or _NO_CLOSES for c in got] for name in ("yes_bid", "yes_ask", "price"))
    bid, ask, last = (_prices([(c.close_dollars, c.close) for c in closes]) for closes in (bids, asks, paid))
    mean = _prices([(c.mean_dollars, c.mean) for c in paid])
    volume = numbers([c.volume if c.volume_fp is None else c.volume_fp for c in got], "The volume of a candle")
    interest = [c.open_interest if c.open_interest_fp is None else c.open_interest_fp for c in got]
    for quotes in (bid, ask):
        quotes[(quotes == 0) | (quotes == 1)] = np.nan
    end = np.array([candle.end_period_ts for candle in got], np.int64) * SECOND
    return Candles(end, bid, ask, last, mean, volume, numbers(interest, "The open interest of a candle"))


def bars(rows: Sequence[Mapping[str, Any]], ticker: str, part: Range, width: int) -> Series:
    """The candles of both tokens of a market that begin in a range, at the start of each bucket; see `CANDLES`.

    A quote of 0 or 1 is none.
    """
    period = min(width, HOUR)
    got: list[_Bar] = convert(rows, list[_Bar], "The list of candles")
    got.sort(key=lambda bar: bar.end_period_ts)
    got = [bar for bar in got if part.start + period <= bar.end_period_ts * SECOND <= part.end]
    values: dict[str, Floats] = {}
    for side, name in (("bid", "yes_bid"), ("ask", "yes_ask"), ("price", "price")):
        of_side = [_bare(getattr(bar, name) or {}) for bar in got]
        for corner in (*CORNERS, *(["mean"] if side == "price" else [])):
            column = np.array([_dollars(one.get(corner)) for one in of_side], float)
            column[(column == 0) | (column == 1) if side != "price" else np.isnan(column)] = np.nan
            values[f"{side}_{corner}"] = column
    for name in ("volume", "open_interest"):
        pairs = [(getattr(bar, f"{name}_fp"), getattr(bar, name)) for bar in got]
        given = [bare if fixed is None else fixed for fixed, bare in pairs]
        values[name] = numbers(given, f"The {name.replace('_', ' ')} of a candle")
    ts, values = coarser(np.array([bar.end_period_ts for bar in got], np.int64) * SECOND - period, values, width)
    other = mirrored(values)
    both = {name: np.concatenate([values[name], other[name]]) for name in CANDLES}
    bounds = np.arange(3, dtype=np.int64) * len(ts)
    return Series((), bounds, np.tile(ts, 2), both).with_tokens(tokens_of(ticker), bounds)


def _prices(values: Sequence[tuple[_Price, _Price]]) -> Floats:
    """Prices from what is given under a name with a suffix, which are dollars, and without it."""
    return np.array([_dollars(bare if dollars is None else str(dollars)) for dollars, bare in values], float)


def trades(rows: Sequence[Mapping[str, Any]]) -> Trades:
    """Prints, newest first or oldest first: what the taker bought, Yes or No. Without a side they are prices of Yes.

    A fill of one's own account is of its outcome, and its side is what the account did, as a taker or a maker.
    """
    got = convert([*map(_bare, rows)], list[_Trade], "The list of trades")
    outcomes, sides, roles = zip(*(trade.print for trade in got), strict=True) if got else ((), (), ())
    return prints(
        [
            Token(t.ticker, f"{t.ticker}:{outcome}", _OUTCOMES[outcome])
            for t, outcome in zip(got, outcomes, strict=True)
        ],
        [_time(trade.created_time) for trade in got],
        {
            "side": sides,
            "price": [_paid(trade, outcome) for trade, outcome in zip(got, outcomes, strict=True)],
            "size": numbers([trade.count for trade in got], "The count of a trade", null=False),
            "trade_id": [trade.trade_id or None for trade in got],
            "role": roles,
            "is_block": [trade.is_block_trade for trade in got],
            "fee": numbers([trade.fee_cost for trade in got], "The fee of a trade"),
        },
    )


def books(answer: Mapping[str, Any], ticker: str, ts: int) -> Books:
    """The books of both tokens from the bids of each."""
    top: Any = answer
    if not isinstance(top, Mapping) or top.keys().isdisjoint(("orderbook_fp", "orderbook")):
        raise ContractError(f"The answer about the book of {ticker} has no order book: {str(answer)[:80]!r}.")
    return books_of(tokens_of(ticker), [ts, ts], sides_of(*bids_of(answer, f"The book of {ticker}")))


def bids_of(answer: Mapping[str, Any], what: str = "The book") -> tuple[Levels, Levels]:
    """The bids of Yes and of No [USD, contracts] of a book, which may be inside of an answer."""
    top: Any = answer
    for name in ("orderbook_fp", "orderbook"):
        if isinstance(top, Mapping) and top.get(name):
            top = top[name]
    if not isinstance(top, Mapping):
        raise ContractError(f"{what} is no object: {str(top)[:80]!r}.")
    top = _bare(top)
    levels = [convert(top.get(side) or [], list[tuple[_Price, Number]], what) for side in _OUTCOMES]
    sizes = [numbers([size for _, size in side], f"A size of {what}", null=False).tolist() for side in levels]
    yes, no = (
        [(round(_dollars(price), _DIGITS), size) for (price, _), size in zip(side, of_side, strict=True)]
        for side, of_side in zip(levels, sizes, strict=True)
    )
    if wrong := [price for price, _ in (*yes, *no) if not 0 <= price <= 1]:
        raise ContractError(f"A price of {what} is {wrong[0]:g}; prices are dollars from 0 to 1.")
    return yes, no


def sides_of(yes: Levels, no: Levels) -> list[tuple[Levels, Levels]]:
    """The bids and asks of Yes and of No: an ask of one at p is a bid of the other at 1 - p."""
    return [(bids, [(opposite(price), size) for price, size in other]) for bids, other in ((yes, no), (no, yes))]


def opposite(price: float) -> float:
    """The price of the other outcome."""
    return round(1 - price, _DIGITS)


def change_of(message: Mapping[str, Any]) -> tuple[str, float, float]:
    """The side of a changed bid, its price [USD], and by how many contracts it changed."""
    got = convert(_bare(message), _Change, "The change of a book")
    if (side := _outcome(got.side)) is None:
        raise ContractError("The change of a book has no side.")
    return (
        side,
        round(_dollars(got.price), _DIGITS),
        float(numbers([got.delta], "The delta of a book", null=False)[0]),
    )


def cutoff(answer: Mapping[str, Any]) -> tuple[int, int]:
    """The times before which settled markets, and trades, are archived [microseconds UTC]."""
    return _time(answer.get("market_settled_ts")), _time(answer.get("trades_created_ts"))


def _renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row under the names of our records, with numbers where the venue has texts of them."""
    return renamed(row, _NAMES, [name for name in row if name.endswith(_NUMBERS)])


def _group_facts(event: Mapping[str, Any] | None, series: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a market that its event and series tell."""
    facts = {name: (series or {}).get(name) for name in ("fee_type", "fee_multiplier", "tags", "settlement_sources")}
    facts["series_ticker"] = (series or {}).get("ticker")
    of_event = ("event_ticker", "series_ticker", "mutually_exclusive", "category", "settlement_sources")
    facts |= {name: event[name] for name in of_event if event and event.get(name) is not None}
    return {name: value for name, value in facts.items() if value is not None}


def _bare(value: Any) -> Any:
    """An object, and those in it, under names without a suffix; a price under a name with it is a text of dollars."""
    if not isinstance(value, Mapping):
        return value
    out = {name: _bare(inner) for name, inner in value.items()}
    for name, inner in value.items():
        bare = name.removesuffix("_fp").removesuffix("_dollars")
        if bare != name and inner is not None:
            is_number = isinstance(inner, int | float)
            out[bare] = str(inner) if is_number and name.endswith("_dollars") else inner
    return out


def _payoffs(got: _Market) -> list[float] | None:
    """The payoffs of Yes and No [USD], None until they are final."""
    state, result = word(got.status), word(got.result)
    if result is not None and state not in (*_STATES, None):
        say_unknown("status", got.status, _STATES)
    if state not in (*_FINAL, "resolved", None):  # a table of results has no status
        return None
    if result not in (*_OUTCOMES, *_SHARED, None):
        say_unknown("result", got.result, (*_OUTCOMES, *_SHARED))
    paid = _dollars(got.settlement_value)
    if result in _OUTCOMES:
        payoffs = [float(result == side) for side in _OUTCOMES]
        if not np.isnan(paid) and paid != payoffs[0]:
            raise ContractError(f"The result of {got.ticker} is {result}, and its settlement value {paid:g}.")
        return payoffs
    if paid < 0 or paid > 1:
        raise ContractError(f"The settlement value of {got.ticker} is {paid:g}; it is dollars from 0 to 1.")
    return [paid, round(1 - paid, _DIGITS)] if result in _SHARED and not np.isnan(paid) else None


def _outcome(said: str | None) -> str | None:
    """The outcome, yes or no, that a word names; None for nothing."""
    if (found := word(said)) not in (*_OUTCOMES, None):
        raise ContractError(f"The side of a trade or a change is {str(said)[:40]!r}; known are yes and no.")
    return found


def _paid(trade: _Trade, side: str) -> float:
    """The price of the side that was bought; it follows from the price of the other side if only that is known."""
    yes, no = _dollars(trade.yes_price), _dollars(trade.no_price)
    price, other = (yes, no) if side == "yes" else (no, yes)
    return round(1 - other, _DIGITS) if np.isnan(price) else price


def _dollars(value: _Price) -> float:
    """Dollars of a text or a fraction, and of a whole number, which is cents; NaN of nothing."""
    try:
        return to_number(value) / (_CENTS if isinstance(value, int) else 1)
    except ValueError:
        raise ContractError(f"A price is {value!r}; prices are dollars as text, or whole cents.") from None


def _quote(value: Any) -> Any:
    """Dollars of a quote of a record; one that cannot be read as it came, which is null with a warning."""
    try:
        return _dollars(value)
    except ContractError:
        return value


def others(values: Floats) -> Floats:
    """The prices of the other outcome."""
    return np.round(1 - values, _DIGITS)


def _time(value: Any) -> int:
    try:
        return parse_moment(value)
    except (ValueError, OverflowError) as problem:
        raise ContractError(f"A time of Kalshi cannot be read: {problem}.") from None
