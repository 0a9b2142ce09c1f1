"""A stub of Kalshi's public interface, live and archived, with every trap that is known, each of which can be off."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, time
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

from reference.faults import Act, Ask, ok
from reference.venues import VenueStub, page, refused

from marketdata.times import DAY, HOUR, MINUTE, SECOND, parse_iso, to_datetime, to_text

HOST = "external-api.kalshi.com"
START = parse_iso("2026-01-05T00:00:00Z")
MOST_CANDLES, MOST_IN_BATCH = 5_000, 10_000
STATES = ("active", "yes", "no", "scalar", "disputed")
EMPTY_EVERY, TRADED_EVERY, MISSING_EVERY = 13, 3, 11  # minutes: with an empty side, with trades, with no candle


@cache
def midnight_in_new_york(day: int) -> int:
    """When a day begins there, by its begin in UTC [microseconds]."""
    at = datetime.combine(to_datetime(day).date(), time(), ZoneInfo("America/New_York"))
    return int(at.timestamp()) * SECOND


@dataclass(frozen=True)
class Traps:
    """Where the venue does what a stranger does not expect."""

    suffixless_archive: bool = True
    parlays: int = 5  # further markets of a listing without mve_filter=exclude
    wrong_tier_is_empty: bool = False  # else 404
    sticky_cursor: bool = True
    nests_archived: bool = True  # archived markets inside of events
    omits_settlement: bool = False  # records of settled markets without its time
    batch_refuses: bool = False  # a batch of candles with a market of the wrong tier; else it leaves that one out
    one_book_a_request: bool = False
    closes_early: bool = True  # every other market ends before its schedule, and its record has the new time


@dataclass(frozen=True)
class Market:
    """One market of the stub; ``state`` is one of `STATES`."""

    k: int
    days: float
    settled_after: int  # from the start [microseconds]
    closes_early: bool = False

    @property
    def state(self) -> str:
        return STATES[self.k % len(STATES)]

    @property
    def ticker(self) -> str:
        return f"{self.event}-T{self.k}"

    @property
    def event(self) -> str:
        return f"KXRAIN-{self.k // 3}"

    @property
    def opened(self) -> int:
        return START + self.k % 5 * 7 * MINUTE

    @property
    def closed(self) -> int | None:
        return None if self.state == "active" else self.opened + int(self.days * DAY)

    @property
    def scheduled(self) -> int:
        """The close that was announced when the market opened."""
        if self.closed is None:
            return START + 365 * DAY
        return self.closed + DAY * self.closes_early

    @property
    def payoffs(self) -> list[float] | None:
        return {"yes": [1.0, 0.0], "no": [0.0, 1.0], "scalar": [0.25, 0.75]}.get(self.state)

    def quote(self, minute: int) -> tuple[int, int]:
        """Bid and ask of Yes at the end of a minute [cents], 0 and 100 for an empty side."""
        bid = (minute * 7 + self.k * 13) % 89 + 5
        empty = minute % EMPTY_EVERY
        return (0 if empty == 1 else bid), (100 if empty == 2 else bid + 3)

    def traded(self, minute: int) -> int | None:
        """The price of the trade of a minute [cents]."""
        return (minute * 5 + self.k) % 97 + 1 if minute % TRADED_EVERY == 0 else None


@dataclass
class KalshiStub(VenueStub):
    """``count`` markets that lived ``days``, those that settled before ``cutoff`` archived."""

    venue, hosts = "kalshi", (HOST,)
    count: int = 6
    days: float = 2.0
    traps: Traps = field(default_factory=Traps)
    cutoff: int = START
    settled_after: int = 3_600 * SECOND  # from the close
    largest_page: int = 1000

    def __post_init__(self) -> None:
        self.markets = [
            Market(k, self.days, self.settled_after, self.traps.closes_early and k % 2 == 1) for k in range(self.count)
        ]
        self.by_ticker = {m.ticker: m for m in self.markets}

    # What is true, for plain loops

    def is_archived(self, market: Market) -> bool:
        return market.payoffs is not None and (market.closed or 0) + self.settled_after < self.cutoff

    def candles(self, market: Market, start: int, end: int, minutes: int) -> list[dict[str, Any]]:
        """Candles by their start [microseconds] with cents, or None where nothing is; those that end in a range.

        Days are New York's (recorded 2025-10 and 2026-03).
        """
        out, width = [], minutes * MINUTE
        last = min(self.now, market.closed or self.now)
        begins = list(range((start - width) // width * width, end + DAY, width))
        if minutes == DAY // MINUTE:
            begins = [midnight_in_new_york(t) for t in begins]
        for first, after in itertools.pairwise(begins):
            if not start <= after <= end or first < market.opened - width or after > last:
                continue
            inside = [m for m in range(first // MINUTE, after // MINUTE) if m % MISSING_EVERY]
            if not inside:
                continue
            bid, ask = market.quote(inside[-1])
            prints = [p for m in inside if (p := market.traded(m)) is not None]
            out.append({
                "start": first, "end": after, "bid": bid or None, "ask": None if ask == 100 else ask,
                "volume": 2.5 * len(prints), "last": prints[-1] if prints else None,
                "mean": sum(prints) / len(prints) if prints else None,
            })  # fmt: skip
        return out

    def buckets(self, market: Market, start: int, end: int, width: int) -> list[dict[str, Any]]:
        """The candles of buckets of a width that begin in a range; days are those of UTC, of all hours in them."""
        candles = self.candles(market, start + min(width, HOUR), end, min(width, HOUR) // MINUTE)
        if width <= HOUR:
            return candles
        out = []
        for first, group in itertools.groupby(candles, lambda one: one["start"] // width * width):
            hours = [*group]
            prints = [(c["mean"], c["volume"]) for c in hours if c["mean"] is not None]
            traded = [c["last"] for c in hours if c["last"] is not None]
            volume = sum(v for _, v in prints)
            out.append({
                **hours[-1], "start": first, "volume": sum(c["volume"] for c in hours),
                "last": traded[-1] if traded else None,
                "mean": sum(price * v for price, v in prints) / volume if volume else None,
            })  # fmt: skip
        return out

    def levels(self, market: Market, at: int) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
        """Bids of Yes and of No at a time [cents, contracts], best first; some sides are empty."""
        minute = at // MINUTE
        bid, ask = market.quote(minute)
        yes = [(bid - n, 10.0 + n) for n in range(minute % 4) if bid - n > 0]
        no = [(100 - ask - n, 20.0 + n) for n in range(minute % 3) if 100 - ask - n > 0]
        return yes, no

    def prints(self, market: Market) -> list[dict[str, Any]]:
        """All trades, oldest first."""
        last = min(self.now, market.closed or self.now)
        minutes = [m for m in range(market.opened // MINUTE, last // MINUTE) if m % 30 == 0]
        return [
            {
                "trade_id": f"{market.k}-{m}", "ticker": market.ticker, "count_fp": "2.50",
                "yes_price_dollars": f"{(m * 5 + market.k) % 97 / 100 + 0.01:.4f}",
                "no_price_dollars": f"{0.99 - (m * 5 + market.k) % 97 / 100:.4f}",
                "taker_outcome_side": "yes" if m % 60 else "no", "taker_side": "no",
                "created_time": to_text(m * MINUTE + 123_456), "is_block_trade": False,
            }
            for m in minutes
        ]  # fmt: skip

    # Answers

    def answer(self, ask: Ask) -> Act:
        parts = ask.path.removeprefix("/trade-api/v2").strip("/").split("/")
        params = {
            name: values[0] for name, values in parse_qs(urlsplit(ask.target).query, keep_blank_values=True).items()
        }
        is_history = parts[0] == "historical"
        match parts[1:] if is_history else parts:
            case ["cutoff"] if is_history:
                return ok({"market_settled_ts": to_text(self.cutoff), "trades_created_ts": to_text(self.cutoff)})
            case ["markets", "candlesticks"] if not is_history:
                return self.batch(params)
            case ["markets", "orderbooks"] if not is_history:
                return self.books(parse_qs(urlsplit(ask.target).query).get("tickers", []))
            case ["markets", ticker, "orderbook"] if not is_history:
                row = self.book(ticker)
                return refused(404, {"error": {"code": "not_found"}}) if row is None else ok(row)
            case ["markets", "trades"] | ["trades"]:
                return self.trades(params, is_history=is_history)
            case ["markets"]:
                return self.listing(params, is_history=is_history)
            case ["markets", ticker]:
                market = self.by_ticker.get(ticker)
                if market is None or self.is_archived(market) != is_history:
                    return refused(404, {"error": {"code": "not_found", "message": "not found"}})
                return ok({"market": self.record(market)})
            case ["series", _, "markets", ticker, "candlesticks"] if not is_history:
                return self.history(ticker, params, is_history=False)
            case ["markets", ticker, "candlesticks"] if is_history:
                return self.history(ticker, params, is_history=True)
            case ["events"]:
                rows = [*map(self.event, range(-(-self.count // 3)))]
                if params.get("series_ticker", "KXRAIN") != "KXRAIN":
                    rows = []
                if "status" in params:
                    words = {"open": "active", "closed": "disputed", "settled": "finalized"}
                    wanted = words.get(params["status"])
                    rows = [row for row in rows if any(m["status"] == wanted for m in row["markets"])]
                if params.get("with_nested_markets") != "true":
                    rows = [{name: v for name, v in row.items() if name != "markets"} for row in rows]
                some, cursor = page(
                    rows, params, min(self.largest_page, 200), "cursor", sticky=self.traps.sticky_cursor
                )
                return ok({"events": some, "cursor": cursor})
            case ["events", name]:
                number = name.rpartition("-")[2]
                if not number.isdigit() or int(number) > (self.count - 1) // 3:
                    return refused(404, {"error": {"code": "not_found", "message": "event not found"}})
                row = self.event(int(number))
                return ok({"event": row, "markets": row["markets"]})
            case ["series", "KXRAIN"]:
                return ok({"series": self.series()})
            case ["series"]:
                return ok({"series": [self.series()]})
        return refused(404, {"error": {"code": "not_found", "message": "page not found"}})

    def series(self) -> dict[str, Any]:
        fees = {"fee_type": "quadratic", "fee_multiplier": 1}
        sources = [{"name": "NWS", "url": "https://www.weather.gov/nyc"}]
        return {"ticker": "KXRAIN", "title": "Rain", "category": "Climate", "tags": ["Weather"],
                "settlement_sources": sources, **fees}  # fmt: skip

    def event(self, number: int) -> dict[str, Any]:
        nested = [m for m in self.markets if self.traps.nests_archived or not self.is_archived(m)]
        members = [self.record(m) for m in nested if m.k // 3 == number]
        names = {"event_ticker": f"KXRAIN-{number}", "series_ticker": "KXRAIN", "title": f"Rain {number}"}
        return names | {"category": "Climate", "mutually_exclusive": number % 2 == 0, "markets": members}

    def record(self, market: Market) -> dict[str, Any]:
        is_over = market.closed is not None and market.closed <= self.now
        is_final = is_over and market.payoffs is not None and (market.closed or 0) + self.settled_after <= self.now
        status = "active" if not is_over else "finalized" if is_final else "disputed"
        row = {"ticker": market.ticker, "event_ticker": market.event, "market_type": "binary", "status": status,
               "title": f"Rain on {market.k}?", "open_time": to_text(market.opened), "result": "",
               "close_time": to_text(market.closed if is_over and market.closed is not None else market.scheduled),
               "can_close_early": self.traps.closes_early,
               "expected_expiration_time": to_text(market.scheduled + 3 * 60 * MINUTE),
               "latest_expiration_time": to_text(market.scheduled + 7 * DAY), "yes_bid_dollars": "0.0000",
               "yes_ask_dollars": "0.0000", "volume_fp": f"{12 + market.k * 7 % 50}.00", "open_interest_fp": "40.00",
               "volume_24h_fp": f"{market.k * 37 % 101}.00"}  # fmt: skip
        if is_final:
            row |= {"result": market.state, "settlement_value_dollars": f"{(market.payoffs or [0])[0]:.4f}"}
            if not self.traps.omits_settlement:
                row["settlement_ts"] = to_text((market.closed or 0) + self.settled_after)
        return row

    def listing(self, params: dict[str, str], *, is_history: bool) -> Act:
        if params.get("status", "open") not in ("unopened", "open", "closed", "settled"):
            return refused(400, {"error": {"code": "bad_request", "message": "invalid status filter"}})
        if is_history and not {"tickers", "event_ticker", "series_ticker"} & params.keys():
            return refused(400, {"error": {"code": "bad_request", "message": "a filter is required"}})
        rows = [self.record(m) for m in self.markets if self.is_archived(m) == is_history]
        if params.get("series_ticker", "KXRAIN") != "KXRAIN":
            rows = []
        words = {"open": "active", "closed": "disputed", "settled": "finalized"}
        if "status" in params:
            rows = [row for row in rows if row["status"] == words.get(params["status"])]
        groups = {"created": ("unopened", "open"), "close": ("closed",), "settled": ("settled",)}
        given = {name for name in groups if {f"min_{name}_ts", f"max_{name}_ts"} & params.keys()}
        if len(given) > 1 or any(params.get("status") not in (*groups[name], None) for name in given):
            return refused(
                400, {"error": {"code": "bad_request", "message": "timestamp filters do not fit the status"}}
            )
        if given == {"settled"}:
            low, high = (int(params.get(f"{end}_settled_ts", at)) for end, at in (("min", 0), ("max", 2**40)))
            settled = {m.ticker: ((m.closed or 0) + self.settled_after) / SECOND for m in self.markets if m.payoffs}
            rows = [row for row in rows if low <= settled.get(row["ticker"], -1) <= high]
        if "event_ticker" in params:
            rows = [row for row in rows if row["event_ticker"] == params["event_ticker"]]
        if "tickers" in params:
            rows = [row for row in rows if row["ticker"] in params["tickers"].split(",")]
        if params.get("mve_filter") != "exclude" and not is_history:
            rows = [
                *({"ticker": f"KXMVE-{n}", "title": "Parlay", "status": "active"} for n in range(self.traps.parlays)),
                *rows,
            ]
        some, cursor = page(rows, params, self.largest_page, "cursor", sticky=self.traps.sticky_cursor)
        return ok({"markets": some, "cursor": cursor})

    def history(self, ticker: str, params: dict[str, str], *, is_history: bool) -> Act:
        market, rows = self.by_ticker.get(ticker), list[dict[str, Any]]()
        if not {"start_ts", "end_ts", "period_interval"} <= params.keys() or params["period_interval"] not in (
            "1",
            "60",
            "1440",
        ):
            return refused(400, {"error": {"code": "bad_request", "message": "invalid period_interval or times"}})
        start, end, minutes = (int(params[name]) for name in ("start_ts", "end_ts", "period_interval"))
        if (end - start) // (60 * minutes) + 1 > MOST_CANDLES:
            return refused(400, {"error": {"code": "bad_request", "message": "max candlesticks: 5000"}})
        if market is None or self.is_archived(market) != is_history:
            if market is None or not self.traps.wrong_tier_is_empty:
                return refused(404, {"error": {"code": "not_found", "message": "market not found"}})
        else:
            rows = self.answers(market, start, end, minutes, suffix=not (is_history and self.traps.suffixless_archive))
        return ok({"ticker": ticker, "candlesticks": rows})

    def batch(self, params: dict[str, str]) -> Act:
        tickers = params["market_tickers"].split(",")
        start, end, minutes = (int(params[name]) for name in ("start_ts", "end_ts", "period_interval"))
        if len(tickers) > 100 or ((end - start) // (60 * minutes) + 1) * len(tickers) > MOST_IN_BATCH:
            return refused(400, {"error": {"code": "bad_request", "message": "max candlesticks: 10000"}})
        known = [self.by_ticker[t] for t in tickers if t in self.by_ticker and not self.is_archived(self.by_ticker[t])]
        if self.traps.batch_refuses and len(known) < len(tickers):
            return refused(404, {"error": {"code": "not_found", "message": "market not found"}})
        rows = [{"market_ticker": m.ticker, "candlesticks": self.answers(m, start, end, minutes)} for m in known]
        return ok({"markets": rows})

    def answers(
        self, market: Market, start: int, end: int, minutes: int, *, suffix: bool = True
    ) -> list[dict[str, Any]]:
        """Candles as the venue writes them."""
        names = ("_dollars", "_fp") if suffix else ("", "")

        @cache  # the same prices come again and again
        def priced(**cents: float | None) -> dict[str, str]:
            return {f"{n}{names[0]}": f"{c / 100:.4f}" for n, c in cents.items() if c is not None}

        return [
            {
                "end_period_ts": c["end"] // SECOND,
                f"volume{names[1]}": f"{c['volume']:.2f}", f"open_interest{names[1]}": "40.00",
                "price": priced(previous=10, close=c["last"], mean=c["mean"]),
                "yes_bid": priced(close=c["bid"] or 0), "yes_ask": priced(close=100 if c["ask"] is None else c["ask"]),
            }
            for c in self.candles(market, start * SECOND, end * SECOND, minutes)
        ]  # fmt: skip

    def trades(self, params: dict[str, str], *, is_history: bool) -> Act:
        market = self.by_ticker.get(params["ticker"])
        is_here = market is not None and self.is_archived(market) == is_history
        if not is_here and not self.traps.wrong_tier_is_empty:
            return refused(404, {"error": {"code": "not_found", "message": "market not found"}})
        rows = self.prints(market)[::-1] if market is not None and is_here else []
        first, last = int(params.get("min_ts", 0)) * SECOND, int(params.get("max_ts", 1 << 40)) * SECOND
        rows = [row for row in rows if first <= parse_iso(row["created_time"]) <= last]
        some, cursor = page(rows, params, self.largest_page, "cursor", sticky=self.traps.sticky_cursor)
        return ok({"trades": some, "cursor": cursor})

    def book(self, ticker: str) -> dict[str, Any] | None:
        """The book of a market that is traded, best level last."""
        market = self.by_ticker.get(ticker)
        if market is None or (market.closed is not None and market.closed <= self.now):
            return None
        sides = zip(("yes_dollars", "no_dollars"), self.levels(market, self.now), strict=True)
        return {"orderbook_fp": {name: [[f"{c / 100:.4f}", f"{n:.2f}"] for c, n in side[::-1]] for name, side in sides}}

    def books(self, tickers: list[str]) -> Act:
        if self.traps.one_book_a_request:
            return refused(404, {"error": {"code": "not_found", "message": "page not found"}})
        if len(tickers) > 100:
            return refused(400, {"error": {"code": "bad_request", "message": "too many tickers"}})
        found = ((ticker, self.book(ticker)) for ticker in tickers)
        return ok({"orderbooks": [{"ticker": ticker, **row} for ticker, row in found if row is not None]})
