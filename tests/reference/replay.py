"""Answers of venues that were saved, as the little venue that they describe, and what must hold of a client there.

A file has a request, its answer, those ``beside`` it, and expectations; `Replay` answers any question about the records
in it, so that a client may ask in its own way. `check` compares what a call gives with what a file says of it.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from reference.faults import Act, Ask, ok
from reference.venues import answered, refused, simulated_clock

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.times import DAY, SECOND, parse_iso, to_text

PRESENT = parse_iso("2026-11-28T12:00:00Z")
_NAMES = {
    "gamma-api.polymarket.com": "gamma", "data-api.polymarket.com": "data", "clob.polymarket.com": "clob",
    "external-api.kalshi.com": "kalshi",
}  # fmt: skip
_NOT_FOUND = {
    "gamma": {"type": "not found error", "error": "not found"},
    "data": {"error": "not found", "code": "not_found", "retryable": False},
    "clob": {"error": "No orderbook exists for the requested token id"},
    "kalshi": {"error": {"code": "not_found", "message": "not found", "service": "exchange"}},
}
_CURSORS = ("cursor", "after_cursor", "page", "offset")
_KALSHI = "/trade-api/v2"
_LONGEST = 1_296_000  # seconds of one answer of the CLOB
_LIVE, _ARCHIVED = "live", "archived"
_STATES = {"open": ("active",), "settled": ("finalized", "settled"), "unopened": ("initialized",),
           "closed": ("closed", "determined", "disputed", "amended", "inactive")}  # fmt: skip
Row = dict[str, Any]


class Replay:
    """The venue of one file. ``asked`` has each request as host, path and parameters."""

    def __init__(self, file: Path) -> None:
        self.file: Row = json.loads(file.read_text())
        self.answers: list[Row] = [self.file, *self.file.get("beside", ())]
        self.asked: list[tuple[str, str, Row]] = []
        self.left = {id(one): one["times"] for one in self.answers if "times" in one}

    @property
    def venue(self) -> str:
        return "kalshi" if self.file["request"]["host"] == "kalshi" else "polymarket"

    @property
    def now(self) -> int:
        """The ``Date`` of an answer [microseconds]."""
        if (at := self.file.get("clock")) is not None:
            return parse_iso(at) + int(SYSTEM.slept * SECOND)
        return int(SYSTEM.time() * SECOND)

    def at(self, host: str, ask: Ask) -> Act:
        """The answer of a host."""
        path = ask.path.removeprefix(_KALSHI)
        params: Row = {k: v if len(v) > 1 else v[0] for k, v in parse_qs(urlsplit(ask.target).query).items()}
        self.asked.append((host, path, params))
        sent = json.loads(ask.body) if ask.body else None
        act = self.error(host, path, params) or self.answer(host, path, params, sent)
        return act.with_header("Date", format_datetime(datetime.fromtimestamp(self.now / SECOND, UTC), usegmt=True))

    def named(self, host: str, path: str) -> list[Row]:
        """The answers with status 200 to a path."""
        return [
            one
            for one in self.answers
            if one["request"]["host"] == host and one["request"]["path"] == path and one["status"] == 200
        ]

    def error(self, host: str, path: str, params: Row) -> Act | None:
        """The refusal of a request: the first ones, every one, or those that name what it names."""
        for one in self.answers:
            of = one["request"]
            if of["host"] != host or of["path"] not in ("*", path) or (one["status"] == 200 and "times" not in one):
                continue
            if "times" in one:
                if not self.left[id(one)]:
                    continue
                self.left[id(one)] -= 1
            elif not one.get("always") and not all(names(params.get(k), v) for k, v in of["params"].items()):
                continue
            body = one["body"].encode() if isinstance(one["body"], str) else json.dumps(one["body"]).encode()
            act = Act(status=one["status"], body=body)
            for header, value in (one.get("headers") or {}).items():
                act = act.with_header(header, value)
            return act
        return None

    def answer(self, host: str, path: str, params: Row, sent: Any) -> Act:
        found = getattr(self, host)(path.strip("/").split("/"), params, sent)
        return refused(404, _NOT_FOUND[host]) if found is None else found if isinstance(found, Act) else ok(found)

    def page_of(self, host: str, path: str, params: Row) -> Any:
        """The body that the file has for a path and a cursor."""
        at = {k: str(v) for k, v in params.items() if k in _CURSORS and str(v) not in ("0", "1", "")}
        for one in self.named(host, path):
            if at == {k: str(v) for k, v in one["request"]["params"].items() if k in _CURSORS}:
                return one["body"]
        return None

    def objects(self, host: str, is_one: Callable[[Row], bool]) -> list[Row]:
        """The objects of a kind anywhere in the answers of a host."""
        bodies = (one["body"] for one in self.answers if one["request"]["host"] == host and one["status"] == 200)
        return [one for body in bodies for one in objects_in(body) if is_one(one)]

    # Polymarket

    def markets(self) -> list[Row]:
        return self.objects("gamma", lambda one: "conditionId" in one)

    def events(self) -> list[Row]:
        whole = self.objects("gamma", lambda one: isinstance(one.get("markets"), list) and "slug" in one)
        known = {str(one["id"]) for one in whole}
        nested = [(e, m) for m in self.markets() for e in m.get("events") or () if str(e.get("id")) not in known]
        return whole + [e | {"markets": [m], "closed": m.get("closed")} for e, m in nested]

    def gamma(self, parts: list[str], params: Row, _: Any) -> Any:
        if "_" in str(params.get("order", "")):
            return refused(422, {"type": "validation error", "error": "order fields are not valid"})
        match parts:
            case ["markets" | "events" as kind, "keyset"]:
                rows = self.markets() if kind == "markets" else self.events()
                page = self.page_of("gamma", f"/{kind}/keyset", params)
                if page is not None and ("next_cursor" in page or "after_cursor" in params):
                    return {**page, kind: [row for row in page[kind] if passes(row, kind, params)]}
                return {kind: [row for row in rows if passes(row, kind, params)]}
            case ["markets" | "events" as kind]:
                rows = self.markets() if kind == "markets" else self.events()
                return [row for row in rows if passes(row, kind, params)] if int(params.get("offset", 0)) == 0 else []
            case ["markets" | "events" as kind, *_, name]:
                field = "slug" if len(parts) == 3 else "id"
                rows = self.markets() if kind == "markets" else self.events()
                return next((row for row in rows if str(row.get(field)) == name), None)
            case ["public-search"]:
                return self.page_of("gamma", "/public-search", params) or {"pagination": {"hasMore": False}}
            case ["series" | "tags" as kind]:
                return self.page_of("gamma", f"/{kind}", params) or []
        return self.page_of("gamma", "/" + "/".join(parts), params)

    def clob(self, parts: list[str], params: Row, sent: Any) -> Any:
        match parts:
            case ["prices-history"]:
                if int(params["endTs"]) - int(params["startTs"]) > _LONGEST:
                    return refused(400, {"error": "invalid filters: 'startTs' and 'endTs' interval is too long"})
                return {"history": self.points(params["market"], int(params["startTs"]), int(params["endTs"]))}
            case ["batch-prices-history"]:
                if sent["end_ts"] - sent["start_ts"] > _LONGEST or len(sent["markets"]) > 20:
                    return refused(400, {"error": "invalid filters"})
                window = sent["start_ts"], sent["end_ts"]
                return {"history": {token: self.points(token, *window) for token in sent["markets"]}}
            case ["book"]:
                return next(iter(self.books([params["token_id"]])), None)
            case ["books"]:
                return self.books([one["token_id"] for one in sent])
        return None

    def points(self, token: str, start: int, end: int) -> list[Row]:
        found = {}
        for one in self.named("clob", "/prices-history") + self.named("clob", "/batch-prices-history"):
            histories = one["body"]["history"]
            own = histories if one["request"]["params"].get("market") == token else []
            for point in histories.get(token, []) if isinstance(histories, dict) else own:
                found[point["t"]] = point
        return [p for t, p in sorted(found.items()) if start <= t <= end or t == self.now // SECOND]

    def books(self, tokens: list[str]) -> list[Row]:
        rows = self.objects("clob", lambda one: "asset_id" in one and "bids" in one)
        return [row for row in rows if row["asset_id"] in tokens]

    def data(self, parts: list[str], params: Row, _: Any) -> Any:
        path = "/" + "/".join(parts)
        page = self.page_of("data", path, params)
        conditions = str(params.get("condition", "")).split(",")
        match parts:
            case ["v2", "resolutions"]:
                if any(len(one) != 66 for one in conditions):
                    words = "condition must be a 32-byte hex string"
                    return refused(400, {"error": words, "code": "invalid_request", "retryable": False})
                every = [row for one in self.named("data", path) for row in one["body"]["data"]]
                return {"data": [row for row in every if row["condition_id"] in conditions], "pagination": {}}
            case ["v2", "trades"]:
                rows = [row for row in (page or {"data": []})["data"] if row["condition_id"] in conditions]
                return {**(page or {}), "data": rows}
            case ["v2", "prices-history"]:
                named = [one for one in self.named("data", path) if names(one["request"]["params"], params["token_id"])]
                start, end = int(params["start"]), int(params.get("end", self.now // SECOND))
                rows = [row for one in named for row in one["body"]["data"] if start <= row["timestamp"] < end]
                return {"data": rows, "pagination": {"has_more": False, "next_cursor": None}}
        return page

    # Kalshi

    def tickers(self, tier: str) -> dict[str, Row]:
        """The records of the markets of a tier."""
        out = {}
        for one in self.answers:
            if one["status"] == 200 and tier == (
                _ARCHIVED if one["request"]["path"].startswith("/historical") else _LIVE
            ):
                found = objects_in(one["body"])
                out |= {row["ticker"]: row for row in found if "ticker" in row and "event_ticker" in row}
        return out

    def event(self, ticker: str) -> Row:
        known = self.objects("kalshi", lambda one: one.get("event_ticker") == ticker and "ticker" not in one)
        series = next(
            (row["series_ticker"] for row in self.known() if row.get("series_ticker")), ticker.split("-", maxsplit=1)[0]
        )
        made = {"event_ticker": ticker, "series_ticker": series, "title": ticker, "category": "Made"}
        members = [row for row in self.tickers(_LIVE).values() if row["event_ticker"] == ticker]
        return {**made, **{k: v for one in known for k, v in one.items() if k != "markets"}, "markets": members}

    def known(self) -> list[Row]:
        return [*self.tickers(_LIVE).values(), *self.tickers(_ARCHIVED).values()]

    def kalshi(self, parts: list[str], params: Row, _: Any) -> Any:
        path, tier = "/" + "/".join(parts), _ARCHIVED if parts[0] == "historical" else _LIVE
        own = self.tickers(tier)
        match parts[1:] if tier == _ARCHIVED else parts:
            case ["cutoff"]:
                at = to_text((self.now - 62 * DAY) // DAY * DAY)
                made = {"market_settled_ts": at, "trades_created_ts": at}
                return next((one["body"] for one in self.named("kalshi", path)), made)
            case ["markets", "candlesticks"]:
                some = [ticker for ticker in params["market_tickers"].split(",") if ticker in own]
                return {"markets": [{"market_ticker": t, "candlesticks": self.candles(t, tier, params)} for t in some]}
            case [*_, "markets", ticker, "candlesticks"]:
                return {"ticker": ticker, "candlesticks": self.candles(ticker, tier, params)} if ticker in own else None
            case ["markets", "trades"] | ["trades"]:
                return self.trades(path, params)
            case ["markets", "orderbooks"]:
                wanted = params.get("tickers", [])
                wanted = [wanted] if isinstance(wanted, str) else wanted
                rows = [row for one in self.named("kalshi", path) for row in one["body"]["orderbooks"]]
                single = {t: one["body"] for t in wanted for one in self.named("kalshi", f"/markets/{t}/orderbook")}
                rows += [{"ticker": ticker, **body} for ticker, body in single.items()]
                return {"orderbooks": [row for row in rows if row["ticker"] in wanted]}
            case ["markets", ticker, "orderbook"]:
                listed = self.objects("kalshi", lambda one: one.get("ticker") == ticker and "orderbook_fp" in one)
                return next((one["body"] for one in self.named("kalshi", path)), next(iter(listed), None))
            case ["markets"]:
                page = self.page_of("kalshi", path, params)
                if page is not None and (page.get("cursor") or "cursor" in params):
                    return {**page, "markets": [row for row in page["markets"] if kalshi_passes(row, params)]}
                return {"markets": [row for row in own.values() if kalshi_passes(row, params)], "cursor": ""}
            case ["markets", ticker]:
                return {"market": own[ticker]} if ticker in own else None
            case ["events"]:
                page = self.page_of("kalshi", path, params)
                if page is None:
                    every = dict.fromkeys(row["event_ticker"] for row in self.known())
                    page = {"events": [self.event(ticker) for ticker in every], "cursor": ""}
                return {
                    **page,
                    "events": [self.nested(row, params) for row in page["events"] if of_series(row, params)],
                }
            case ["events", ticker]:
                event = self.event(ticker)
                listed = self.page_of("kalshi", path, params)
                rest = {"markets": event["markets"]} if listed is None or "markets" in listed else {}
                return {"event": self.nested(event, params), **rest}
            case ["series"]:
                page = self.page_of("kalshi", path, params)
                made = dict.fromkeys(self.event(row["event_ticker"])["series_ticker"] for row in self.known())
                return page or {"series": [{"ticker": one, "title": one, "tags": None} for one in made]}
            case ["series", ticker]:
                page = self.page_of("kalshi", path, params)
                rows = self.objects("kalshi", lambda one: one.get("ticker") == ticker and "frequency" in one)
                return page or {"series": next(iter(rows), {"ticker": ticker, "title": ticker, "tags": None})}
        return self.page_of("kalshi", path, params)

    def nested(self, event: Row, params: Row) -> Row:
        keeps = params.get("with_nested_markets") == "true"
        return event if keeps else {name: value for name, value in event.items() if name != "markets"}

    def candles(self, ticker: str, tier: str, params: Row) -> list[Row]:
        """Those of a period that end in the range, of the answer about this market or about several."""
        out = {}
        for one in self.answers:
            path, body = one["request"]["path"], one["body"]
            is_archived = path.startswith("/historical")
            if not path.endswith("/candlesticks") or one["status"] != 200 or is_archived != (tier == _ARCHIVED):
                continue
            if str(one["request"]["params"].get("period_interval")) != str(params["period_interval"]):
                continue
            rows = body["candlesticks"] if f"/{ticker}/" in path else []
            rows += [c for m in body.get("markets") or () if m["market_ticker"] == ticker for c in m["candlesticks"]]
            out |= {row["end_period_ts"]: row for row in rows}
        return [row for at, row in sorted(out.items()) if int(params["start_ts"]) <= at <= int(params["end_ts"])]

    def trades(self, path: str, params: Row) -> Row:
        rows = [row for one in self.named("kalshi", path) for row in one["body"]["trades"]]
        first, last = int(params.get("min_ts", 0)), int(params.get("max_ts", 1 << 40))
        inside = [row for row in rows if first <= parse_iso(row["created_time"]) / SECOND <= last]
        return {"trades": [row for row in inside if row["ticker"] == params.get("ticker", row["ticker"])], "cursor": ""}


def objects_in(value: Any) -> Iterator[Row]:
    """An object and all that are inside of it."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(inner)


