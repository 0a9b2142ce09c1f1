"""A stub of Polymarket's three public hosts, with every trap that is known of them, each of which a test can switch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reference.faults import Act, Ask, ok
from reference.venues import VenueStub, listed, page, refused

from marketdata.times import DAY, MINUTE, SECOND, parse_iso, to_text

HOSTS = ("gamma-api.polymarket.com", "data-api.polymarket.com", "clob.polymarket.com")
START = parse_iso("2026-01-05T00:00:00Z")
LONGEST = 1_296_000  # seconds of one answer
MISSING_EVERY = 11  # one minute in so many has no point
KEPT = ((60, 7), (300, 60), (1800, 90))  # days that steps [s] are kept
TAGS = {"weather": "1", "rain": "2", "wind": "3"}
ORDERS = ("volumeNum", "liquidityNum", "volume24hr", "startDate", "endDate", "closedTime")
STATES = ("live", "yes", "no", "proposed", "void", "disputed")


def tags_of(event: int) -> list[str]:
    """The tags of an event, by its number."""
    return ["weather", *["rain"] * (event % 2), *["wind"] * (event % 3 == 0)]


@dataclass(frozen=True)
class Traps:
    """Where the venue does what a stranger does not expect."""

    lists_as_text: bool = True
    numbers_as_text: bool = True
    omits_nulls: bool = True
    sticky_cursor: bool = True  # a page that ends the rows still has a cursor
    point_at_now: bool = True
    settlement_point: bool = True
    sparse_when_expired: bool = True  # else empty
    shifted_by: int = 6  # seconds past the minute of a CLOB point
    has_both_ids: bool = True  # legs of combos have positionIds after clobTokenIds (recorded 2026-09-14)


@dataclass(frozen=True)
class Market:
    """One market of the stub; ``state`` is one of `STATES`."""

    k: int
    days: float

    @property
    def state(self) -> str:
        return STATES[self.k % len(STATES)]

    @property
    def slug(self) -> str:
        return f"will-it-rain-{self.k}"

    @property
    def condition(self) -> str:
        return "0xa" + f"{self.k + 1:x}".rjust(61, "0") + ("00" if self.is_v2 else "ff")

    @property
    def is_v2(self) -> bool:
        """Whether Gamma has 62 digits of its condition (documented), and ``positionIds`` alone."""
        return self.k % 5 == 2

    @property
    def tokens(self) -> tuple[str, str]:
        return str(7 * 10**76 + 2 * self.k), str(7 * 10**76 + 2 * self.k + 1)

    @property
    def opened(self) -> int:
        return START + self.k % 5 * 7 * MINUTE

    @property
    def closed(self) -> int | None:
        return self.opened + int(self.days * DAY) if self.state in ("yes", "no", "void", "disputed") else None

    @property
    def payoffs(self) -> list[float] | None:
        return {"yes": [1.0, 0.0], "no": [0.0, 1.0], "void": [0.5, 0.5]}.get(self.state)

    def price(self, token: int, minute: int) -> float:
        """The midpoint of a minute since the epoch."""
        yes = (minute * 7 + self.k * 13) % 89 + 5
        return (100 - yes if token else yes) / 100

    def minutes(self, start: int, end: int) -> range:
        """The first to the last minute of a part of its life [microseconds]."""
        last = end if self.closed is None else min(end, self.closed)
        return range(-(-max(start, self.opened) // MINUTE), -(-last // MINUTE))


@dataclass
class PolymarketStub(VenueStub):
    """``count`` markets that lived ``days``; events have three of them, series two events."""

    venue, hosts = "polymarket", HOSTS
    count: int = 6
    days: float = 2.0
    traps: Traps = field(default_factory=Traps)
    largest_page: int = 100  # of records; ten times as many trades, a hundred times as many points

    def __post_init__(self) -> None:
        self.markets = [Market(k, self.days) for k in range(self.count)]
        self.by_token = {token: (m, i) for m in self.markets for i, token in enumerate(m.tokens)}
        self.by_condition = {m.condition: m for m in self.markets}

    # What is true, for plain loops

    def minute_prices(self, market: Market, token: int, start: int, end: int) -> list[tuple[int, float]]:
        """Time [microseconds] and price of each minute that has a point."""
        minutes = market.minutes(start, min(end, self.now))
        return [(m * MINUTE, market.price(token, m)) for m in minutes if m % MISSING_EVERY]

    def prints(self, market: Market) -> list[dict[str, Any]]:
        """All trades, oldest first; one transaction has several fills, of which two are equal."""
        minutes = market.minutes(market.opened, self.now)[::37]
        rows = []
        for n, minute in enumerate(minutes):
            for fill in range(1 + 2 * (n % 2)):
                token = min(fill, 1)
                rows.append({
                    "proxy_wallet": "0x1", "side": "BUY" if n % 3 else "SELL", "token_id": market.tokens[token],
                    "condition_id": market.condition, "size": 5.5 + n % 7, "price": market.price(token, minute),
                    "timestamp": minute * 60 + 5, "slug": market.slug, "outcome": ["Yes", "No"][token],
                    "outcome_index": token, "transaction_hash": f"0x{n:x}",
                })  # fmt: skip
        return rows

    def levels(
        self, market: Market, token: int, at: int
    ) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Bids and asks at a time, best first; some sides are empty."""
        minute = at // MINUTE
        cents = round(market.price(token, minute) * 100)
        bids = [((cents - 1 - n) / 100, 10.0 + n) for n in range(minute % 4) if cents - 1 - n > 0]
        asks = [((cents + 1 + n) / 100, 20.0 + n) for n in range((minute + token) % 3) if cents + 1 + n < 100]
        return bids, asks

    # Answers

    def answer(self, ask: Ask) -> Act:
        parts = ask.path.strip("/").split("/")
        match parts:
            case ["markets", "keyset"] | ["markets"]:
                return self.listing(ask, "markets")
            case ["markets", "slug", slug]:
                return self.one(lambda m: m.slug == slug)
            case ["markets", name] if name.startswith("0x"):
                return self.clob_market(name)
            case ["markets", number]:
                return self.one(lambda m: str(1000 + m.k) == number)
            case ["events", "keyset"]:
                return self.listing(ask, "events")
            case ["events", "slug", name] | ["events", name]:
                known = {key: e for e in map(self.event, range(-(-self.count // 3))) for key in (e["id"], e["slug"])}
                return ok(known[name]) if name in known else refused(404, {"error": "event not found"})
            case ["series"]:
                return ok(self.by_offset(self.series(), ask.params, 50))
            case ["tags"]:
                return ok(self.by_offset([self.tag(slug) for slug in TAGS], ask.params, 100))
            case ["tags", "slug", slug]:
                return ok(self.tag(slug)) if slug in TAGS else refused(404, {"error": "tag not found"})
            case ["public-search"]:
                return self.search(ask.params)
            case ["v2", "prices-history"]:
                return self.history_v2(ask.params)
            case ["v2", "trades"]:
                return self.trades(ask.params)
            case ["v2", "resolutions"]:
                names = listed(ask.params.get("condition", ""))
                if any(len(name) != 66 for name in names):  # recorded 2026-10-05
                    words = "condition must be a 32-byte hex string"
                    return refused(400, {"error": words, "code": "invalid_request", "parameter": "condition"})
                return ok(
                    {"data": [self.resolution(self.by_condition[name]) for name in names if name in self.by_condition]}
                )
            case ["prices-history"]:
                return self.history_clob(ask.params)
            case ["batch-prices-history"]:
                return self.batch_clob(json.loads(ask.body))
            case ["books"]:
                return self.books(json.loads(ask.body))
        return refused(404, {"error": "not found"})

    def record(self, market: Market) -> dict[str, Any]:
        text = json.dumps if self.traps.lists_as_text else list
        is_over = market.closed is not None and market.closed <= self.now
        prices = market.payoffs if is_over and market.payoffs else [0.5, 0.5]
        state = {"live": None, "proposed": "proposed", "disputed": "disputed"}.get(market.state, "resolved")
        volume = 1000.5 + market.k
        row = {
            "id": str(1000 + market.k), "question": f"Will it rain on day {market.k}?", "slug": market.slug,
            "conditionId": market.condition[: 64 if market.is_v2 else 66],
            "startDate": to_text(market.opened), "active": True, "closed": is_over,
            "endDate": to_text(market.opened + DAY // 2),  # a deadline, not the end
            "resolutionSource": "https://forecast.weather.gov/rain",
            "closedTime": to_text(market.closed)[:19].replace("T", " ") + "+00" if is_over else None,
            "outcomes": text(["Yes", "No"]), "outcomePrices": text([f"{price:g}" for price in prices]),
            "volume": str(volume) if self.traps.numbers_as_text else volume, "liquidityNum": 100.0 * market.k,
            "volumeNum": volume, "volume24hr": float(market.k * 37 % 101) if not is_over else 0.0,
            "events": [
                {"id": str(market.k // 3), "slug": f"weather-{market.k // 3}", "seriesSlug": f"rain-{market.k // 6}"}
            ],
            "feesEnabled": True, "feeSchedule": {"exponent": 1, "rate": 0.05, "takerOnly": True},
        }  # fmt: skip
        state = state if is_over or market.state == "proposed" else None
        if market.is_v2:
            v2 = {"resolved": "resolved", None: "active"}.get(state, "active")
            row |= {"version": "v2", "positionIds": [*market.tokens], "resolutionStatus": v2}
        else:
            row |= {"version": "v1", "clobTokenIds": text([*market.tokens]), "umaResolutionStatus": state}
            if self.traps.has_both_ids and market.k % 2:
                row["positionIds"] = [str(6 * 10**76 + 2 * market.k + i) for i in range(2)]
        return {name: value for name, value in row.items() if value is not None or not self.traps.omits_nulls}

    def event(self, number: int) -> dict[str, Any]:
        members = [self.record(m) for m in self.markets if m.k // 3 == number]
        topics = [self.tag(slug) for slug in tags_of(number)]
        head = {"id": str(number), "slug": f"weather-{number}", "title": f"Weather {number}", "tags": topics}
        is_over = all(member["closed"] for member in members)
        return head | {
            "closed": is_over,
            "series": [{"id": str(number // 2), "slug": f"rain-{number // 2}"}],
            "markets": members,
        }

    def by_offset(self, rows: list[Any], params: dict[str, str], most: int) -> list[Any]:
        """A page by limit and offset, of at most so many rows."""
        limit = min(int(params.get("limit", most)), most, self.largest_page)
        return rows[int(params.get("offset", 0)) :][:limit]

    def tag(self, slug: str) -> dict[str, Any]:
        return {"id": TAGS[slug], "label": slug.title(), "slug": slug}

    def series(self) -> list[dict[str, Any]]:
        return [{"id": str(n), "slug": f"rain-{n}", "title": "Rain"} for n in range(-(-self.count // 6))]

    def listing(self, ask: Ask, kind: str) -> Act:
        params = parse_qs(urlsplit(ask.target).query)
        rows = (
            [*map(self.record, self.markets)] if kind == "markets" else [*map(self.event, range(-(-self.count // 3)))]
        )
        wanted = params.get("closed", ["false"] if kind == "markets" else [None])[0]
        rows = [row for row in rows if wanted is None or row["closed"] == (wanted == "true")]
        filters = {"id": "id", "slug": "slug", "condition_ids": "conditionId"}
        for name, column in filters.items():
            rows = [row for row in rows if name not in params or row.get(column) in params[name]]
        if "series_id" in params and kind == "events":
            rows = [row for row in rows if row["series"][0]["id"] in params["series_id"]]
        for name in ("clob_token_ids", "position_ids"):
            rows = [row for row in rows if name not in params or any(t in json.dumps(row) for t in params[name])]
        for name, column in (("start_date", "startDate"), ("end_date", "endDate")):
            first, last = (params.get(f"{name}_{end}") for end in ("min", "max"))
            rows = [row for row in rows if first is None or parse_iso(row[column]) >= parse_iso(first[0])]
            rows = [row for row in rows if last is None or parse_iso(row[column]) <= parse_iso(last[0])]
        for order in params.get("order", ()):
            if order not in ORDERS or kind == "events":
                return refused(422, {"type": "validation error", "error": "order fields are not valid"})
            rows = sorted(
                rows,
                key=lambda row, order=order: str(row[order]) if order.endswith(("Date", "Time")) else float(row[order]),
            )
            rows = rows if params.get("ascending") == ["true"] else rows[::-1]
        if {"closed_time_min", "closed_time_max"} & params.keys():
            return refused(500, {"error": "internal"})
        if params.get("include_tag") == ["true"] and kind == "markets":
            of = [tags_of(self.number_of(kind, row)) for row in rows]
            rows = [{"tags": [self.tag(slug) for slug in slugs], **row} for row, slugs in zip(rows, of, strict=True)]
        # Parameters of the other listing, and those by the slug of a tag of markets, are ignored.
        if kind == "markets" and "liquidity_num_min" in params:
            rows = [row for row in rows if row["liquidityNum"] >= float(params["liquidity_num_min"][0])]
        if "tag_id" in params:
            is_all = kind == "markets" and params.get("tag_match") == ["all"]
            of_row = [{TAGS[slug] for slug in tags_of(self.number_of(kind, row))} for row in rows]
            wanted = {*params["tag_id"]}
            pairs = zip(rows, of_row, strict=True)
            rows = [row for row, tags in pairs if (wanted <= tags if is_all else wanted & tags)]
        if params.get("include_markets") == ["false"]:
            rows = [{name: value for name, value in row.items() if name != "markets"} for row in rows]
        if ask.path.endswith("/keyset"):
            flat = {name: values[0] for name, values in params.items()}
            some, cursor = page(rows, flat, self.largest_page, "after_cursor", sticky=self.traps.sticky_cursor)
            return ok({"$schema": "x", kind: some, **({"next_cursor": cursor} if cursor else {})})
        offset = int(params.get("offset", ["0"])[0])
        if offset > 2000:
            words = "offset too large, use /markets/keyset for deeper pagination"
            return refused(422, {"type": "validation error", "error": words})
        return ok(rows[offset:][: min(int(params.get("limit", ["20"])[0]), self.largest_page)])

    def number_of(self, kind: str, row: dict[str, Any]) -> int:
        """The number of the event of a row."""
        if kind == "events":
            return int(row["id"])
        number = re.search(r"\d+$", str(row.get("slug")))
        return int(number[0]) // 3 if number else 0  # an odd record may have no slug

    def one(self, is_it: Any) -> Act:
        found = next((self.record(m) for m in self.markets if is_it(m)), None)
        return ok(found) if found else refused(404, {"type": "not found error", "error": "id not found"})

    def clob_market(self, condition: str) -> Act:
        if (market := self.by_condition.get(condition)) is None:
            return refused(404, {"error": "market not found"})
        is_over, paid = market.closed is not None and market.closed <= self.now, market.payoffs or [0.0, 0.0]
        tokens = [{"token_id": t, "outcome": label, "price": paid[i], "winner": bool(is_over and paid[i] == 1)}
                  for i, (t, label) in enumerate(zip(market.tokens, ("Yes", "No"), strict=True))]  # fmt: skip
        return ok({"condition_id": condition, "question": "?", "closed": is_over, "tokens": tokens})

    def search(self, params: dict[str, str]) -> Act:
        if not params.get("q"):
            return refused(422, {"type": "validation error", "error": "q is required"})
        events = [
            e for e in map(self.event, range(-(-self.count // 3))) if params["q"].lower() in json.dumps(e).lower()
        ]
        limit, number = min(int(params.get("limit_per_type", 10)), self.largest_page), int(params.get("page", 1))
        some = events[(number - 1) * limit : number * limit]
        more = {"hasMore": number * limit < len(events), "totalResults": len(events)}
        return ok({"pagination": more, **({"events": some} if some else {})})

    def resolution(self, market: Market) -> dict[str, Any]:
        is_over = market.closed is not None and market.closed <= self.now and market.payoffs is not None
        out = {"condition_id": market.condition, "status": "resolved" if is_over else "proposed", "price": "69"}
        if is_over:
            out |= {
                "payouts": [int(paid * 1_000_000) for paid in market.payoffs or ()],
                "resolved_at": to_text(market.closed or 0),
            }
        return out

    def history_v2(self, params: dict[str, str]) -> Act:
        def bad(name: str, words: str) -> Act:
            return refused(400, {"error": words, "code": "invalid_request", "retryable": False, "parameter": name})

        if params.get("token_id") not in self.by_token:
            return bad("token_id", "token_id is required")
        market, token = self.by_token[params["token_id"]]
        start, end, step = (
            int(params["start"]),
            int(params.get("end", self.now // SECOND)),
            int(params["bucket_seconds"]),
        )
        if not start < end <= start + LONGEST:
            return bad("start", "the window is empty or longer than 1296000 seconds")
        if not 60 <= step <= 86400:
            return bad("bucket_seconds", "bucket_seconds must be 60 to 86400")
        days = next((days for longest, days in KEPT if step <= longest), None)
        oldest = 0 if days is None else (self.now - days * DAY) // SECOND
        known = dict(self.minute_prices(market, token, start * SECOND, end * SECOND))
        points = []
        for t in range(-(-start // step) * step, end, step):
            inside = [known[m * SECOND] for m in range(t, min(t + step, end), 60) if m * SECOND in known]
            is_kept = t >= oldest or (self.traps.sparse_when_expired and t % 43200 == 0)
            if inside and is_kept:
                points.append({"timestamp": t, "price": inside[-1], "resolution_seconds": step})
        if self.traps.point_at_now and market.closed is None and end * SECOND > self.now:
            points.append({"timestamp": self.now // SECOND, "price": 0.99, "resolution_seconds": step})
        if self.traps.settlement_point and market.payoffs and points and (market.closed or 0) <= self.now:
            last = min(points[-1]["timestamp"] + step, end - 1)
            points.append({"timestamp": last, "price": market.payoffs[token], "resolution_seconds": 0})
        some, cursor = page(points, params, 100 * self.largest_page, "cursor", sticky=False)
        return ok(
            {"data": some, "pagination": {"limit": 10_000, "has_more": bool(cursor), "next_cursor": cursor or None}}
        )

    def clob_points(self, token_id: str, start: int, end: int, fidelity: int) -> list[dict[str, Any]]:
        if token_id not in self.by_token:
            return []
        market, token = self.by_token[token_id]
        shift = self.traps.shifted_by
        points = [
            {"t": ts // SECOND + shift, "p": price}
            for ts, price in self.minute_prices(market, token, start * SECOND, end * SECOND)
            if ts // MINUTE % fidelity == 0
        ]
        if self.traps.point_at_now and market.closed is None:
            points.append({"t": self.now // SECOND, "p": 0.99})
        return points

    def history_clob(self, params: dict[str, str]) -> Act:
        start, end = int(params["startTs"]), int(params["endTs"])
        if end - start > LONGEST:
            return refused(400, {"error": "invalid filters: 'startTs' and 'endTs' interval is too long"})
        return ok({"history": self.clob_points(params["market"], start, end, int(params.get("fidelity", 1)))})

    def batch_clob(self, body: dict[str, Any]) -> Act:
        if body["end_ts"] - body["start_ts"] > LONGEST or len(body["markets"]) > 20:
            return refused(400, {"error": "invalid filters"})
        window = body["start_ts"], body["end_ts"], body.get("fidelity", 1)
        return ok({"history": {token: self.clob_points(token, *window) for token in body["markets"]}})

    def trades(self, params: dict[str, str]) -> Act:
        if "offset" in params:
            return refused(400, {"error": "offset is not supported", "code": "invalid_request"})
        rows = [row for name in listed(params["condition"]) for row in self.prints(self.by_condition[name])]
        rows.sort(key=lambda row: -row["timestamp"])
        some, cursor = page(rows, params, 10 * self.largest_page, "cursor", sticky=False)
        return ok({"data": some, "pagination": {"has_more": bool(cursor), "next_cursor": cursor or None}})

    def books(self, wanted: list[dict[str, str]]) -> Act:
        if len(wanted) > 500:
            return refused(400, {"error": "too many tokens"})
        out = []
        for token_id in (one["token_id"] for one in wanted):
            market, token = self.by_token.get(token_id, (None, 0))
            if market is None or (market.closed is not None and market.closed <= self.now):
                continue  # a closed market has no book
            bids, asks = self.levels(market, token, self.now)
            sides = [
                [{"price": f"{p:g}", "size": f"{s:g}"} for p, s in side[::-1]] for side in (bids, asks)
            ]  # best last
            out.append({"market": market.condition, "asset_id": token_id, "timestamp": str(self.now // 1000),
                        "hash": "ff", "bids": sides[0], "asks": sides[1], "tick_size": "0.01"})  # fmt: skip
        return ok(out)
