"""What pairs of markets are worth: spreads net of fees and depth, and which venue moves first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import as_kind_of, in_memory, read
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.adapters.polars import typed
from marketdata.adapters.widths import width_of
from marketdata.display import html_table
from marketdata.errors import ConfigError, PairWarning, warn
from marketdata.points.arguments import number
from marketdata.points.columns import Books, Floats, Ints, Series, Side
from marketdata.points.fees import Charge, Schedule, schedule
from marketdata.points.grids import RowWidth
from marketdata.points.intervals import LEAST, Sampling
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.regression import fit
from marketdata.points.schema import TOLERANCE, require
from marketdata.resolution import Width
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.returns import probability_of
from marketdata.tidy.venue_records import rows_of
from marketdata.times import SECOND, Duration, to_duration

_NEEDED = ("market_a", "market_b", "token_a", "token_b", "verdict")
_VALUES = ("bid_a", "ask_a", "bid_b", "ask_b", "age_a", "age_b", "shares", "fees_buy_a", "fees_buy_b", "buy_a", "buy_b",
           "locked")  # fmt: skip


class _Pair(NamedTuple):
    """A pair whose tokens are known: what the first token of a pays, that token of b pays."""

    market_a: str
    market_b: str
    token_a: str
    token_b: str
    verdict: str
    event: str


class _Leg(NamedTuple):
    """The books of one token of a pair, and fees by their places."""

    books: Books
    charge: Charge


def pair_spread(
    pairs: Any,
    books: Any,
    width: Width | None = None,
    *,
    fees: Any,
    size: float | None = None,
    max_age: Duration | None = None,
) -> Any:
    """What one could lock in by buying a token at one venue and selling the token that pays alike at the other.

    Selling is buying the other outcome: a bid of ``p`` for Yes is an offer of No at ``1 - p``. So both legs are bought,
    one of them pays 1, and the rest is the gain. It is null where a side is missing or is not observed at that time.

    Parameters
    ----------
    pairs : frame
        As `pairs` gives them. Pairs whose orientation is not known are left out, with a warning. Those that differ have
        no gain, because they can pay both or nothing. Those that are ``unknown`` have one, with a warning: it is a gain
        only if both contracts pay alike.
    books : frame, or pair of frames
        Books, or best prices as of `bbo`, of both venues, of one width. If a frame lacks a token of a binary market,
        the mirror of its other token stands for it.
    fees : Fees, 0 or function, or a pair of these
        Fees of both venues, or of each. What differs by market or day is taken of that market and day.
    size : float, optional
        Shares to buy at each venue, at the prices of the levels that they take; null where the levels lack them. By
        default as many as the best prices of both have.
    max_age : duration, optional
        How old the book of either side may be, such as "5m". By default both are of the same bucket.
    width : resolution, optional
        Bucket width of the rows, by default the one that the frame carries.

    Returns
    -------
    frame
        One row per pair and bucket in which either side has a row, of the kind of ``books``.

        - ``ts``: start of the bucket [UTC]; a row is known at its end, as in `available_at`.
        - ``market_a market_b token_a token_b verdict``.
        - ``bid_a ask_a bid_b ask_b``: of tokens that pay alike, mean over ``size`` if that is given [probability].
        - ``age_a``, ``age_b``: how old the book of a side is [s]; null where none is young enough.
        - ``shares``: how many the gain is for.
        - ``fees_buy_a``, ``fees_buy_b``: fees of both legs [USD per share].
        - ``buy_a``: gain of buying a and selling b, after fees [USD per share].
        - ``buy_b``: gain of buying b and selling a.
        - ``locked``: the greater one, null for pairs that differ. Below 0 there is nothing to lock in.

    Raises
    ------
    ConfigError
        Two frames have different widths: bring the finer one to the coarser with `resample`.

    Warns
    -----
    PairWarning
        Pairs differ, are not known to be the same, or have no orientation.

    Examples
    --------
    >>> records = pl.DataFrame({
    ...     "market_id": ["rain", "snow"], "question": ["Rain?", "Snow?"],
    ...     "token_ids": [["11", "12"], ["21", "22"]], "token_labels": [["Yes", "No"], ["Yes", "No"]],
    ... })
    >>> table = [{"market_a": "rain", "market_b": "snow", "orientation": "same", "confirmed": True}]
    >>> found = md.pairs(table, records)
    >>> books = md.testing.books("polars", markets=2, buckets=1)
    >>> md.pair_spread(found, books, fees=0).select("ask_a", "bid_b", pl.col("buy_a").round(4)).rows()
    [(0.41, 0.49, 0.08)]
    """
    venues = _two(books)
    charges = [schedule(one) for one in (fees if isinstance(fees, tuple | list) else (fees, fees))]
    wanted = None if size is None else number("size", size)
    age = 0 if max_age is None else to_duration(max_age, "max_age")
    tables, widths = [], []
    for part in venues:
        frame = read(part)
        widths.append(width_of(frame, width, what="books"))
        table = in_memory(frame, TOP_KINDS)
        _, snapshots = frames.sorted_books(_observed(table))
        widths[-1].check(snapshots.ts)
        tables.append(snapshots)
    _refuse_widths(widths)
    chosen = _pairs_of(pairs)
    rows = [_spread(pair, *_legs(pair, tables, charges), wanted, age) for pair in chosen]
    count = sum(len(ts) for ts, _ in rows)
    columns: dict[str, Column] = {"ts": frames.times(np.concatenate([np.zeros(0, np.int64), *(ts for ts, _ in rows)]))}
    repeats = [len(ts) for ts, _ in rows]
    for name in _NEEDED:
        texts = [text for pair, times in zip(chosen, repeats, strict=True) for text in [getattr(pair, name)] * times]
        columns[name] = typed("text", texts) if name == "verdict" else Texts.of(texts)
    for name in _VALUES:
        columns[name] = np.concatenate([np.zeros(0), *(values[name] for _, values in rows)])
    return as_kind_of(venues[0], columns, count)


def _two(given: Any) -> Sequence[Native]:
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise ConfigError(
                f"has {len(given)} frames; allowed are one frame, or one of each venue.",
                argument="books",
                value=len(given),
            )
        return given
    return (given,)


def _observed(table: Frame) -> Frame:
    """The rows that are no carried forward ones: those prove nothing about what could be bought."""
    return table.take(np.flatnonzero(table.observed()))


def _refuse_widths(widths: Sequence[RowWidth]) -> None:
    different = {str(one.width): one.width.micros for one in widths}
    if len(different) > 1:
        coarsest = max(different, key=lambda text: different[text])
        raise ConfigError(
            f"The frames have buckets of {' and '.join(different)}, so their rows are not of the same times.",
            hint=f"Bring the finer one to the coarser: md.resample(frame, {coarsest!r}).",
        )


def _pairs_of(given: Any) -> list[_Pair]:
    """The pairs whose tokens are known; PairWarning about those that prove nothing."""
    rows = rows_of(given)
    for row in rows[:1]:
        require("A frame of pairs, as md.pairs gives them,", ("market_a", "market_b", "verdict"), row)
    known = [row for row in rows if row.get("token_a") is not None and row.get("token_b") is not None]
    out = [
        _Pair(**{name: str(row[name]) for name in _NEEDED}, event=str(row.get("event_slug", row["market_a"])))
        for row in known
    ]
    for verdict, what in (
        ("differs", "differ, so that nothing can be locked in"),
        ("unknown", "are not known to be the same contract"),
    ):
        if many := [pair for pair in out if pair.verdict == verdict]:
            warn(
                f"{len(many)} of {len(rows)} pairs {what}, such as {many[0].market_a!r} and {many[0].market_b!r}.",
                PairWarning,
                hint="Read the columns differs, unknown and why of md.pairs.",
            )
    if len(known) < len(rows):
        warn(
            f"{len(rows) - len(known)} of {len(rows)} pairs are left out: which tokens pay alike is not known.",
            PairWarning,
            hint='State their orientation, "same" or "inverted", in the table of md.pairs.',
        )
    return out


def _legs(pair: _Pair, tables: Sequence[Books], charges: Sequence[Schedule]) -> tuple[_Leg, _Leg]:
    sides = (
        (pair.market_a, pair.token_a, tables[0], charges[0]),
        (pair.market_b, pair.token_b, tables[-1], charges[1]),
    )
    legs = []
    for market, token, books, fees in sides:
        part = _of_token(books, market, token)
        legs.append(_Leg(part, fees.of_market(market).charge_for(part)))
    return legs[0], legs[1]


def _of_token(books: Books, market: str, token: str) -> Books:
    """The books of a token; of a binary market also the mirrored books of its other token."""
    of_market = [i for i, one in enumerate(books.tokens) if one.market_id == market]
    own = [i for i in of_market if books.tokens[i].token_id == token]
    if own:
        return books.part(own[0], own[0] + 1)
    if len(of_market) == 1:
        return _mirrored(books.part(of_market[0], of_market[0] + 1))
    return books.part(0, 0)


def _mirrored(books: Books) -> Books:
    """The books of the other outcome: a bid of p is an ask of 1 - p."""
    bids, asks = (replace(side, price=1 - side.price) for side in (books.asks, books.bids))
    return replace(books, bids=bids, asks=asks)


def _spread(pair: _Pair, a: _Leg, b: _Leg, size: float | None, age: int) -> tuple[Ints, Mapping[str, Floats]]:
    """The times of a pair, and its values."""
    ts = np.union1d(a.books.ts, b.books.ts)
    at = [_place(leg.books.ts, ts, age) for leg in (a, b)]
    values: dict[str, Floats] = {}
    asks, offers = [], []
    for name, leg, place in zip("ab", (a, b), at, strict=True):
        seen = place >= 0
        values[f"age_{name}"] = np.where(seen, (ts - np.append(leg.books.ts, 0)[place]) / SECOND, np.nan)
        buy = _cost(leg, leg.books.asks, place, size)
        # Buying the other outcome, whose asks are 1 minus these bids.
        sell = _cost(leg, replace(leg.books.bids, price=1 - leg.books.bids.price), place, size)
        values[f"ask_{name}"], values[f"bid_{name}"] = buy.price, 1 - sell.price
        asks.append(buy)
        offers.append(sell)
    for name, buy, sell in (("a", asks[0], offers[1]), ("b", asks[1], offers[0])):
        shares = np.full(len(ts), size) if size is not None else np.fmin(buy.shares, sell.shares)
        per_share = [leg.fee(shares) for leg in (buy, sell)]
        values[f"fees_buy_{name}"] = per_share[0] + per_share[1]
        values[f"buy_{name}"] = 1 - buy.price - sell.price - values[f"fees_buy_{name}"]
        values[f"_shares_{name}"] = np.where(np.isnan(buy.price + sell.price), np.nan, shares)
    is_b = np.nan_to_num(values["buy_b"], nan=-np.inf) > np.nan_to_num(values["buy_a"], nan=-np.inf)
    best = np.where(is_b, values["buy_b"], values["buy_a"])
    values["shares"] = np.where(is_b, values.pop("_shares_b"), values.pop("_shares_a"))
    values["locked"] = np.full(len(ts), np.nan) if pair.verdict == "differs" else best
    return ts, values


def _place(known: Ints, ts: Ints, age: int) -> Ints:
    """The last book at or before each time that is not older than ``age``; -1 for none."""
    place = np.searchsorted(known, ts, side="right") - 1
    return np.where((place >= 0) & (ts - np.append(known, 0)[place] <= age), place, -1)


class _Cost(NamedTuple):
    """Buying on one side: the mean price, the shares that are there at it, and the fee of each share of an order."""

    price: Floats
    shares: Floats
    charge: Charge
    place: Ints
    paid: Floats | None = None

    def fee(self, shares: Floats) -> Floats:
        """Fees of an order of so many shares at each time [USD per share]."""
        if self.paid is not None:
            return self.paid
        out = np.full(len(self.place), np.nan)
        good = np.flatnonzero((self.place >= 0) & ~np.isnan(self.price))
        many = np.where(np.isnan(shares[good]) | (shares[good] <= 0), 1.0, shares[good])
        levels = self.charge(self.price[good], many, self.place[good])
        out[good] = self.charge.orders(levels, self.place[good]) / many
        return out


def _cost(leg: _Leg, side: Side, place: Ints, size: float | None) -> _Cost:
    seen = place >= 0
    price, shares = np.full((2, len(place)), np.nan)
    if size is None:
        price[seen], shares[seen] = side.best[place[seen]], side.best_size[place[seen]]
        return _Cost(price, shares, leg.charge, place)
    filled = fill_orders(side, size, charge=leg.charge)
    whole = filled.available >= size * (1 - TOLERANCE)
    with np.errstate(divide="ignore", invalid="ignore"):
        means, fees = (np.where(whole, one / filled.shares, np.nan) for one in (filled.paid, filled.fees))
    price[seen], shares[seen] = means[place[seen]], size
    paid = np.full(len(place), np.nan)
    paid[seen] = fees[place[seen]]
    return _Cost(price, shares, leg.charge, place, paid)


@dataclass(frozen=True, eq=False, repr=False)
class LeadLag:
    """Which of two venues moves first, as `lead_lag` finds it.

    Attributes
    ----------
    lags
        One row per lag: ``lag`` [s], positive where a moves first, ``pairs clusters points``, ``correlation`` of the
        moves, and ``slope low high``, of the moves of b on those of a, with their interval.
    lag : float
        The lag of the greatest correlation [s].
    low, high : float
        Its interval over clusters [s]; NaN with fewer than five.
    """

    lags: Any
    lag: float
    low: float
    high: float

    def __repr__(self) -> str:
        first = "a moves first" if self.lag > 0 else "b moves first" if self.lag < 0 else "both move at once"
        within = "no interval" if np.isnan(self.low) else f"{self.low:g} to {self.high:g} s"
        return f"<LeadLag: {self.lag:g} s ({within}); {first}>"

    def _repr_html_(self) -> str:
        return html_table([("lead and lag", repr(self).strip("<>").partition(": ")[2])])


def lead_lag(
    pairs: Any,
    prices: Any,
    lags: Iterable[Duration],
    width: Width | None = None,
    *,
    interval: float | None = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> LeadLag:
    """Which of two venues moves first: moves of a compared with moves of b some time later, or earlier.

    A move is the difference of prices of neighbouring buckets; where a bucket is missing there is none. Pairs of one
    event share their luck, so intervals are over events: the column ``event_slug`` of ``pairs``, else each pair.

    Parameters
    ----------
    pairs : frame
        As `pairs` gives them; those that differ, or have no orientation, are left out with a warning.
    prices : frame, or pair of frames
        Prices, best prices or books of both venues, of one width.
    lags : list of duration
        Whole buckets, such as ``["-2m", "-1m", "0s", "1m", "2m"]``; positive where a moves first.
    interval, resamples, seed
        As in `cluster_mean`.
    width : resolution, optional
        Bucket width of the rows, by default the one that the frame carries.

    Returns
    -------
    LeadLag
        The table of lags, and the lag of the greatest correlation with its interval.

    Raises
    ------
    ConfigError
        The prices of one venue are coarser than those of the other: the finer ones would seem to lead. Bring both to
        the coarser width with `resample`.

    Examples
    --------
    >>> records = pl.DataFrame({
    ...     "market_id": ["rain", "snow"], "question": ["Rain?", "Snow?"],
    ...     "token_ids": [["11", "12"], ["21", "22"]], "token_labels": [["Yes", "No"], ["Yes", "No"]],
    ... })
    >>> table = [{"market_a": "rain", "market_b": "snow", "orientation": "same", "confirmed": True}]
    >>> prices = md.testing.prices("polars", markets=2, buckets=30)
    >>> md.lead_lag(md.pairs(table, records), prices, ["0s", "1m"]).lags["lag"].to_list()
    [0.0, 60.0]
    """
    venues = _two(prices)
    sampling = Sampling.of(interval, resamples, seed)
    series, widths = [], []
    for part in venues:
        frame = read(part)
        widths.append(width_of(frame, width, what="prices"))
        _, of_tokens, name = probability_of(in_memory(frame, ("prices", *TOP_KINDS, "series")))
        widths[-1].check(of_tokens.ts)
        series.append(Series(of_tokens.tokens, of_tokens.bounds, of_tokens.ts, {"price": of_tokens.values[name]}))
    _refuse_widths(widths)
    step = widths[0].width.micros
    steps = [_steps(one, step) for one in lags]
    chosen = [pair for pair in _pairs_of(pairs) if pair.verdict != "differs"]
    events = sorted({pair.event for pair in chosen})
    moves: list[list[tuple[Floats, Floats, Ints]]] = [[] for _ in steps]
    for pair in chosen:
        a, b = (
            _prices_of(one, market, token)
            for one, market, token in (
                (series[0], pair.market_a, pair.token_a),
                (series[-1], pair.market_b, pair.token_b),
            )
        )
        _refuse_coarser(pair, a[0], b[0])
        number_of_event = events.index(pair.event)
        for at, lag in enumerate(steps):
            x, y = _moves(a, b, lag * step, step)
            moves[at].append((x, y, np.full(len(x), number_of_event)))
    return _lead(venues[0], steps, step, moves, len(events), sampling)


def _steps(lag: Duration, step: int) -> int:
    text = str(lag).strip()
    sign = -1 if isinstance(lag, str) and text.startswith("-") else 1
    given: Duration = text.lstrip("+-") if isinstance(lag, str) else abs(lag)
    if not isinstance(lag, str) and lag < lag * 0:
        sign = -1
    micros = sign * to_duration(given, "lags", least="0s")
    if micros % step:
        raise ConfigError(f"is no whole number of buckets of {step / SECOND:g} s.", argument="lags", value=lag)
    return micros // step


def _prices_of(series: Series, market: str, token: str) -> tuple[Ints, Floats]:
    of_market = [i for i, one in enumerate(series.tokens) if one.market_id == market]
    own = [i for i in of_market if series.tokens[i].token_id == token]
    place = own or (of_market if len(of_market) == 1 else [])
    if not place:
        return np.zeros(0, np.int64), np.zeros(0)
    part = series.part(place[0], place[0] + 1)
    price = part.values["price"] if own else 1 - part.values["price"]
    known = ~np.isnan(price)
    return part.ts[known], price[known]


def _refuse_coarser(pair: _Pair, a: Ints, b: Ints) -> None:
    """ConfigError where most rows of one side are much further apart than those of the other."""
    if min(len(a), len(b)) < 3:
        return
    apart = [float(np.median(np.diff(ts))) / SECOND for ts in (a, b)]
    if max(apart) >= 2 * min(apart):
        raise ConfigError(
            f"The prices of {pair.market_a!r} are {apart[0]:g} s apart and those of {pair.market_b!r} {apart[1]:g} s: "
            "the finer ones would seem to move first.",
            hint="Bring both to the coarser width first, with md.resample.",
        )


def _moves(a: tuple[Ints, Floats], b: tuple[Ints, Floats], lag: int, step: int) -> tuple[Floats, Floats]:
    """The moves of a, and those of b a lag later, where both have neighbouring buckets."""
    (ts_a, of_a), (ts_b, of_b) = (_differences(*one, step) for one in (a, b))
    _, first, second = np.intersect1d(ts_a + lag, ts_b, assume_unique=True, return_indices=True)
    return of_a[first], of_b[second]


def _differences(ts: Ints, price: Floats, step: int) -> tuple[Ints, Floats]:
    beside = np.flatnonzero(np.diff(ts) == step)
    return ts[beside + 1], np.diff(price)[beside]


def _lead(
    like: Native,
    steps: Sequence[int],
    step: int,
    moves: Sequence[Sequence[tuple[Floats, Floats, Ints]]],
    events: int,
    sampling: Sampling | None,
) -> LeadLag:
    sums = np.zeros((len(steps), events, 3))
    columns: dict[str, list[float]] = {
        name: [] for name in ("pairs", "clusters", "points", "correlation", "slope", "low", "high")
    }
    for at, of_pairs in enumerate(moves):
        x, y, event = (np.concatenate([np.zeros(0), *(one[k] for one in of_pairs)]) for k in range(3))
        event = event.astype(np.int64)
        for k, product in enumerate((x * y, x * x, y * y)):
            sums[at, :, k] = np.bincount(event, product, minlength=events)
        found = fit(y, x[:, None], event[None], "identity", 0.95 if sampling is None else sampling.share)
        columns["pairs"].append(sum(bool(len(one[0])) for one in of_pairs))
        columns["clusters"].append(len(np.unique(event)))
        columns["points"].append(len(x))
        columns["correlation"].append(float(_correlation(sums[at].sum(axis=0))))
        columns["slope"].append(float(found.coefficients[0]))
        columns["low"].append(found.intervals[0].low)
        columns["high"].append(found.intervals[0].high)
    seconds = np.array(steps, float) * step / SECOND
    total = _correlation(sums.sum(axis=1))
    best = float(seconds[np.nanargmax(total)]) if len(total) and not np.isnan(total).all() else np.nan
    low = high = np.nan
    if sampling is None:
        del columns["low"], columns["high"]
    elif events >= LEAST and not np.isnan(best):
        drawn = np.random.default_rng(sampling.seed).multinomial(
            events, np.full(events, 1 / events), sampling.resamples
        )
        each = _correlation(np.einsum("re,lek->rlk", drawn.astype(float), sums))
        some = ~np.isnan(each).all(axis=1)
        tops = seconds[np.nanargmax(each[some], axis=1)]
        tail = (1 - sampling.share) / 2
        low, high = (float(np.quantile(tops, q, method="inverted_cdf")) for q in (tail, 1 - tail))
    whole = ("pairs", "clusters", "points")
    table = {name: np.array(values, np.int64 if name in whole else float) for name, values in columns.items()}
    return LeadLag(as_kind_of(like, {"lag": seconds, **table}, len(steps)), best, low, high)


def _correlation(sums: NDArray[np.float64]) -> Floats:
    """The correlation about 0 of moves, from the sums of their products and squares."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]))