def names(asked: Any, value: Any) -> bool:
    """Whether a parameter, or any of an object, names a value, alone or in a list."""
    if isinstance(asked, Mapping):
        return any(names(one, value) for one in asked.values())
    given = asked if isinstance(asked, list) else str(asked).split(",")
    return str(value) in map(str, given) or str(value) == str(asked)


def passes(row: Row, kind: str, params: Row) -> bool:
    """The filters of Gamma: an id is compared as the record writes it, and closed markets are asked for alone."""
    default = {"closed": "false"} if kind == "markets" else {}
    wanted = {name: v if isinstance(v, list) else [str(v)] for name, v in {**default, **params}.items()}
    if "closed" in wanted and str(bool(row.get("closed"))).lower() not in wanted["closed"]:
        return False
    for name, field in (("id", "id"), ("slug", "slug"), ("condition_ids", "conditionId")):
        if name in wanted and str(row.get(field)) not in wanted[name]:
            return False
    for name, field in (("clob_token_ids", "clobTokenIds"), ("position_ids", "positionIds")):
        has = set(re.findall(r"\d+", json.dumps(row.get(field) or "")))
        if name in wanted and has.isdisjoint(wanted[name]):
            return False
    return True


def of_series(event: Row, params: Row) -> bool:
    return str(params.get("series_ticker", event.get("series_ticker"))) == str(event.get("series_ticker"))


