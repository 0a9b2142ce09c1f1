"""What a user adds, made ready to store: columns with whole ids, one point per minute."""

from __future__ import annotations

from typing import Any

import numpy as np

from marketdata.archive.catalog import Catalog
from marketdata.archive.records import Record
from marketdata.errors import ArchiveError, ConfigError, NotTidyError
from marketdata.resolution import Resolution
from marketdata.tidy.schema import is_count
from marketdata.wire.columns import AnyColumns, BookColumns, Columns, MetricColumns, PriceColumns, Token, View

_KINDS: dict[View, type[Columns]] = {"books": BookColumns, "prices": PriceColumns, "metrics": MetricColumns}


def points(view: View, data: Any, markets: Catalog) -> AnyColumns:
    """Points at 1m, in tidy order, each with its market, token and label.

    Raises
    ------
    NotTidyError
        If a frame lacks columns of the view, or a level of a book has no finite numbers.
    ArchiveError
        If ids are missing and the markets table can not tell them.
    """
    columns = _columns(view, data, markets)
    columns = _finite(identified(view, columns, markets))
    if bool(np.all(columns.ts % Resolution.M1.micros == 0)) and columns.is_sorted() and _single(columns):
        return columns
    from marketdata.tidy.runs import resample_columns

    return resample_columns(columns, Resolution.M1)  # type: ignore[type-var]


def coarse(columns: AnyColumns) -> Resolution | None:
    """The widest resolution above 1m on whose grid all of at least three times stand; None without one."""
    times = np.unique(columns.ts)
    if len(times) < 3:
        return None
    found = [r for r in Resolution if r is not Resolution.M1 and not (times % r.micros).any()]
    return max(found, key=lambda r: r.micros, default=None)


def _finite(columns: AnyColumns) -> AnyColumns:
    """What is infinite is no observation: a missing value, as NaN is; no level can be so."""
    if isinstance(columns, BookColumns):
        if not np.isfinite(columns.levels).all():
            raise NotTidyError("A level of a book has a price or size that is infinite or NaN; each needs two numbers.")
        return columns
    if not any(np.isinf(v).any() for v in columns.values.values()):
        return columns
    values = {k: np.where(np.isinf(v), np.nan, v) for k, v in columns.values.items()}
    return columns.with_values(columns.tokens, columns.token, columns.ts, values)


def _single(columns: AnyColumns) -> bool:
    return not bool(np.any((np.diff(columns.token) == 0) & (np.diff(columns.ts) == 0)))


def _columns(view: View, data: Any, markets: Catalog) -> AnyColumns:
    if isinstance(data, Columns):
        if not isinstance(data, _KINDS[view]):
            raise ConfigError(f"{view}= takes {_KINDS[view].__name__}, not {type(data).__name__}.")
        return data  # type: ignore[return-value]
    from marketdata.tidy.frames import to_columns
    from marketdata.tidy.kinds import wrapped

    if view == "metrics":
        data = _with_market_id(data, markets)
    elif view == "prices" and {"side", "level"} <= set(wrapped(data).collect_schema().names()):
        raise ConfigError("prices= was given the levels of books; pass them as books=.")
    columns = to_columns(view, data, lookup=True)
    if isinstance(columns, BookColumns):
        return columns
    # Counts weigh the means of coarser frames; the archive holds base points.
    values = {k: v for k, v in columns.values.items() if not is_count(k, columns.values)}
    return columns.with_values(columns.tokens, columns.token, columns.ts, values)


def _with_market_id(frame: Any, markets: Catalog) -> Any:
    """Metric rows may name their market by its slug."""
    from marketdata.tidy.kinds import collected, wrapped

    try:
        names = wrapped(frame).collect_schema().names()
    except NotTidyError:
        return frame  # to_columns words the error
    if "market_id" in names or "slug" not in names:
        return frame
    eager = collected(frame)
    slugs = [None if s is None else str(s) for s in eager["slug"].to_list()]
    ids: dict[str | None, str] = {}
    for slug in dict.fromkeys(slugs):
        found = markets.find(slug) if slug else None
        if found is None:
            raise ArchiveError(
                f"metrics rows name the market by slug {str(slug)[:200]!r}, which the archive does not know. "
                "Add it first: archive.add(markets=frame)."
            )
        ids[slug] = found["id"]
    import narwhals as nw

    column = nw.new_series("market_id", [ids[s] for s in slugs], nw.String, backend=eager.implementation)
    return eager.with_columns(column).to_native()


def identified(view: View, columns: AnyColumns, markets: Catalog) -> AnyColumns:
    """The same points, each with market id, token id and label; sorted."""
    tokens = [_whole(view, token, markets) for token in columns.tokens]
    if tuple(tokens) == columns.tokens and len(set(tokens)) == len(tokens):
        return columns.sort()
    index: dict[Token, int] = {}
    codes = np.array([index.setdefault(t, len(index)) for t in tokens] or [0], dtype=np.int32)
    rows = codes[columns.token] if len(columns) else columns.token
    if isinstance(columns, BookColumns):
        return BookColumns(tuple(index), rows, columns.ts, columns.counts, columns.levels).sort()
    return columns.with_values(tuple(index), rows, columns.ts, columns.values).sort()


def _whole(view: View, token: Token, markets: Catalog) -> Token:
    market_id, token_id, label = token
    if view == "metrics":
        if not market_id:
            raise NotTidyError("A metrics row has no market_id; it needs one, or a slug that the archive knows.")
        return Token(market_id)
    if market_id and label and token_id:
        return token
    if not token_id:
        return _by_label(token, markets)
    found = markets.token(token_id)
    if found is None:
        if market_id:
            return token
        raise ArchiveError(
            f"token {token_id[:100]!r} is not a token of any market in the archive, and the {view} rows do not name "
            "its market_id. Add the market first: archive.add(markets=frame), with token_ids and token_labels."
        )
    record, known = found
    return Token(market_id or record["id"], token_id, label or known)


def _by_label(token: Token, markets: Catalog) -> Token:
    record = markets.find(token.market_id) if token.market_id else None
    for known in record.get("tokens", ()) if record else ():
        if known.get("label") == token.token_label and known.get("id"):
            return Token(token.market_id, known["id"], token.token_label)
    if token.market_id and token.token_label:
        return token  # a label that the service does not map has no id
    raise NotTidyError("A row has neither a token_id nor a market_id with a token_label; it needs one of them.")


def seen_markets(columns: AnyColumns, markets: Catalog) -> list[Record]:
    """Records of markets and tokens that points name and the markets table does not know."""
    tokens: dict[str, dict[str, str | None]] = {}
    for token in columns.tokens:
        some = tokens.setdefault(token.market_id, {})
        if token.token_id:
            some[token.token_id] = token.token_label
    out = []
    for market_id, seen in tokens.items():
        known = markets.find(market_id)
        have = list(known.get("tokens", ())) if known and known["id"] == market_id else []
        new = [{"id": i, "label": label} for i, label in seen.items() if i not in {t.get("id") for t in have}]
        if known is None or known["id"] != market_id or new:
            out.append({"id": market_id, "slug": known and known.get("slug"), "tokens": [*have, *new]})
    return out
