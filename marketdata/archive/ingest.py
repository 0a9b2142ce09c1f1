"""Adds to an archive: frames of any kind become base points with whole ids, records go into the catalog."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from marketdata.archive import query, records
from marketdata.archive.coverage.intervals import CoverageState
from marketdata.archive.market_ranges import hull_of, times_of
from marketdata.archive.record_columns import Record
from marketdata.archive.records import Catalog, rows_of
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ArchiveError, ConfigError, ContractError, NotTidyError, PartialCoverageWarning, warn
from marketdata.points.columns import Books, Data, Series, Token, Trades, missing
from marketdata.points.duplicates import repeated
from marketdata.points.order import ascending
from marketdata.points.prints import distinct
from marketdata.points.probability import NOT_0_1, outside_0_1
from marketdata.points.records import RecordKind
from marketdata.points.schema import LISTS, is_count
from marketdata.points.views import VIEWS, View, view_of
from marketdata.resolution import Resolution
from marketdata.times import SECOND, TOO_FAR, to_text
from marketdata.wire import records as market_records

_PRICES = {"price", "best_bid", "best_ask"}
_SIZES = {"size", "best_bid_size", "best_ask_size"}
_ADD_MARKET = "Add the market first: archive.add(markets=frame), with token_ids and token_labels."


def _records(kind: RecordKind, rows: list[Record]) -> list[Record]:
    """Rows as records; ConfigError for one that cannot be read."""
    if kind != "markets":
        return [records.read(kind, row) for row in rows]
    out = []
    for row in market_records.by_market(rows):
        try:
            out.append(records.read(kind, market_records.market(row)))
        except ContractError as problem:
            with suppress(TypeError, AttributeError):  # of values that it does not look at
                records.read(kind, row)  # whose error says what the row lacks
            raise ConfigError(f"a row of the markets frame cannot be read: {problem.problem}") from None
    return out


def add_records(store: ArchiveStore, markets: Any = None, events: Any = None, series: Any = None) -> None:
    """Store records; events and series that are not given are derived from the markets."""
    given: dict[RecordKind, Any] = {"markets": markets, "events": events, "series": series}
    new = {kind: _records(kind, rows_of(rows)) for kind, rows in given.items() if rows is not None}
    if new and store.given_base is not None:
        store.fix_base()
    catalog = store.catalog
    catalog["markets"].upsert(new.get("markets", ()))
    every = catalog["markets"].records() if "markets" in new else []
    for kind in ("events", "series"):
        if kind not in new and "markets" in new:
            new[kind] = records.derive(kind, new["markets"], every, catalog[kind].records())
        catalog[kind].upsert(new.get(kind, ()))


def add_points(
    store: ArchiveStore, view: View, data: Any, *, replace: bool = False, complete: bool = False, grid: int = 0
) -> tuple[Data, int]:
    """Add points of a view as `Archive.add` does; returns the points at the base, and how many are new.

    The points may be a part of more, whose times are all on a ``grid`` of this width [microseconds].
    """
    markets, base = store.catalog["markets"], store.base
    columns = identified(view, _columns(view, data, markets), markets)
    _check_values(view, columns)
    if isinstance(columns, Trades):
        return _add_prints(store, columns, replace=replace, complete=complete)
    columns = _distinct(view, columns)
    if (columns.ts % base.micros).any():
        from marketdata.points.resample import resample_columns

        columns = resample_columns(columns, base)
    if not len(columns):
        return columns, 0
    if complete:
        _check_tokens(view, columns, markets)
    state = CoverageState.FINAL if complete else CoverageState.RECORDED
    times = ascending(columns.ts)
    # The widest resolution on whose grid all times are; one or two may be there by chance.
    on_grid = np.array([grid]) if grid else times
    coarse = [r for r in Resolution if r.micros > base.micros and not (on_grid % r.micros).any()][-1:]
    if coarse and len(times) >= 3:
        _check_width(store, view, columns, coarse[0])
        if not complete and len(times) >= 12:  # fewer may be chance, or a choice of moments
            warn(
                f"The {view} rows have the grid of {coarse[0]}. They are kept as the {base} points of these moments, "
                "and their range as unverified, so that pull fetches the points between. If they are aggregates, "
                f"add the {base} points they were made of instead, or add these to a new archive, "
                f"Archive(folder, base='{coarse[0]}').",
                PartialCoverageWarning,
            )
            state = CoverageState.UNVERIFIED
    markets.upsert(seen_markets(columns, markets))
    return columns, store.upsert(view, columns, state, whole=replace)


def _add_prints(store: ArchiveStore, prints: Trades, *, replace: bool, complete: bool) -> tuple[Data, int]:
    """Add prints, each once. A token without a print is complete too: nobody traded it."""
    known = {name: v for name, v in prints.values.items() if name in VIEWS["trades"].names or not missing(v).all()}
    prints = distinct(dataclasses.replace(prints, values=known))
    if not len(prints):
        return prints, 0
    markets, state = store.catalog["markets"], CoverageState.FINAL if complete else CoverageState.RECORDED
    markets.upsert(seen_markets(prints, markets))
    return prints, store.upsert("trades", prints, state, whole=replace)


def _check_values(view: View, columns: Data) -> None:
    """NotTidyError for the first row whose time is too far, price is no probability, or size is negative."""
    far = np.flatnonzero(columns.ts >= TOO_FAR)
    if len(far):
        raise NotTidyError(
            f"A ts of the {view} rows is {columns.ts[far[0]] // SECOND} s after 1970, later than the year 5138; it "
            'is of another unit: give the datetime column the unit of its numbers, such as "ms".'
        )
    rows = np.arange(len(columns))
    if isinstance(columns, Books):
        price, size = columns.levels()
        rows = np.repeat(rows, columns.counts.reshape(-1, 2).sum(axis=1))
        if not (np.isfinite(price) & np.isfinite(size)).all():
            raise NotTidyError("A level of a book has a price or size that is infinite or NaN; each needs two numbers.")
        numbers = {"price": price, "size": size}
    else:
        names = (name for name in VIEWS[view].names if name != "side" and name in columns.values)
        numbers = {name: columns.values[name] for name in names}
    checks = [(name, outside_0_1(numbers[name]), NOT_0_1) for name in _PRICES.intersection(numbers)]
    checks += [(name, numbers[name] < 0, "below 0; sizes are shares.") for name in _SIZES.intersection(numbers)]
    if view == "trades":
        checks += [(name, np.isnan(v), "missing; a print has a price and a size.") for name, v in numbers.items()]
    if view == "quotes":
        for name in ("best_bid", "best_ask"):
            is_alone = np.isnan(numbers[name]) & (numbers[f"{name}_size"] > 0)
            checks.append((f"{name}_size", is_alone, f"beside a null {name}; a missing side has no size."))
    for name, is_wrong, problem in sorted(checks, key=lambda check: check[0]):
        if len(wrong := np.flatnonzero(is_wrong)):
            values = numbers[name]
            raise NotTidyError(
                f"A {name} of the {view} rows is {values[wrong[0]]:g} ({_row(columns, int(rows[wrong[0]]))}), {problem}"
                + (f" {len(wrong)} values are so." if len(wrong) > 1 else "")
            )


def _row(columns: Data, at: int) -> str:
    """A row as messages name it."""
    token = columns.token_at(at)
    return f"token {str(token.token_id or token.market_id)[:100]!r} at {to_text(int(columns.ts[at]))}"


def _check_tokens(view: View, columns: Data, markets: Catalog) -> None:
    """ArchiveError if complete rows lack a token of a market."""
    given: dict[str, set[str | None]] = {}
    for market_id, token_id, _ in columns.tokens if VIEWS[view].has_tokens else ():
        given.setdefault(market_id, set()).add(token_id)
    for market_id, ids in sorted(given.items()):
        record, market = markets.of_id(market_id), repr(market_id[:200])
        # If a market is unknown, several tokens are taken to be all of its tokens.
        if record is None and len(ids) == 1:
            problem = f"hold one token of market {market}, which the archive does not know. {_ADD_MARKET}"
            raise ArchiveError(f"complete=True, but the {view} rows {problem}")
        tokens = record.get("tokens", ()) if record else ()
        if lacking := [t["label"] for t in tokens if t.get("id") and t["id"] not in ids]:
            problem = f"of market {market} lack its tokens {lacking[:5]}. Add all tokens, or leave complete=True out."
            raise ArchiveError(f"complete=True, but the {view} rows {problem}")


def _check_width(store: ArchiveStore, view: View, columns: Data, width: Resolution) -> None:
    """ArchiveError if aggregated rows would replace the points they were made of."""
    ranges = {market: hull_of(times, store.base.micros) for market, times in times_of(columns).items()}
    stored = query.read(store.points[view], view, ranges)
    fine = np.flatnonzero(stored.ts % width.micros)
    if len(fine):
        market_id = stored.token_at(fine[0]).market_id
        raise ArchiveError(
            f"The {view} rows have the grid of {width}, while finer points of market {market_id[:200]!r} are stored in "
            f"{ranges[market_id]}, which they would replace. The archive holds {store.base} points and derives "
            "coarser ones: there is no need to add those."
        )


def _distinct(view: View, columns: Data) -> Data:
    """Sorted columns, where equal points of one token and time are one. An infinite value is missing, like NaN.

    A missing side of a quote has no size, also where a program writes 0.
    """
    if not isinstance(columns, Books) and any(np.isinf(v).any() for v in columns.values.values()):
        values = {k: np.where(np.isinf(v), np.nan, v) for k, v in columns.values.items()}
        columns = dataclasses.replace(columns, values=values)
    if view == "quotes" and not isinstance(columns, Books):
        sides = {f"{side}_size": columns.values[side] for side in ("best_bid", "best_ask")}
        sizes = {name: np.where(np.isnan(best), np.nan, columns.values[name]) for name, best in sides.items()}
        columns = dataclasses.replace(columns, values={**columns.values, **sizes})
    again, is_equal = repeated(columns)
    if not is_equal.all():
        first = int(again[~is_equal][0])
        raise NotTidyError(
            f"The {view} rows have different values for one token and time, such as {_row(columns, first)}. "
            "Leave one of them; equal rows are taken as one."
        )
    return columns.take(np.delete(np.arange(len(columns)), again)) if len(again) else columns


def _columns(view: View, data: Any, markets: Catalog) -> Data:
    if isinstance(data, Books | Series | Trades):
        if view_of(data) != view:
            raise ConfigError(f"{view}= takes {view}, not {view_of(data)}.")
        return data
    if view == "trades" and isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        from marketdata.wire.trades import trades

        return trades(data)
    from marketdata.adapters.dispatch import as_polars, names_of
    from marketdata.tidy.frames import to_columns

    names = set(names_of(data))
    if view in ("prices", "quotes") and any(levels <= names for levels in ({"side", "level"}, set(LISTS))):
        raise ConfigError(f"{view}= was given the levels of books; pass them as books=.")
    by_slug = not VIEWS[view].has_tokens and "slug" in names and "market_id" not in names
    columns = to_columns(view, as_polars(data).rename({"slug": "market_id"}) if by_slug else data, lookup=True)
    if isinstance(columns, Books | Trades):
        return columns
    if by_slug:
        tokens = []
        for slug, *_ in columns.tokens:
            record = markets.find(slug) if slug else None
            if record is None:
                raise ArchiveError(
                    f"rows name the market by slug {slug[:200]!r}, which the archive does not know. {_ADD_MARKET}"
                )
            tokens.append(Token(str(record["id"])))
        columns = columns.grouped(tokens, columns.token)
    # Counts weigh the means of coarser frames; the archive stores base points.
    values = {k: v for k, v in columns.values.items() if not is_count(k, columns.values)}
    return dataclasses.replace(columns, values=values)


def identified(view: View, columns: Data, markets: Catalog) -> Data:
    """The same points, each with market id, token id and label; sorted.

    A token is its ids. Its label comes from its newest row that has one, or else from its record.
    """
    for text in {text for token in columns.tokens for text in token if text and not text.isascii()}:
        try:
            text.encode()
        except UnicodeEncodeError:  # two such ids would become one in a file
            raise NotTidyError(
                f"The id or label {text[:60]!r} of the {view} rows has half a character, a lone surrogate. "
                "Repair it first."
            ) from None
    columns = columns.sort()
    tokens = [_with_ids(view, token, markets) for token in columns.tokens]
    nameless = {(token.market_id, token.token_label) for token in tokens if token.token_label and not token.token_id}
    labels: dict[tuple[str, str | None], str | None] = {}
    for at in np.argsort(columns.ts[columns.bounds[1:] - 1], kind="stable").tolist():
        market_id, token_id, label = tokens[at]
        if token_id and (market_id, label) in nameless:
            raise NotTidyError(
                f"Some rows of market {market_id!r} and label {label!r} have a token_id, others have none; fill it."
            )
        if token_id and label:
            labels[market_id, token_id] = label
    for at, (market_id, token_id, _) in enumerate(tokens):
        if token_id:
            if (market_id, token_id) not in labels:
                owner = markets.token(token_id, market_id)
                labels[market_id, token_id] = None if owner is None else owner[1]
            tokens[at] = Token(market_id, token_id, labels[market_id, token_id])
    return columns if tuple(tokens) == columns.tokens else columns.grouped(tokens, columns.token).sort()


def _with_ids(view: View, token: Token, markets: Catalog) -> Token:
    """The token; a missing market or id is the one that the archive knows."""
    market_id, token_id, label = token
    if not VIEWS[view].has_tokens:
        if not market_id:
            raise NotTidyError(f"A {view} row has no market_id; it needs one, or a slug that the archive knows.")
        return Token(market_id)
    if market_id and token_id:
        return token
    if market_id and label:
        tokens = (markets.find(market_id) or {}).get("tokens", ())
        # A label may be one that the service does not map to an id.
        ids = (t["id"] for t in tokens if t.get("label") == label and t.get("id"))
        return Token(market_id, next(ids, None), label)
    if not token_id:
        raise NotTidyError("A row has neither a token_id nor a market_id with a token_label; it needs one of them.")
    several = markets.markets_of(token_id)
    if len(several) != 1:
        owners = f"a token of the markets {several[:5]}" if several else "not a token of any market in the archive"
        problem = f"is {owners}, and the {view} rows do not name its market_id."
        raise ArchiveError(f"token {token_id[:100]!r} {problem} {'' if several else _ADD_MARKET}".rstrip())
    return Token(several[0], token_id, label)


def seen_markets(columns: Data, markets: Catalog) -> list[Record]:
    """Records of markets and tokens that points name and the markets table lacks."""
    labels: dict[str, dict[str, str | None]] = {}
    for market_id, token_id, label in columns.tokens:
        named = labels.setdefault(market_id, {})
        if token_id:
            named[token_id] = label
    out = []
    for market_id, named in labels.items():
        record = markets.of_id(market_id)
        tokens = list(record.get("tokens", ())) if record else []
        filled = [t if t.get("label") is not None else {**t, "label": named.get(t.get("id"))} for t in tokens]
        ids = {t.get("id") for t in tokens}
        if not (record and record.get("payoffs")):  # what each token paid tells all of them
            filled += [{"id": token_id, "label": label} for token_id, label in named.items() if token_id not in ids]
        if record is None or filled != tokens:
            out.append({"id": market_id, "slug": None, "tokens": filled})
    return out