def kalshi_passes(row: Row, params: Row) -> bool:
    """The filters of Kalshi's listings of markets."""
    if "tickers" in params and row["ticker"] not in params["tickers"].split(","):
        return False
    if params.get("event_ticker", row["event_ticker"]) != row["event_ticker"]:
        return False
    if "series_ticker" in params and not row["ticker"].startswith(params["series_ticker"]):
        return False
    if params.get("mve_filter") == "exclude" and row.get("mve_collection_ticker"):
        return False
    if "status" in params and row.get("status") not in _STATES[params["status"]]:
        return False
    for name, field in (("settled", "settlement_ts"), ("close", "close_time"), ("created", "created_time")):
        limits = params.get(f"min_{name}_ts"), params.get(f"max_{name}_ts")
        if limits == (None, None):
            continue
        at = row.get(field)
        first, last = (None if limit is None else int(limit) for limit in limits)
        if at is None or not (first or 0) <= parse_iso(at) / SECOND <= (last or 1 << 40):
            return False
    return True


@contextmanager
def replayed(file: Path, folder: Path) -> Iterator[Callable[[str], Any]]:
    """Evaluate expressions over a client of the venue of a file; the words of a file are those of its README."""
    replay = Replay(file)
    counter = itertools.count()

    def new(**options: Any) -> md.Client[Any]:
        return md.Client(replay.venue, progress=False, **options)

    def archive(client: md.Client[Any], resolution: str = "1m") -> md.Archive:
        return md.Archive(folder / f"archive-{next(counter)}", base=resolution)

    with ExitStack() as stack:
        stack.enter_context(simulated_clock(PRESENT))
        stack.enter_context(answered({netloc: partial(replay.at, host) for netloc, host in _NAMES.items()}))
        client = new()

        def pulled(name: Any, times: list[str], resolution: str, views: Any = "prices") -> Any:
            stored = archive(client, resolution)
            for start, end in itertools.pairwise(times):
                stored.pull(client, name, start=start, end=end, views=views, progress=False)
            return getattr(stored, views)(name, times[0], times[-1], resolution)

        def followed(name: Any, rounds: int = 1) -> Any:
            stored = archive(client)
            with closing(stored.follow(client, name, views="books", every="1s")) as every:
                for report in itertools.islice(every, rounds):
                    assert report.error is None, report.error
            return stored.books(on_missing="partial")

        known = {
            "client": client, "new": new, "md": md, "pd": pd, "pulled": pulled, "followed": followed,
            "asked": lambda: replay.asked,
        }  # fmt: skip
        if "saved_as" in replay.file:
            saved = folder / replay.file["saved_as"]
            saved.write_text(json.dumps(replay.file["body"]))
            known["saved"] = str(saved)
        yield lambda call: eval(call, known)


