"""Names, order and meaning of the columns of tidy frames; metrics are named in ``points.columns.METRICS``.

=======  ================  ======================================================================================
frame    one row per       columns
=======  ================  ======================================================================================
books    level of a side   ts market_id token_id token_label side level price size
prices   token and bucket  ts market_id token_id token_label price
metrics  market, bucket    ts market_id volume liquidity spread + further numeric metrics
quotes   token and bucket  ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid spread
trades   print             ts + ids + side price size, and where known the columns of ``views.PRINT_FIELDS``
nested   token and bucket  ts + ids + bid_price bid_size ask_price ask_size
=======  ================  ======================================================================================

``ts`` is the start of the bucket, UTC, microseconds. An empty side of a book is one sentinel row (null level, price and
size), of nested books an empty list; lists are best level first. ``<value>_count`` beside a mean is its number of base
points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from marketdata.errors import NotTidyError, public_function
from marketdata.points.columns import Token
from marketdata.points.views import VIEWS, View

# "series" needs only a time, and a market or a token. "some_quotes" has some columns of quotes, as `mid` returns them:
# they are aggregated like the books that they come from.
Kind = View | Literal["some_quotes", "series", "nested"]

ID_COLUMNS = Token._fields
LISTS = ("bid_price", "bid_size", "ask_price", "ask_size")
COLUMNS: dict[Kind, tuple[str, ...]] = {
    **{view: ("ts", *spec.ids, *spec.names, *spec.derived) for view, spec in VIEWS.items()},
    "nested": ("ts", *ID_COLUMNS, *LISTS),
}
QUOTES = COLUMNS["quotes"]
BOOKS = COLUMNS["books"]
TRADES = COLUMNS["trades"]
BID, ASK = "bid", "ask"
# The names that pandas gives to an index without a name, when it is written to a file.
INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")
COUNT = "_count"
# False in rows that `resample` and `align` filled in.
OBSERVED = "observed"

TOLERANCE = 1e-9
"""Prices [probability] and sizes [relative] closer than this are equal: a sum depends on the order of its terms."""
# Columns that are probabilities or numbers of shares, whatever frame has them.
PRICES = ("price", "mid", *QUOTES[4:8:2], *LISTS[::2])
SIZES = ("size", *QUOTES[5:8:2], *LISTS[1::2])


def check_names(columns: Iterable[str]) -> None:
    """Refuse a frame that has two columns of one name (NotTidyError)."""
    doubled = sorted(name for name, count in Counter(columns).items() if count > 1)
    if doubled:
        raise NotTidyError(f"The frame has several columns of one name: {doubled}; keep one of each.")


def lacking(what: str, missing: Iterable[str], present: Iterable[str]) -> NotTidyError:
    """The error for missing columns, with those present that may be meant."""
    names_of_others = {
        "ts": ("timestamp", "time", "datetime", "date", "t", "when"),
        "market_id": ("condition_id", "conditionId", "market", "slug"),
        "token_id": ("asset_id", "token", "asset", "clob_token_id"),
        "token_label": ("outcome", "label"),
        "price": ("price", "p", "px", "probability"),
        "size": ("size", "quantity", "amount", "qty", "s", "shares"),
        "side": ("side", "action"),
    }
    missing, present = list(missing), list(present)
    candidates = {
        ours: [c for name in names_of_others.get(ours, ()) for c in present if c.casefold() == name.casefold()]
        for ours in missing
    }
    likely = {ours: theirs[0] for ours, theirs in candidates.items() if theirs}
    return NotTidyError.from_missing(what, missing, present, likely, frame_name(present))


def frame_name(columns: Iterable[str]) -> str:
    """The name of the kind of frame with these columns; an empty text for a frame of another library."""
    names = {*columns}
    is_level = "level" in names
    needed: dict[str, Iterable[str]] = {
        "nested books": COLUMNS["nested"], "best prices": QUOTES, "prices": COLUMNS["prices"],
        "metrics": COLUMNS["metrics"], "market records": ("market_id", "question", "token_ids"),
    }  # fmt: skip
    if is_prints(names):
        return "trades"
    # Levels of a book that lack a column look like prices.
    if {"side", "level", "size"} & names:
        return "books" if names.issuperset(BOOKS) else "trades" if names.issuperset(TRADES) and not is_level else ""
    return next((name for name, wanted in needed.items() if names.issuperset(wanted)), "")


def is_prints(columns: Iterable[str]) -> bool:
    """Whether rows have the columns of trades, and no level of a book."""
    names = {*columns}
    return names >= {"side", "price", "size"} and "level" not in names


def require(what: str, wanted: Iterable[str], present: Iterable[str]) -> None:
    """NotTidyError naming the wanted columns that are not present in ``what``."""
    present = list(present)
    missing = [c for c in wanted if c not in present]
    if missing:
        raise lacking(what, missing, present)


def kind_of(
    columns: Iterable[str], wanted: Iterable[Kind] = ("books", "trades", "prices", "quotes", "metrics")
) -> Kind:
    """The first of the wanted kinds whose columns are all there, else a NotTidyError; other columns do not matter.

    Nested books are also books (as level rows, unless nested is wanted) and, with one row per token and time, a series.
    """
    present, wanted = list(columns), tuple(wanted)
    check_names(present)
    if wanted == ("trades",):  # the side of a trade is no side of a book
        if "level" in present:
            raise _levels_refused(wanted)
        return "trades"
    names = set(present)
    if "trades" in wanted:
        if is_prints(names) and names >= {"ts", "token_id"}:
            return "trades"
        wanted = tuple(kind for kind in wanted if kind != "trades")
    lacks = {kind: [c for c in COLUMNS[kind] if c not in names] for kind in wanted if kind in COLUMNS}
    if {"side", "level"} & names:
        if "books" not in lacks and frame_name(present) != "trades":
            raise _levels_refused(wanted)
        if frame_name(present) == "trades":
            raise _no_kind(present, {} if "series" in wanted else lacks)
        # Levels of a book that lack a column are no prices: a mean over them would mean nothing.
        lacks = {"books": lacks["books"]}
    elif set(LISTS) <= names and ("nested" in wanted or {"books", "series"} & set(wanted) == {"books"}):
        lacks = {"nested": [c for c in COLUMNS["nested"] if c not in names]}
    complete = next((kind for kind, missing in lacks.items() if not missing), None)
    if complete is not None:
        return complete
    if "some_quotes" in wanted and names.intersection(QUOTES[4:]) and names.issuperset(QUOTES[:4]):
        return "some_quotes"
    if "series" in wanted and not {"side", "level"} & names:
        require("A tidy frame", ["ts"] if {"market_id", "token_id"} & names else ["ts", "market_id"], present)
        return "series"
    raise _no_kind(present, lacks)


def _levels_refused(wanted: Sequence[Kind]) -> NotTidyError:
    """The error for rows of levels where books are not wanted."""
    if wanted == ("nested",):
        return NotTidyError("Nested books have one row per snapshot; these are rows of levels already.")
    one_row = {"quotes", "series"} & set(wanted)
    hint = "give md.bbo(books) or md.to_wide(books)" if one_row else f"{public_function()} takes {_listed(wanted)}"
    return NotTidyError(f"This is a frame of books, which have several rows per snapshot; {hint}.")


def _listed(kinds: Iterable[Kind]) -> str:
    """Kinds of frames in words: each once, in the order in which users know them."""
    words = {"books": "books", "nested": "nested books", "quotes": "best prices", "some_quotes": "best prices"}
    kinds = [*kinds]
    ordered = [kind for kind in words if kind in kinds] + kinds
    return " or ".join(dict.fromkeys(words.get(kind, kind) for kind in ordered))


_SOURCES: dict[Kind, str] = {
    **{view: f"A client and an archive give them: archive.{view}(market)." for view in VIEWS},
    "quotes": "md.bbo(books) gives them.",
    "nested": "md.nest(books) gives them.",
}


def _no_kind(present: Sequence[str], lacks: Mapping[Kind, Sequence[str]]) -> NotTidyError:
    """The error for columns that complete no kind; it names the nearest one."""
    if set(present) >= set(LISTS) and "nested" not in lacks:
        return NotTidyError(
            "These are nested books, one row per snapshot as an archive stores them; md.explode(frame) gives a row per "
            "level, and md.bbo(frame) or md.mid(frame) one per snapshot."
        )
    # If several kinds are possible, the message names books, the kind that users know; prices if nothing says which.
    named = [kind for kind in lacks if "books" not in lacks or kind not in ("quotes", "nested")]
    if not named:
        what = frame_name(present) or "rows with a side"
        hint = "md.resample(trades, '1m') gives bars" if what == "trades" else "md.bbo(books) gives the best prices"
        return NotTidyError(f"This is a frame of {what}; {public_function()} takes one row per token and time: {hint}.")
    nearest = min(named, key=lambda kind: (len(lacks[kind]) / len(COLUMNS[kind]), kind != "prices"))
    if own := frame_name(present):
        # A function that takes books and no best prices needs the levels behind the best.
        why = ", with all levels" if own == "best prices" and nearest == "books" else ""
        error = NotTidyError(
            f"This is a frame of {own}; {public_function()} takes {_listed(lacks)}{why}. {_SOURCES[nearest]}"
        )
        error.missing = tuple(sorted(lacks[nearest]))
        return error
    error = lacking(f"A tidy {nearest} frame", lacks[nearest], present)
    if nearest == "books" and {*QUOTES[4:8], "bid", "ask"} & set(present):
        as_top = f"are taken too, with {sorted(lacks['quotes'])}" if "quotes" in lacks else "have too few of its levels"
        return NotTidyError(f"{error} These look like best prices: those of md.bbo {as_top}.")
    return error


def value_columns(columns: Iterable[str]) -> list[str]:
    """The value columns of a prices or metrics frame, without their counts."""
    present = list(columns)
    others = {"ts", *ID_COLUMNS, *INDEX_NAMES, *(c + COUNT for c in present)}
    return [c for c in present if c not in others]


def uncounted(columns: Iterable[str]) -> list[str]:
    """The value columns that have no counts."""
    present = list(columns)
    return [c for c in value_columns(present) if c + COUNT not in present]


def is_count(column: str, present: Iterable[str]) -> bool:
    """Whether a column carries the counts of another one."""
    return column.endswith(COUNT) and column.removesuffix(COUNT) in set(present)
