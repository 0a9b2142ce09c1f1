"""Files of shapes that people have, made by hand, with what is wanted of each."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars as pl

T, T2, MARKET, S = "7" * 77, "8" * 77, "0x" + "ab" * 32, 1_767_225_600
TICKER = "KXA-26JAN01-T5"
_BOOK = {
    "event_type": "book", "asset_id": T, "market": MARKET, "timestamp": str(S * 1000),
    "bids": [{"price": ".4", "size": "1"}], "asks": [{"price": ".5", "size": "1"}],
}  # fmt: skip
_KALSHI = {
    "ticker": TICKER, "event_ticker": "KXA-26JAN01", "title": "t", "status": "finalized", "result": "no",
    "close_time": "2026-01-01T15:00:00Z", "yes_bid_dollars": "0.00", "yes_ask_dollars": "1.00",
}  # fmt: skip
_CANDLE = {"yes_bid": {"close": "0.42"}, "yes_ask": {"close": "0.46"}, "price": {"close": "0.44"}, "volume": "10"}
_GAMMA = (
    "id,question,conditionId,slug,outcomes,outcomePrices,clobTokenIds,closed,umaResolutionStatus,bestBid,createdAt\n"
    f"""1,q?,{MARKET},q,"['Yes', 'No']","['1', '0']","['{T}', '{T2}']",True,resolved,0.99,2025-12-01T00:00:00Z\n"""
)
_BAD = f"x,{T},.5\n{S + 9999},{T},n/a\n{S + 9998},{T},1.7\n{S},{T},.5,9,9\n"


def _at(minute: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(S + 60 * minute, dt.UTC)


def _lines(*values: Any) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


# The text of each file, and the kinds and counts of rows that are stored and left out.
TEXTS: dict[str, tuple[str, str, int, int]] = {
    "events_by_ticker.json": (
        json.dumps({"events": {f"KXA-{year}": {"event_ticker": f"KXA-{year}", "title": "A?"} for year in (26, 27)}}),
        "events", 2, 0,
    ),
    "candles_of_an_event.json": (
        json.dumps({"data": {"market_tickers": ["KXA-1", "KXA-2"], "market_candlesticks": [
            [], [{"end_period_ts": S + 60 * i, **_CANDLE} for i in (1, 2)]]}}), "prices, quotes, metrics", 2, 0,
    ),
    "saved_orderbook.json": (
        json.dumps({"saved": S, "resp": {"orderbook": {"yes": [[40, 10]], "no": [[55, 3]]}}, "ticker": TICKER}),
        "books", 1, 0,
    ),
    "saved_books.json": (
        json.dumps({"saved": S, "data": {T: {"bids": [[".4", "1"]], "asks": []}, T2: {"bids": [], "asks": []}}}),
        "books", 2, 0,
    ),
    "wide_failed.csv": (
        ("ts,token_id,bid_price_1,bid_size_1,ask_price_1,ask_size_1\n"
         f"{S},{T},.4,1,.5,1\n{S + 60},{T},,,,\n{S + 120},{T},.4,1,,\n"), "books", 2, 1,
    ),
    "frames.jsonl": (
        _lines({"recv": S, "frame": {"event_type": "book", "asset_id": T, "market": MARKET, "timestamp": f"{S}000",
                                     "bids": [], "asks": []}}), "books", 1, 0,
    ),
    f"{T}.json": (json.dumps([{"t": S, "p": 0.5}, {"t": S + 60, "p": 0.51}]), "prices", 2, 0),
    "by_token.json": (json.dumps({T: [{"t": S, "p": 0.5}], T2: [{"t": S, "p": 0.5}]}), "prices", 2, 0),
    "archived_candles.json": (
        json.dumps({"ticker": TICKER, "candlesticks": [{"end_period_ts": S + 60 * i, **_CANDLE} for i in (1, 2)]}),
        "prices, quotes, metrics", 2, 0,
    ),
    "candles.csv": (
        f"ticker,end_period_ts,yes_bid_close,yes_ask_close\n{TICKER},{S + 60},41,44\n{TICKER},{S + 120},41,44\n",
        "prices, quotes, metrics", 2, 0,
    ),
    "kalshi_events.json": (
        json.dumps({"events": [{"event_ticker": "KXA-26JAN01", "title": "A?", "markets": [_KALSHI]}], "cursor": ""}),
        "events, markets", 1, 0,
    ),
    "kalshi_list.json": (json.dumps([_KALSHI, {**_KALSHI, "ticker": "KXA-26JAN01-T6"}]), "markets", 2, 0),
    f"orderbooks_{S}.json": (
        json.dumps({TICKER: {"orderbook": {"yes": [[40, 10]], "no": [[55, 3]]}}, "KXB-1": {"orderbook": {"yes": []}}}),
        "books", 2, 0,
    ),
    "envelopes.jsonl": (
        _lines({"ts": S * 1000, "msg": _BOOK}, {"received_at": S + 60, "raw_text": json.dumps([_BOOK])},
               {"json": {**_BOOK, "timestamp": str(S * 1000 + 120_000)}}),
        "books", 3, 0,
    ),
    "ts_event.csv": (
        f"ts_event,ts_recv,instrument_id,bid_px,ask_px\n{S}000000000,{S}000000500,{T},0.4,0.5\n", "quotes", 1, 0
    ),
    "quotes.csv": (
        f"timestamp,asset_id,bid,ask,bid_size,ask_size\n{S},{T},.4,.5,1,2\n{S + 60},{T},,.5,,2\n", "quotes", 2, 0
    ),
    "PRICES.CSV": (f",timestamp,token_id,price\n0,{S},{T},0.5\n", "prices", 1, 0),
    "cents.csv": (
        "timestamp,token_id,price\n" + "".join(f"{S + 60 * i},{T},{40 + i % 20}\n" for i in range(300))
        + f"{S + 99_999},{T},4000\n",
        "prices", 300, 1,
    ),
    "gamma_of_pandas.csv": (_GAMMA, "markets", 1, 0),
    "kalshi_quotes.csv": (
        f"timestamp,ticker,yes_bid,yes_ask,no_bid,no_ask\n{S},{TICKER},40,43,57,60\n{S + 60},{TICKER},41,43,57,59\n",
        "quotes", 2, 0,
    ),
    "pretty.json": (
        json.dumps({"orderbook": {"bids": [{"price": "0.4", "size": "1"}], "asks": []}, "token_id": T, "timestamp": S},
                   indent=1),
        "books", 1, 0,
    ),
    "bad_rows.csv": (
        "timestamp,token_id,price\n" + "".join(f"{S + 60 * i},{T},0.5\n" for i in range(50)) + _BAD, "prices", 50, 4
    ),
    "kalshi_series.json": (
        json.dumps({"series": [{"ticker": "KXA", "title": "A", "frequency": "daily", "tags": ["x"]}]}), "series", 1, 0
    ),
    "one_event.json": (
        json.dumps({"event": {"event_ticker": "KXA-26JAN01", "title": "A?"}, "markets": [_KALSHI]}),
        "events, markets", 1, 0,
    ),
    "spaces.csv": (f"Token ID,Timestamp (UTC),Best Bid,Best-Ask\n{T},{S},.4,.5\n", "quotes", 1, 0),
    "of_python.csv": (
        f"""timestamp,token_id,bids,asks\n{S},{T},"[{{'price': '0.4', 'size': '1'}}]","[(0.6, 2.0)]"\n""", "books", 1, 0
    ),
    "yes_and_no.csv": (
        f"timestamp,market_slug,yes_price,no_price\n{S},rain,.4,.6\n{S},rain,.5,.5\n{S + 60},rain,45,\n", "prices", 1, 2
    ),
    "wide.csv": (
        f"bid_price_1,bid_size_1,ask_price_1,ask_size_1,timestamp,token_id\n.4,1,.5,2,{S},{T}\n", "books", 1, 0
    ),
}  # fmt: skip
# The columns of what is stored, and their values by token and time.
VALUES: dict[str, tuple[str, str, tuple[str, ...], list[tuple[Any, ...]]]] = {
    "records_by_condition.json": (
        json.dumps({MARKET: {"question": "q?", "closed": True, "tokens": [
            {"token_id": T, "outcome": "Yes", "winner": True}, {"token_id": T2, "outcome": "No", "winner": False}]}}),
        "markets", ("token_ids", "resolved_token_id"), [([T, T2], T)],
    ),
    "rows_of_tokens.csv": (
        f"slug,title,side,clobTokenId,isWinner\na-b,q?,Yes,{T},0\na-b,q?,No,{T2},1\n",
        "markets", ("token_ids", "token_labels", "resolved_token_label"), [([T, T2], ["Yes", "No"], "No")],
    ),
    "resolved_by_a_word.csv": (
        f"id,question,outcome_yes_token,outcome_no_token,isResolved,resolution\n1,q?,{T},{T2},True,NO\n",
        "markets", ("token_ids", "status", "resolved_token_label"), [([T, T2], "resolved", "No")],
    ),
    "history_by_token.json": (
        json.dumps({"70001": {"history": [{"t": S, "p": 0.4}]}, "70002": {"history": [{"t": S, "p": 0.6}]}}),
        "prices", ("token_id", "price"), [("70001", 0.4), ("70002", 0.6)],
    ),
    "closes_of_yes.csv": (
        "slug,trade_day,yes_close\na-b,2026-01-01,.4\n", "prices", ("token_label", "price"),
        [("No", 0.6), ("Yes", 0.4)],
    ),
    "outcome_words.csv": (
        f"ts,slug,label,last\n{S},a-b,Yes,.4\n{S},a-b,No,.6\n", "prices", ("token_label", "price"),
        [("No", 0.6), ("Yes", 0.4)],
    ),
    "ids_of_outcomes.csv": (
        f"ts,market,yes_token_id,no_token_id,yes_price,no_price\n{S},{MARKET},{T},{T2},.4,.6\n",
        "prices", ("token_id", "price"), [(T, 0.4), (T2, 0.6)],
    ),
    "markets_by_outcome.csv": (
        f"market_id,title,slug,yes_token_id,no_token_id\n{MARKET},q?,a-b,{T},{T2}\n",
        "markets", ("token_ids", "token_labels"), [([T, T2], ["Yes", "No"])],
    ),
    "sides_of_a_letter.csv": (
        f"timestamp,token_id,side,px,qty\n{S},{T},B,.4,1\n{S},{T},A,.5,2\n",
        "books", ("side", "price", "size"), [("bid", 0.4, 1.0), ("ask", 0.5, 2.0)],
    ),
    "levels_of_outcomes.csv": (
        f"timestamp,market,outcome,side,level,price,size\n{S},{MARKET},Yes,BUY,1,.4,1\n{S},{MARKET},Yes,SELL,1,.5,2\n",
        "books", ("token_label", "side", "price"), [("Yes", "bid", 0.4), ("Yes", "ask", 0.5)],
    ),
    "wide_of_outcomes.csv": (
        f"ts,market,outcome,bid1_price,bid1_size,ask1_price,ask1_size\n{S},{MARKET},Yes,.4,1,.5,2\n",
        "books", ("token_label", "side", "price", "size"), [("Yes", "bid", 0.4, 1.0), ("Yes", "ask", 0.5, 2.0)],
    ),
    "open_time.csv": (
        f"open_time,close_time,token_id,open,high,low,close\n{S}000,{S + 59}999,{T},.4,.5,.3,.45\n",
        "prices", ("ts", "price"), [(_at(0), 0.45)],
    ),
    "end_time.csv": (
        f"end_time,token_id,open,high,low,close\n{S + 60},{T},.4,.5,.3,.45\n{S + 120},{T},.4,.5,.3,.46\n",
        "prices", ("ts", "price"), [(_at(0), 0.45), (_at(1), 0.46)],
    ),
    "times_as_index.csv": (
        f",token_id,price\n2026-01-01 00:00:00+00:00,{T},.4\n", "prices", ("ts", "price"), [(_at(0), 0.4)],
    ),
    "metrics_with_index.csv": (
        f",ts,market_id,volume,liquidity\n0,{S},{MARKET},5,6\n1,{S + 60},{MARKET},5,7\n",
        "metrics", ("ts", "volume", "liquidity"), [(_at(0), 5.0, 6.0), (_at(1), 5.0, 7.0)],
    ),
    "percent.csv": (
        f"token_id,time,probability\n{T},{S},53.0%\n{T},{S + 60},0.5%\n{T},{S + 120},100%\n",
        "prices", ("price",), [(0.53,), (0.005,), (1.0,)],
    ),
    "dollars_and_cents.csv": (
        f"token_id,time,price\n{T},{S},$0.53\n{T},{S + 60},$ .5\n{T},{S + 120},52¢\n",
        "prices", ("price",), [(0.53,), (0.5,), (0.52,)],
    ),
    "thousands.csv": (
        f'token_id,ts,best_bid,bid_size,best_ask,ask_size\n{T},{S},0.4,"12,345.50",0.5,"1,000"\n',
        "quotes", ("best_bid", "best_bid_size", "best_ask_size"), [(0.4, 12345.5, 1000.0)],
    ),
    "offsets.csv": (
        f"token_id,time,price\n{T},2026-03-08T01:59-05,.4\n{T},2026-03-08T03-04,.41\n{T},2026-03-08 03:01 -0400,.42\n",
        "prices", ("ts", "price"),
        [(dt.datetime(2026, 3, 8, 6 + (i > 0), (59, 0, 1)[i], tzinfo=dt.UTC), 0.4 + i / 100) for i in range(3)],
    ),
    "site.csv": (
        f"Date (UTC),Timestamp (UTC),Alice,Bob\n01-01-2026 00:00,{S},.53,.41\n", "prices", ("token_label", "price"),
        [("Alice", 0.53), ("Bob", 0.41)],
    ),
    "outcomes.csv": (f"ts,Yes,No\n{S},53%,46.5%\n", "prices", ("token_label", "price"), [("No", 0.465), ("Yes", 0.53)]),
    "by_index.csv": (
        f"id,market_id,timestamp,outcome_index,price,volume\n1,m,{S},0,.4,1\n2,m,{S},1,.6,1\n",
        "prices", ("token_label", "price"), [("0", 0.4), ("1", 0.6)],
    ),
    "bars.csv": (
        f"bar_start,token_id,open,high,low,close,volume\n{S},{T},.4,.5,.3,.45,10\n", "prices", ("price",), [(0.45,)]
    ),
    "json_in_columns.csv": (
        f"""token_id,ts,best_bid,best_ask,bids_json,asks_json\n{T},{S},,,"[[0.4, 10], [0.45, 2]]","[[0.5, 3]]"\n""",
        "books", ("side", "price", "size"), [("bid", 0.45, 2.0), ("bid", 0.4, 10.0), ("ask", 0.5, 3.0)],
    ),
    "by_columns.csv": (
        f"timestamp,{T},{T2}\n{S},.4,.6\n{S + 60},.9,\n", "prices", ("token_id", "price"),
        [(T, 0.4), (T, 0.9), (T2, 0.6)],
    ),
    "ticker.jsonl": (
        _lines({"type": "ticker", "sid": 1, "msg": {
            "market_id": "9b0f-4ef2", "market_ticker": TICKER, "price": 1, "yes_bid": 1, "yes_ask": 2,
            "yes_bid_dollars": "0.0100", "yes_ask_dollars": "0.0200", "ts": S,
        }}),
        "quotes", ("token_id", "best_bid", "best_ask"), [(f"{TICKER}:no", 0.98, 0.99), (f"{TICKER}:yes", 0.01, 0.02)],
    ),
    "page.json": (
        json.dumps({"$schema": "x", "exported_at": S, "prices": [{"t": S, "p": 0.5, "token_id": T}], "cursor": "a"}),
        "prices", ("price",), [(0.5,)],
    ),
    "by_slug.json": (
        json.dumps({slug: {"Yes": [{"t": S, "p": p}], "No": [{"t": S, "p": 1 - p}]} for slug, p in (("a-b", 0.25),
                                                                                            ("c-d", 0.5))}),
        "prices", ("market_id", "token_label", "price"),
        [("a-b", "No", 0.75), ("a-b", "Yes", 0.25), ("c-d", "No", 0.5), ("c-d", "Yes", 0.5)],
    ),
    f"chart_{T}.json": (
        json.dumps([[S * 1000, 0.5], [S * 1000 + 60_000, 0.51]]), "prices", ("price",), [(0.5,), (0.51,)]
    ),
    "german.csv": (
        f"time;token_id;price;volume\n04.03.2026 12:00;{T};0,534;1.234,50\n", "prices", ("ts", "price"),
        [(dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC), 0.534)],
    ),
    "comments.csv": (
        f"# exported\n# unit: probability\nts,token_id,price\n{S},{T},.5\n", "prices", ("price",), [(0.5,)]
    ),
    "excel.csv": (f"sep=;\nts;token_id;price\n{S};'{T};,5\n", "prices", ("token_id", "price"), [(T, 0.5)]),
    "penny.csv": (
        f"ts,ticker,yes_bid,yes_ask\n{S},{TICKER},0,1\n{S + 60},{TICKER},1,2\n",
        "quotes", ("best_bid", "best_ask"), [(0.99, None), (0.98, 0.99), (None, 0.01), (0.01, 0.02)],
    ),
    "empty_sides.csv": (
        f"ts,token_id,best_bid,best_ask\n{S},{T},.97,0\n{S + 60},{T},0,.03\n",
        "quotes", ("best_bid", "best_ask"), [(0.97, None), (None, 0.03)],
    ),
    "ends.csv": (
        f"token_id,period_end,close\n{T},{S + 60},.4\n{T},{S + 180},.5\n{T2},{S + 60},.6\n{T2},{S + 120},.5\n",
        "prices", ("ts", "price"), [(_at(0), 0.4), (_at(2), 0.5), (_at(0), 0.6), (_at(1), 0.5)],
    ),
    "price_cents.csv": (
        f"ts,token_id,price_cents\n{S},{T},.5\n{S + 60},{T},.9\n{S + 120},{T},1\n", "prices", ("price",),
        [(0.005,), (0.009,), (0.01,)],
    ),
    "bps.csv": (
        f"ts,market_id,yes_price_bps,no_price_bps\n{S},17,5300,4700\n", "prices", ("token_label", "price"),
        [("No", 0.47), ("Yes", 0.53)],
    ),
    "percent_by_name.csv": (
        f"ts,token_id,probabilityPct\n{S},{T},53.2\n{S + 60},{T},.4\n", "prices", ("price",), [(0.532,), (0.004,)]
    ),
    "of_tickers.csv": (
        f"ts,ticker,price\n{S},{TICKER},.4\n", "prices", ("market_id", "token_id", "price"),
        [(TICKER, f"{TICKER}:yes", 0.4)],
    ),
    "of_sides.csv": (
        f"ts,ticker,side,price\n{S},{TICKER},YES,.4\n{S},{TICKER},NO,.6\n", "prices", ("token_id", "price"),
        [(f"{TICKER}:no", 0.6), (f"{TICKER}:yes", 0.4)],
    ),
    "bids_of_both.csv": (
        f"ts,ticker,yes_bid,no_bid\n{S},{TICKER},40,55\n", "quotes", ("token_id", "best_bid", "best_ask"),
        [(f"{TICKER}:no", 0.55, 0.6), (f"{TICKER}:yes", 0.4, 0.45)],
    ),
    "up_or_down.csv": (
        f"ts,market_slug,up_price,down_price\n{S},a,.4,.6\n{S},b,.3,.7\n", "prices",
        ("market_id", "token_label", "price"),
        [("a", "Down", 0.6), ("a", "Up", 0.4), ("b", "Down", 0.7), ("b", "Up", 0.3)],
    ),
    "polled.csv": (
        "fetched_at,condition_id,question,outcome_prices,closed\n"
        + "".join(f"""{S + 60 * i},{MARKET},q?,"[""0.{i + 4}"", ""0.{6 - i}""]",False\n""" for i in range(2)),
        "prices", ("token_label", "price"), [("No", 0.6), ("No", 0.5), ("Yes", 0.4), ("Yes", 0.5)],
    ),
    "yes_alone.csv": (
        f"ts,condition_id,yes_probability\n{S},{MARKET},.4\n", "prices", ("token_label", "price"),
        [("No", 0.6), ("Yes", 0.4)],
    ),
}  # fmt: skip
_TRADE = {
    "side": "BUY", "asset": T, "conditionId": MARKET, "size": 3, "price": 0.4, "timestamp": S, "outcome": "Yes",
    "outcomeIndex": 0, "transactionHash": "0x1",
}  # fmt: skip
_TWO = (("bid", 0.4), ("ask", 0.6))
_FILL = {
    "ticker": TICKER, "count": 3, "created_time": "2026-01-01T00:00:01Z", "yes_price": 60, "no_price": 40,
    "side": "yes", "action": "buy", "order_id": "o",
}  # fmt: skip
_PRINT = {
    "ticker": TICKER, "count_fp": "3.00", "created_time": "2026-01-01T00:00:01Z", "yes_price_dollars": "0.6100",
    "no_price_dollars": "0.3900", "taker_side": "no",
}  # fmt: skip
# What is refused, and what the refusal names.
REFUSED = {
    "polls_without_a_time.csv": (
        "market_id,question,volume\nm1,A?,1\nm2,B?,2\nm1,A?,3\nm2,B?,4\n", "2 of 4 rows of a record given before",
    ),
    "day_and_hour.csv": (
        f"date,hour,token_id,price\n2026-01-01,14,{T},.4\n2026-01-01,15,{T},.5\n", "times of day in hour",
    ),
    "returns.csv": (
        "ts,token_id,price\n" + "".join(f"{S + 60 * i},{T},{(-1) ** i * i / 100}\n" for i in range(9)),
        "4 of 9 values of price are outside of 0 to 1, such as -0.01",
    ),
    "cents_and_dollars.csv": (
        "ts,token_id,price\n" + "".join(f"{S + 60 * i},{T},{40 + i if i % 2 else (40 + i) / 100}\n" for i in range(9)),
        "4 of 9 values of price are outside of 0 to 1, such as 41",
    ),
    "two_times.csv": (
        f"timestamp,event_timestamp,token_id,price\n{S + 9000},{S},{T},.4\n{S + 9001},{S + 60},{T},.5\n",
        "has two times, timestamp and event_timestamp, which differ",
    ),
    "day_and_time.csv": (
        f"date,time,token_id,price\n2026-01-01,00:00:00,{T},.4\n2026-01-01,00:01:00,{T},.5\n",
        "has days in date and times of day in time",
    ),
    "one_token_of_two.csv": (
        f"ts,token_id,outcome,price\n{S},{T},Yes,.4\n{S},{T},No,.6\n", "is called No and Yes",
    ),
    "price_of_the_row.csv": (
        f"ts,market,outcome,yes_price\n{S},{MARKET},Yes,.4\n{S},{MARKET},No,.6\n",
        "yes_price differs between the outcomes of a market at 1 times",
    ),
    "shortened.csv": (f"ts,market,outcome,price\n{S},0xabab...abab,Yes,.4\n", "It lacks token_id"),
    "total_volume.csv": (
        f"ts,token_id,side,price,volume\n{S},{T},buy,.4,10\n{S + 1},{T},sell,.4,20\n", "It lacks size",
    ),
    "rounded.csv": (f"timestamp,token_id,price\n{S},7.7777e+76,.5\n", "no rounded numbers such as 7.1e\\+76: 7.7777e"),
    "positions.json": (
        json.dumps([{"proxyWallet": "0x", "asset": T, "conditionId": MARKET, "size": 1, "title": "t"}]),
        r"In the way is proxy_wallet \(account\)",
    ),
    "us_dates.csv": (f"timestamp,token_id,price\n01/02/2026 00:00,{T},0.5\n", "has not times since 2015: 01/02/2026"),
    "levels_changed.csv": (
        f"timestamp,price,size,size_change,token_id\n{S},.999,150,25,{T}\n", r"In the way is size_change \("
    ),
    "signed.csv": (
        f"timestamp,ticker,side,price,signed_qty\n{S},{TICKER},0,45,-3\n", r"In the way is signed_qty \(size_change\)"
    ),
    "events_of_books.csv": (
        f"type,ticker,side,price,qty,ts\nsnapshot,{TICKER},buy,45,3,{S}\n", "most moments have one row, as changes have"
    ),
    "sum_of_one.csv": (f"ts,model_a,model_b\n{S},.35,.60\n{S + 60},.3,.7\n", "format='wide-prices'"),
    "weights.csv": (f"ts,tech,oil,gold\n{S},.2,.3,.5\n{S + 60},.3,.3,.4\n", "format='wide-prices'"),
    "odds.csv": (
        f"timestamp,token_id,price\n{S},{T},1.91\n{S + 60},{T},2.05\n{S + 120},{T},3\n", "may be decimal odds or cents"
    ),
    "headerless.csv": (f"{S},{T},.5\n{S + 60},{T},.5\n", "has no line of column names: .* '1767225600'. Put a line"),
    "zone.csv": (f"time,token_id,price\n2026-03-04 07:00:00 EST,{T},.5\n", "EST.: write them as 2026-03-04T12:00:00Z"),
    "swapped.csv": (
        "ts,token_id,best_bid,best_ask\n" + "".join(f"{S + i},{T},.6,.4\n" for i in range(3)),
        "above best_ask in 3 of 3",
    ),
    "two_widths.csv": (
        f"token_id,ts,interval,close\n{T},{S},1m,.4\n{T},{S + 60},1h,.5\n", "several widths, by interval: 1h, 1m"
    ),
    "two_prices.csv": (
        "ts,token_id,price_type,price\n" + "".join(f"{S + i},{T},{n},{p}\n" for i in range(2) for n, p in _TWO),
        r"several rows for a token and a time, which differ by price_type \(ask, bid\)",
    ),
    "cents_or_not.csv": (
        "ts,token_id,price\n" + "".join(f"{S + i},{T},{2 if i == 9 else i % 2}\n" for i in range(20)),
        "may be cents or prices of 0 and 1",
    ),
    "named_cents.csv": (f"ts,token_id,price_cents\n{S},{T},.4523\n", "price_cents says cents, and its values"),
    "no_market.csv": (f"recv_ts_ms,up_bid,up_ask\n{S}000,.4,.5\n", r"or the market with token_id='TOKEN'"),
    "removed_levels.csv": (
        f"ts,token_id,side,price,size,hash\n{S},{T},BUY,.4,10,a\n{S + 1},{T},BUY,.4,0,b\n", "looks most like"
    ),
    "price_of_a_side.csv": (f"ts,ticker,side,price,size\n{S},{TICKER},no,55,10\n", "looks most like"),
    "no_name.csv": ("a,b\n1,2\n", "No column is one that a format needs"),
}  # fmt: skip
# The trades of each file: side, price and size.
TRADES: dict[str, tuple[str, list[tuple[str, float, float]]]] = {
    "sides_in_words.csv": (
        f"ts,token_id,side,price,size\n{S},{T},Bought,.4,1\n{S + 1},{T},Sold,.5,2\n",
        [("buy", 0.4, 1), ("sell", 0.5, 2)],
    ),
    "sides_of_another_name.csv": (
        f"Date,Market,Outcome,Type,Shares,Price\n{S},m,Yes,Sell,1,.4\n{S + 1},m,Yes,Buy,2,.5\n",
        [("sell", 0.4, 1), ("buy", 0.5, 2)],
    ),
    "own_fills.csv": (
        f"created_time,ticker,action,side,count,yes_price,no_price\n2026-01-01T00:00:00Z,{TICKER},sell,yes,5,45,55\n",
        [("sell", 0.45, 5)],
    ),
    "volumes_with_index.csv": (
        f",ts,slug,label,side,price,volume\n0,{S},a,No,BUY,.4,9\n1,{S + 1},a,No,BUY,.5,7\n2,{S + 2},a,No,SELL,.5,8\n",
        [("buy", 0.4, 9.0), ("buy", 0.5, 7.0), ("sell", 0.5, 8.0)],
    ),
    "volumes_of_prints.csv": (
        f"ts,token_id,trade_side,price,volume\n{S},{T},Sell,.4,9\n{S + 1},{T},Buy,.5,7\n{S + 2},{T},Buy,.5,8\n",
        [("sell", 0.4, 9.0), ("buy", 0.5, 7.0), ("buy", 0.5, 8.0)],
    ),
    "data_api.json": (
        json.dumps([_TRADE, {**_TRADE, "size": "x"}, {**_TRADE, "side": "SELL", "transactionHash": "0x3"}]),
        [("buy", 0.4, 3.0), ("sell", 0.4, 3.0)],
    ),
    "orders.json": (
        json.dumps({"orders": [{"token_id": T, "side": "BUY", "shares": 4_995_000, "shares_normalized": 4.995,
                                "price": 0.65, "tx_hash": "0x1", "timestamp": S, "user": "0x2", "taker": "0x3"}],
                    "pagination": {"limit": 50}}),
        [("buy", 0.65, 4.995)],
    ),
    # An own fill keeps its outcome and its side, whether it took or made.
    "fills.json": (
        json.dumps({"fills": [{**_FILL, "trade_id": str(taker), "is_taker": taker} for taker in (True, False)]}),
        [("buy", 0.6, 3.0), ("buy", 0.6, 3.0)],
    ),
    "of_both_assets.csv": (
        "block_timestamp,tx_hash,asset_id,maker_asset_id,taker_asset_id,amount_usd,shares,price_per_share\n"
        + "".join(f"{S},0x{gives},{T},{gives},{takes},4,10,.4\n" for gives, takes in ((T, 0), (0, T))),
        [("buy", 0.4, 10.0), ("sell", 0.4, 10.0)],
    ),
    # Money beside shares is no size.
    "money.csv": (
        f"timestamp,token_id,side,price,amount,shares\n{S},{T},BUY,.5,10,20\n", [("buy", 0.5, 20.0)]
    ),
    "dollars.jsonl": (_lines({**_PRINT, "trade_id": "a"}, {**_PRINT, "trade_id": "b"}), [("buy", 0.39, 3.0)] * 2),
}  # fmt: skip


def _hive(folder: Path) -> Path:
    inner = folder / "hive" / "token_id=7" / "date=2026-01-01"
    inner.mkdir(parents=True)
    (inner / "p.csv").write_text(f"timestamp,price\n{S},0.5\n")
    return folder / "hive"


def _delta(folder: Path) -> Path:
    for price in (0.1, 0.6):
        rows = pl.DataFrame({"timestamp": [S], "token_id": [T], "price": [price]}).to_arrow()
        deltalake.write_deltalake(folder / "delta", rows, mode="overwrite")
    return folder / "delta"


def _sqlite(folder: Path) -> Path:
    database = sqlite3.connect(folder / "collector.db")
    database.execute("create table prices (ts integer, token_id text, price real)")
    database.execute("insert into prices values (?, ?, .6)", (S, T))
    database.commit()
    database.close()
    return folder / "collector.db"


# Folders and files that are no texts, each of one price.
OTHERS: dict[str, Callable[[Path], Path]] = {"hive": _hive, "delta": _delta, "sqlite": _sqlite}
