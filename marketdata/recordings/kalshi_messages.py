"""Messages of Kalshi's websocket: snapshots of the bids of both outcomes, signed changes, and trades."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from marketdata.recordings.changes import CHANGE, GAP, SNAPSHOT
from marketdata.times import parse_moment
from marketdata.wire import kalshi

MESSAGE_TYPES = ("orderbook_snapshot", "orderbook_delta", "subscribed", "ok", "ticker", "trade")
_OTHER = {"yes": "no", "no": "yes"}
_DIGITS = 6  # of a number of contracts
Levels = dict[float, float]
Moment = tuple[int, int]


class Feed:
    """The bids of each market, from messages in their order.

    A snapshot without a time takes the time of the next message of its market, when it was surely known. A number of
    the sequence that is missing makes the books unknown until their next snapshot.
    """

    def __init__(self) -> None:
        self._bids: dict[str, dict[str, Levels]] = {}
        self._without_time: dict[str, int] = {}
        self._last: dict[Any, int] = {}
        self._known: set[str] = set()
        self._new: list[str] = []

    @property
    def waiting(self) -> int:
        """The number of snapshots without a time that no message follows."""
        return len(self._without_time)

    def new_markets(self) -> list[dict[str, Any]]:
        """Records of markets that were met since the last call."""
        records = [kalshi.market({"ticker": ticker}) for ticker in self._new]
        self._new = []
        return records

    def read(
        self, kind: str, fields: Mapping[str, Any], envelope: Mapping[str, str], at: Moment | None, number: int
    ) -> tuple[list[dict[str, Any]], list[Any], Counter[str]]:
        """The rows of message ``number``, the books of its snapshots, and what is left out by reason.

        ``at`` has its time by the chosen clock, and that of its arrival.
        """
        if kind not in ("orderbook_snapshot", "orderbook_delta"):
            return [], [], Counter([kind])
        ticker = str(fields["market_ticker"])
        if ticker not in self._known:
            self._known.add(ticker)
            self._new.append(ticker)
        rows = self._after_hole(envelope, at)
        if kind == "orderbook_snapshot":
            left_out = Counter({"without a time": int(ticker in self._without_time)})
            self._bids[ticker] = dict(zip(_OTHER, map(dict, kalshi.bids_of(fields)), strict=True))
            self._without_time.pop(ticker, None)
            if at is None:
                self._without_time[ticker] = number
                return rows, [], +left_out
            return rows + self._snapshot(ticker, at, number), self._books(ticker), +left_out
        if at is None:
            return rows, [], Counter({"without a time": 1})
        if ticker not in self._bids:
            return rows, [], Counter({"change before a book": 1})
        side, price, step = kalshi.change_of(fields)
        books: list[Any] = []
        if ticker in self._without_time:
            rows += self._snapshot(ticker, at, self._without_time.pop(ticker))
            books = self._books(ticker)
        levels = self._bids[ticker][side]
        levels[price] = size = max(0.0, round(levels.get(price, 0.0) + step, _DIGITS))
        return rows + self._change(ticker, side, price, size, at, number), books, Counter()

    def _after_hole(self, envelope: Mapping[str, str], at: Moment | None) -> list[dict[str, Any]]:
        """Gaps of all books where a number of the sequence is missing."""
        text, stream = envelope.get("seq", ""), envelope.get("sid")
        if not text.isdigit():
            return []
        number = int(text)
        last = self._last.get(stream)
        self._last[stream] = number
        if last is None or number == last + 1 or at is None:
            return []
        tickers, self._bids = list(self._bids), {}
        return [
            {"event": GAP, **_times(at), "__row": -1, **_ids(ticker, side)} for ticker in tickers for side in _OTHER
        ]

    def _snapshot(self, ticker: str, at: Moment, number: int) -> list[dict[str, Any]]:
        return [{"event": SNAPSHOT, **_times(at), "__row": number, **_ids(ticker, side)} for side in _OTHER]

    def _books(self, ticker: str) -> list[Any]:
        """The books of Yes and No."""
        yes, no = ([(p, size) for p, size in self._bids[ticker][side].items() if size > 0] for side in _OTHER)
        return kalshi.sides_of(yes, no)

    @staticmethod
    def _change(ticker: str, side: str, price: float, size: float, at: Moment, number: int) -> list[dict[str, Any]]:
        level = {"event": CHANGE, **_times(at), "__row": number, "size": size}
        return [
            {**level, "side": "buy", "price": price, **_ids(ticker, side)},
            {**level, "side": "sell", "price": kalshi.opposite(price), **_ids(ticker, _OTHER[side])},
        ]


def _times(at: Moment) -> dict[str, int]:
    return {"ts": at[0], "__seen": at[1]}


def _ids(ticker: str, side: str) -> dict[str, str]:
    return {"market_id": ticker, "token_id": f"{ticker}:{side}", "token_label": side.capitalize()}


def time_of(fields: Mapping[str, Any]) -> int | None:
    """The venue's time of a message."""
    for name in ("ts_ms", "ts", "time"):
        value = fields.get(name)
        if value is not None:
            return parse_moment(value)
    return None