def check(file: Path, expect: Mapping[str, Any], folder: Path) -> None:
    """Fail unless a call of a file gives what it says."""
    with replayed(file, folder) as evaluate, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if "raises" in expect:
            check_error(evaluate, expect)
            return
        may_fail = expect.get("or_raises")
        try:
            result = evaluate(expect["call"])
        except md.MarketDataError as error:
            if may_fail is not None and type(error).__name__ in ([may_fail] if isinstance(may_fail, str) else may_fail):
                return
            raise
    if expect.get("warns"):
        assert warned, "no warning is given"
    compare(result, expect)


def check_error(evaluate: Callable[[str], Any], expect: Mapping[str, Any]) -> None:
    allowed = [expect["raises"]] if isinstance(expect["raises"], str) else expect["raises"]
    with pytest.raises(tuple(getattr(md.errors, name) for name in allowed)) as caught:
        evaluate(expect["call"])
    text = str(caught.value).lower()
    assert all(word.lower() in text for word in expect.get("says", ())), text
    assert not any(word.lower() in text for word in expect.get("says_not", ())), text


def compare(result: Any, expect: Mapping[str, Any]) -> None:
    if "rows" in expect:
        assert len(result) == expect["rows"], result
    for columns, rows in expect.get("table", {}).items():
        wanted = columns.split()
        got = [[plain(row[name]) for name in wanted] for row in result.to_dict("records")]
        assert is_same(sorted(got, key=repr), sorted(map(plain, rows), key=repr)), f"{columns}: {got}"
    if "first" in expect or "last" in expect:
        order = [name for name in ("ts", "token_id") if name in result]
        rows = (result.sort_values(order) if order else result).to_dict("records")
        for name, at in (("first", 0), ("last", -1)):
            for field, value in expect.get(name, {}).items():
                assert is_same(plain(rows[at][field]), plain(value)), (field, rows[at][field])
    for field, value in expect.get("values", {}).items():
        assert is_same(plain(result.get(field)), plain(value)), (field, result.get(field))
    if "value" in expect:
        assert is_same(plain(result), plain(expect["value"])), result


def plain(value: Any) -> Any:
    """A value as JSON has it: times as ISO texts, missing ones as None, numbers as fractions."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, datetime):
        return None if pd.isna(value) else to_text(round(value.timestamp() * SECOND))
    if isinstance(value, Iterable):
        return [plain(inner) for inner in value]
    return None if pd.isna(value) else float(value)


def is_same(got: Any, expected: Any) -> bool:
    """Whether two values are equal, numbers up to a rounding."""
    if isinstance(got, float) and isinstance(expected, float):
        return math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(got, list) and isinstance(expected, list):
        return len(got) == len(expected) and all(map(is_same, got, expected))
    if isinstance(got, dict) and isinstance(expected, dict):
        return all(name in got and is_same(got[name], value) for name, value in expected.items())
    return got in (None, []) if expected is None else bool(got == expected)
