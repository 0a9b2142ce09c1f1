"""Meanings of the columns of a file: a role has names that publishers use, and values that prove or deny it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points import schema
from marketdata.points.columns import Codes, Floats, Token
from marketdata.points.records import FLAG_TEXTS
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings.changes import ASKS, BIDS
from marketdata.recordings.units import PRICE_ENDS, TimeUnit
from marketdata.wire.records import MARKET_IDS, OUTCOME_PAIRS, PAYOUTS, WINNERS
from marketdata.wire.venues import TRADE_SIDES

BID_TEXTS, ASK_TEXTS = ("buy", "bid", "bids", "b"), ("sell", "ask", "asks", "a", "s", "offer")
_NO_SIDE = ("", "nan", "none", "null", "<na>", "n/a", "unknown")
# Words for rows of whole books, and for changes of levels; removed levels have the size 0.
_SNAPSHOT_WORDS = ("snapshot", "snap", "book", "book_snapshot", "orderbook_snapshot", "full", "image")
_CHANGE_WORDS = (
    "delta",
    "update",
    "change",
    "price_change",
    "diff",
    "incremental",
    "l2update",
    "set",
    "orderbook_delta",
    "add",
    "modify",
    "delete",
    "remove",
    "cancel",
    "insert",
    "new",
)
_BOOK_EVENTS = (*_SNAPSHOT_WORDS, *_CHANGE_WORDS)
_OF_SNAPSHOTS, _OF_CHANGES = re.compile(r"snap|full|whole"), re.compile(r"delta|update|change|incr|diff")
_FLAGS = tuple(text for text, means in FLAG_TEXTS.items() if means is not None)
_TEXTS = (pl.String, pl.Categorical, pl.Enum, pl.Binary)
# JSON, a fraction, a number that a spreadsheet or a float has rounded, or a time.
_NO_ID = re.compile(r"[\[{]|-?\d*\.\d+$|\d(?:[.,]\d+)?[eE]\+?\d\d+$|\d{4}-\d\d-\d\dT")
_SHORTENED = re.compile(r"\S+(?:\.{3}|…)\S*")
_A_TICKER = re.compile(r"[A-Za-z]{1,12}")


def is_time(values: pl.Series) -> bool:
    """Whether most values are times: of a date type, Unix times since 2015 in one unit, or ISO texts."""
    return TimeUnit.of(values) is not None


def is_number(values: pl.Series) -> bool:
    """Whether most values are numbers, which flags are not."""
    return values.dtype != pl.Boolean and bool((~np.isnan(numbers(values))).sum() * 2 >= len(values))


def is_text(values: pl.Series) -> bool:
    """Whether values can be names: neither lists nor objects, nor bytes."""
    return not values.dtype.is_nested() and is_readable(values)


def is_id(values: pl.Series) -> bool:
    """Whether values can be ids: no times, fractions or JSON, no ids as ``0xab...cd``, no numbers without digits."""
    texts = _some_texts(values)
    lost = any(map(_NO_ID.match, texts)) or any(map(_SHORTENED.fullmatch, texts))
    return is_text(values) and not values.dtype.is_float() and not lost


def is_label(values: pl.Series) -> bool:
    """Whether values can be names of outcomes, which are no JSON, no fractions and no times."""
    return is_text(values) and not any(map(_NO_ID.match, _some_texts(values)))


def is_word(values: pl.Series) -> bool:
    """Whether values can be names of outcomes and none is a number, as the labels of a model are."""
    return is_label(values) and bool(np.isnan(numbers(values)).all())


def is_token(values: pl.Series) -> bool:
    """Whether values can be ids of tokens: no words such as ``btc`` or ``Yes``, which are coins and labels."""
    return is_id(values) and not all(_A_TICKER.fullmatch(text) and len(text) > 1 for text in _some_texts(values))


def is_side(values: pl.Series) -> bool:
    """Whether most values are sides of a book or a trade."""
    return is_text(values) and _most(values, (*BID_TEXTS, *ASK_TEXTS, *TRADE_SIDES))


def is_deal(values: pl.Series) -> bool:
    """Whether most values are buys and sells, written out, so that they are sides under any name."""
    return is_text(values) and len(values) > 0 and _most(values, ("buy", "sell", "bought", "sold"))


def is_outcome_side(values: pl.Series) -> bool:
    """Whether most values are Yes and No, as the sides of a trade of a binary market."""
    return is_text(values) and _most(values, ("yes", "no"))


def is_book_event(values: pl.Series) -> bool:
    """Whether most values say what happened to a book: a snapshot, or a change of a level."""
    return is_text(values) and _most(values, _BOOK_EVENTS)


def is_flag(values: pl.Series) -> bool:
    """Whether most values are true or false, in any form."""
    return is_text(values) and _most(values, _FLAGS)


def is_snapshot_flag(values: pl.Series) -> bool:
    """Whether most values say that a row is of a whole book or a change, as flags or words."""
    return is_flag(values) or is_book_event(values)


def is_nested(values: pl.Series) -> bool:
    """Whether values are lists or objects, also as JSON."""
    return values.dtype.is_nested() or any(text.lstrip()[:1] in ("[", "{") for text in _some_texts(values))


def is_outcome_book(values: pl.Series) -> bool:
    """Whether values are books with the bids of Yes and of No."""
    if isinstance(values.dtype, pl.Struct):
        return any(field.name.startswith(("yes", "no")) for field in values.dtype.fields)
    return is_nested(values) and any('"yes' in text or '"no' in text for text in _some_texts(values))


def is_book(values: pl.Series) -> bool:
    """Whether values are books with bids and asks."""
    return is_nested(values) and not is_outcome_book(values)


def anything(_: pl.Series) -> bool:
    """Any value will do."""
    return True


def _most(values: pl.Series, words: Sequence[str]) -> bool:
    texts = _some_texts(values)
    return sum(text.lower() in words for text in texts) * 2 >= len(texts)


def is_readable(values: pl.Series) -> bool:
    """Whether values can be read as texts: bytes that are no UTF-8 cannot."""
    if values.dtype != pl.Binary:
        return True
    try:
        values.head(200).cast(pl.String)
    except pl.exceptions.PolarsError:
        return False
    return True


def _some_texts(values: pl.Series) -> list[str]:
    if values.dtype.is_nested() or not is_readable(values):
        return ["[]"]
    return values.head(200).cast(pl.String, strict=False).str.strip_chars().replace("", None).drop_nulls().to_list()


class Role(NamedTuple):
    """A meaning that a column may have: its names, of which the first in a file counts, and a rule for its values.

    A ``context`` role says more about a row, and does not decide what a file is.
    """

    names: tuple[str, ...]
    looks: Callable[[pl.Series], bool] = anything
    values: str = ""
    context: bool = False


def _time(*names: str, context: bool = False) -> Role:
    return Role(names, is_time, "times since 2015", context)


def _number(*names: str, context: bool = False) -> Role:
    return Role(names, is_number, "numbers", context)


def _name(*names: str, context: bool = False) -> Role:
    return Role(names, is_text, "texts", context)


def _levels(*names: str) -> Role:
    return Role(names, is_nested, "lists of levels")


# Columns whose names say that the time is the venue's, and columns that may have the time of the recorder.
VENUE_TIMES = (
    "event_timestamp", "event_time", "event_ts", "exchange_timestamp", "venue_timestamp", "block_timestamp",
    "block_time", "trade_time", "ts_event",
)  # fmt: skip
# Names of times that a record has for itself, whatever else they say, and of numbers that may look like times.
NO_TIME_OF_A_ROW = re.compile(
    r"(?:^|_)(?:start|begin|end|expir|open|clos|creat|resol|settl|expect|deadline|accept|deploy|ready|fund|updat|modif|"
    r"chang|edit|launch|list|game|kick|archiv|publish|last|first|uma|announc|birth|issu|effective|due|schedul|target|"
    r"occur|determin|finali|finish|propos|disput|cutoff|strike|id|ids|hash|nonce|salt|key|block|seq|sequence|number)"
    r"|(?:^|_)(?:event|resolution|settlement)_(?:date|time)"
)
ANY_TIMES = ("ts", "timestamp", "time", "t", "datetime")
# In the form that common names of columns have.
INDEX_NAMES = tuple(name.lower().replace(" ", "_").removesuffix("__") for name in schema.INDEX_NAMES)
_BOOKS = ("book", "orderbook", "order_book", "book_json", "orderbook_json", "raw_book", "orderbook_fp")
_TOKENS_OF_YES = (
    "yes_token_id", "yes_token", "yes_asset_id", "token_id_yes", "token_yes", "yes_clob_token_id", "clob_token_id_yes",
    "up_token_id", "up_token", "token_id_up", "token_up",
)  # fmt: skip
# The one table of names. Names are lower case with underscores.
ROLES: dict[str, Role] = {
    "ts": _time(
        "ts", "timestamp", "time_stamp", "exchange_timestamp", "venue_timestamp", "book_timestamp", "ts_event",
        "event_ts", "event_ts_ms", "event_time", "timestamp_us", "timestamp_ms", "timestamp_ns", "timestamp_utc",
        "ts_ms", "ts_us", "ts_utc", "time", "t", "snapshot_time", "snapshot_ts", "snapshot_at", "datetime",
        "datetime_utc", "time_utc", "block_timestamp", "match_time", "bucket", "bucket_start", "start_ts",
        "bar_start", "candle_start", "period_start", "interval_start", "bar_time", "candle_time", "open_timestamp",
        "event_timestamp", "block_time", "trade_time", "date", *INDEX_NAMES,
    ),
    "candle_start": _time("open_time", "start_time", "begin_time", context=True),
    "candle_end": _time("end_time", "close_time", context=True),
    "end_ts": _time("end_period_ts", "end_ts", "period_end", "close_timestamp", "bucket_end"),
    "created_at": _time("created_at", "created_time", "timestamp_created_at", "traded_at", "executed_at", context=True),
    "received_at": _time(
        "received_at", "timestamp_received", "recv_ts", "recv_ms", "receive_ts", "local_timestamp",
        "local_timestamp_us", "local_timestamp_ms", "ts_recv", "collected_at", "captured_at", "fetched_at",
        "collected_at_utc", "captured_at_utc", "fetched_at_utc", "recorded_at", "ingested_at", "indexed_at",
        "polled_at", "scraped_at", "local_ts", "recv_ts_ms", "recv_ts_us", "recv_ts_ns", "recv_timestamp",
        "received_ts", "recv_time",
        context=True,
    ),
    "market_id": Role(
        MARKET_IDS, is_id, "ids, no times, fractions or rounded numbers", context=True,
    ),
    "token_id": Role(
        ("token_id", "asset_id", "clob_token_id", "token", "asset", "instrument_id", "symbol", "ticker",
         "market_ticker"),
        is_token, "ids, no words such as btc, no times, and no rounded numbers such as 7.1e+76",
    ),
    "token_label": Role(
        ("token_label", "token_side", "outcome", "outcome_label", "outcome_name", "contract_name", "outcome_index"),
        is_label, "names", context=True,
    ),
    # The label of a model, or of what a token did, is none of an outcome, so it counts only where no token has an id.
    "outcome_word": Role(("label",), is_word, "words", context=True),
    "token_number": Role(("nonusdc_side",), anything, "token1 or token2"),
    "side": Role(
        ("side", "taker_side", "taker_direction", "trade_side", "order_side", "aggressor_side"),
        is_side, "buy and sell, or bid and ask",
    ),
    "outcome_side": Role(("side",), is_outcome_side, "yes and no", context=True),
    "taker_outcome": Role(
        ("taker_outcome_side", "taker_outcome", "taker_side"), is_outcome_side, "yes and no"
    ),
    # Older rows of a file have this name alone.
    "older_taker_outcome": Role(("taker_side",), is_outcome_side, "yes and no", context=True),
    "price": _number(
        "price", "p", "px", "trade_price", "price_per_share", "last_price", "last", "mid_price", "mid", "midprice",
        "midpoint", "probability", "prob",
    ),
    "size": _number("size", "shares_normalized", "shares", "token_amount", "quantity", "qty", "amount", "sz"),
    "level": _number("level", "level_index", "rank"),
    "best_bid": _number("best_bid", "bid", "bid_price", "best_bid_price", "bid_px"),
    "best_ask": _number("best_ask", "ask", "ask_price", "best_ask_price", "ask_px"),
    "best_bid_size": _number("best_bid_size", "bid_size", "bid_volume", "bid_qty", "bid_sz", context=True),
    "best_ask_size": _number("best_ask_size", "ask_size", "ask_volume", "ask_qty", "ask_sz", context=True),
    "yes_bid": _number("yes_best_bid", "yes_bid_dollars", "yes_bid", "up_best_bid", "up_bid", "yes_bid_close"),
    "yes_ask": _number("yes_best_ask", "yes_ask_dollars", "yes_ask", "up_best_ask", "up_ask", "yes_ask_close"),
    "no_bid": _number("no_best_bid", "no_bid_dollars", "no_bid", "down_best_bid", "down_bid"),
    "no_ask": _number("no_best_ask", "no_ask_dollars", "no_ask", "down_best_ask", "down_ask"),
    "yes_price": _number(
        "yes_price_dollars", "yes_price", "yes_probability", "yes_prob", "probability_yes", "prob_yes", "p_yes",
        "yes_mid", "yes_close", "up_price", "up_mid",
    ),
    "no_price": _number(
        "no_price_dollars", "no_price", "no_probability", "no_prob", "probability_no", "prob_no", "p_no", "no_mid",
        "no_close", "down_price", "down_mid",
    ),
    "count": _number("count_fp", "count"),
    "close": _number("close", "price_close", "close_price", "c"),
    "open": _number("open", "price_open", "open_price", "o", context=True),
    "high": _number("high", "price_high", "high_price", "h", context=True),
    "low": _number("low", "price_low", "low_price", "l", context=True),
    "candle_bid": Role(("yes_bid",), is_nested, "objects with open, high, low, close"),
    "candle_ask": Role(("yes_ask",), is_nested, "objects with open, high, low, close"),
    "candle_price": Role(("price",), is_nested, "objects with open, high, low, close", context=True),
    "volume": _number("volume", "volume_fp", context=True),
    "liquidity": _number("liquidity", context=True),
    "spread": _number("spread", context=True),
    "open_interest": _number("open_interest", "open_interest_fp", context=True),
    "bids": _levels(
        "bids", "bid_levels", "bids_json", "raw_bids", "bid_book", "bid_depth", "buys", "bids_top5", "bids_top10",
        "bids_top20",
    ),
    "asks": _levels(
        "asks", "ask_levels", "asks_json", "raw_asks", "ask_book", "ask_depth", "sells", "asks_top5", "asks_top10",
        "asks_top20",
    ),
    "book": Role(_BOOKS, is_book, "books"),
    "outcome_book": Role(_BOOKS, is_outcome_book, "books of the bids of yes and no"),
    "yes_levels": _levels("yes_levels", "yes_bids", "yes", "yes_dollars"),
    "no_levels": _levels("no_levels", "no_bids", "no", "no_dollars"),
    "question": _name("question", "title", "market_question", context=True),
    "slug": _name("slug", "market_slug", context=True),
    "title": _name("title", "event_title", "series_title", context=True),
    "token_ids": Role(
        ("token_ids", "clob_token_ids", "token_ids_json", "clob_token_ids_json", "asset_ids", "assets_ids", "tokens",
         "outcome_0_token_id", "outcome_1_token_id", "token_0_id", "token_1_id", "token1", "token2", *_TOKENS_OF_YES),
        context=True,
    ),
    "token_labels": Role(("token_labels", "outcomes", "outcomes_json", "answer1"), context=True),
    "outcome_prices": Role(("outcome_prices",), is_nested, "lists of prices", context=True),
    "state": Role(
        ("closed", "status", "active", "result", "end_date", "end_date_iso", "close_time", "outcome_prices",
         "closed_time", "resolution_status", "resolved"),
        context=True,
    ),
    "payoff": Role(PAYOUTS, is_number, "numbers", context=True),
    "won": Role(WINNERS, is_flag, "true and false", context=True),
    "trade_id": Role(("trade_id", "fill_id", "match_id")),
    "order_id": Role(("order_id", "order_type", "original_size", "size_matched", "time_in_force")),
    "transaction_hash": _name("transaction_hash", "tx_hash"),
    "maker": _name("maker", "maker_address"),
    "taker": _name("taker", "taker_address"),
    # Rows about accounts, such as their positions, are neither prices nor records.
    "account": _name("proxy_wallet", "wallet", "user", "user_address", "trader", "account", "holder"),
    "role": _name("role", "trader_side", "liquidity_side", "maker_or_taker", context=True),
    "is_block": Role(("is_block", "is_block_trade"), is_flag, "true and false", context=True),
    "fee": _number("fee", "fee_cost", "fee_paid", "fee_usd", "fees", context=True),
    "maker_amount": _number("maker_amount_filled", "maker_amount"),
    "taker_amount": _number("taker_amount_filled", "taker_amount"),
    "maker_asset_id": _name("maker_asset_id"),
    "taker_asset_id": _name("taker_asset_id"),
    "is_snapshot": Role(("is_snapshot",), is_snapshot_flag, "true and false"),
    # These make a row one of a book, so that its price is no price of a token and no trade.
    "size_change": _number("size_change", "size_delta", "delta", "delta_fp", "signed_qty", "signed_size", "qty_change"),
    "book_event": Role(("type", "event_type", "update_type", "action", "msg_type"), is_book_event, "events of books"),
    "event_type": _name("event_type", "update_type"),
    "message": Role(("data", "payload", "raw", "msg", "message", "json", "raw_text"), is_nested, "JSON"),
    "activity": _name("type", "activity_type", context=True),
    "bid_prices": _levels("bid_prices"), "bid_sizes": _levels("bid_sizes"),
    "ask_prices": _levels("ask_prices"), "ask_sizes": _levels("ask_sizes"),
    **{
        name: Role((name,), context=True)
        for name in ("event_id", "event_slug", "series_id", "series_slug", "winning_outcome", *SNAPSHOT_FIELDS)
    },
}  # fmt: skip
_PRICES = ("price", "best_bid", "best_ask", "yes_bid", "yes_ask", "no_bid", "no_ask", "yes_price", "no_price", "close")
# Texts even if they look like numbers, because a label may be 007.
TEXT_ROLES = ("market_id", "token_id", "token_label", "side", "slug", "event_slug", "series_slug")


class Meaning(NamedTuple):
    """The role that a column has, or why it has none."""

    column: str
    role: str
    evidence: str
    taken: bool


def roles_of(sample: pl.DataFrame, chosen: Iterable[str] = (), time_format: str | None = None) -> list[Meaning]:
    """The column of each role in the sample: the first of its names whose values do not deny it.

    A ``chosen`` role takes the named column, whatever its values. ``time_format`` is the form of dates.
    """
    found: list[Meaning] = []
    chosen = set(chosen)
    for name, role in ROLES.items():
        ends = PRICE_ENDS if name in _PRICES else ()
        names = (*role.names, *(f"{one}_{end}" for one in role.names for end in ends))
        for column in [name] if name in chosen else names:
            if column not in sample.columns or (column in chosen and column != name):
                continue
            values = sample[column].drop_nulls()
            fits = name in chosen or not len(values) or role.looks(values)
            fits = fits or (role.looks is is_time and TimeUnit.of(values, time_format) is not None)
            # As numbers where Python has no such time.
            shown_values = values.head(2).to_physical() if values.dtype == pl.Datetime else values.head(2)
            shown = ", ".join(str(value)[:30] for value in shown_values.to_list())
            found.append(Meaning(column, name, f"{role.values or 'its name'}: {shown}", fits))
            if fits:
                break
    return found


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The nearest of the names as a hint, empty if none is near."""
    return "".join(f"; did you mean {near!r}?" for near in difflib.get_close_matches(name, names, n=1))


def renamed_columns(columns: Any) -> dict[str, str]:
    """The argument ``columns`` of imports; ConfigError for a name that is not ours, with the nearest one that is."""
    if columns is not None and not isinstance(columns, Mapping):
        raise ConfigError("is no dict such as {'ts': 'when'}.", argument="columns", value=columns)
    for name in columns or {}:
        if name not in ROLES:
            hint = did_you_mean(str(name), ROLES)
            raise ConfigError(
                f"has {name!r}, which is no column of ours{hint} They are {', '.join(ROLES)}.",
                argument="columns",
                value=columns,
            )
    return {str(name): str(column) for name, column in (columns or {}).items()}


def given_sides(sides: Any) -> dict[str, str | None] | None:
    """The argument ``sides`` of imports, by the words as `words_of_sides` has them; else a ConfigError."""
    if sides is None:
        return None
    if not isinstance(sides, Mapping) or not {*sides.values()} <= {"buy", "sell", None}:
        hint = "Each word of the files is 'buy', 'sell' or None; words that it does not name have no side."
        raise ConfigError("is no dict such as {'1': 'buy', '-1': 'sell'}.", argument="sides", value=sides, hint=hint)
    words = words_of_sides(pl.Series([str(word) for word in sides], dtype=pl.String)).to_list()
    return dict(zip(words, sides.values(), strict=True))


def words_of_sides(column: pl.Series) -> pl.Series:
    """The words of a column of sides in small letters, whole numbers without a point or a plus; null for nothing."""
    words = column.cast(pl.String, strict=False).str.strip_chars().str.to_lowercase()
    words = words.str.replace(r"^\+?(-?\d+)(?:\.0+)?$", "${1}")
    return words.set(words.is_in(_NO_SIDE), None)


def refuse_two_outcomes(points: pl.DataFrame) -> None:
    """ConfigError for one token that is called Yes and No, as where the id of a market is called a token."""
    if "token_label" not in points.columns:
        return
    named = points.select(pl.col("token_id").cast(pl.String), pl.col("token_label").cast(pl.String).str.to_titlecase())
    labels = named.drop_nulls().unique().group_by("token_id").agg("token_label")
    for token, of_token in labels.iter_rows():
        if any({*pair} <= {*of_token} for pair in OUTCOME_PAIRS):
            raise ConfigError(
                f"token {token!r} is called {' and '.join(sorted(of_token))}. If it is the id of a market, name its "
                "column with columns={'market_id': ...}; else take the labels out."
            )


def numbers(column: pl.Series) -> Floats:
    """A column of numbers, decimals or texts as floats, NaN where it has none."""
    if column.dtype.is_nested() or not is_readable(column):
        return np.full(len(column), np.nan)
    if column.dtype in _TEXTS:
        column = column.cast(pl.String).str.strip_chars()
        plain = decimals(column)
        # Few files have signs and separators, so only texts that are no plain numbers are looked at again.
        if plain.null_count() > column.null_count():
            plain = plain.fill_null(_written_numbers(column.set(plain.is_not_null(), None)))
        column = plain
    found = column.cast(pl.Float64, strict=False)
    return found.set(~found.is_finite(), None).fill_null(np.nan).to_numpy()


def decimals(texts: pl.Series) -> pl.Series:
    """Numbers of texts as `parse_number` reads each; null for another text."""
    found = texts.cast(pl.Float64, strict=False)
    return found.set(~found.is_finite(), None)


def _written_numbers(texts: pl.Series) -> pl.Series:
    """Numbers as people write them: ``$0.53``, ``53%`` and ``53¢``, which are 0.53, and ``12,345.50``."""
    unsigned = texts.str.replace(r"^(-?)\$\s*", "${1}")
    parts = unsigned.str.extract_groups(r"^(-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d*\.?\d+)\s*([%¢]?)$")
    number = parts.struct.field("1").str.replace_all(",", "").cast(pl.Float64, strict=False)
    in_hundredths = (parts.struct.field("2") != "").fill_null(value=False).to_numpy()
    return pl.Series(np.where(in_hundredths, np.round(number.to_numpy() / 100, 9), number.to_numpy())).fill_nan(None)


def flags(column: pl.Series) -> pl.Series:
    """True and false in any form that files have; null for another value."""
    texts = column.cast(pl.String).str.strip_chars().str.to_lowercase()
    return texts.replace_strict(FLAG_TEXTS, default=None, return_dtype=pl.Boolean)


def snapshot_flags(column: pl.Series, name: str) -> pl.Series:
    """Whether each row is of a whole book: by words, or by a flag whose name says what is true; null where unknown."""
    if column.dtype.is_nested() or column.dtype.is_float():
        return pl.Series(column.name, [None] * len(column), dtype=pl.Boolean)
    texts = column.cast(pl.String, strict=False).str.strip_chars().str.to_lowercase().str.replace_all(r"[ -]", "_")
    words = dict.fromkeys(_SNAPSHOT_WORDS, True) | dict.fromkeys(_CHANGE_WORDS, False)
    by_word = texts.replace_strict(words, default=None, return_dtype=pl.Boolean)
    if by_word.null_count() == texts.null_count() < len(texts):
        return by_word
    is_change = _OF_CHANGES.search(name.lower()) is not None
    if is_change == (_OF_SNAPSHOTS.search(name.lower()) is not None):
        return pl.Series(column.name, [None] * len(column), dtype=pl.Boolean)
    said = flags(column)
    return ~said if is_change else said


def identified(frame: pl.DataFrame) -> pl.DataFrame:
    """The ids of the rows as texts; a token without an id is called by its market and label, null without both."""
    absent = [pl.lit(None).alias(name) for name in Token._fields if name not in frame.columns]
    market = pl.col("market_id").fill_null("").str.strip_chars("\0 ")
    label = pl.col("token_label")
    derived = pl.when((market != "") & (label != "")).then(pl.format("{}:{}", market, label))
    token = pl.when(pl.col("token_id") != "").then("token_id").otherwise(derived)
    texts = frame.with_columns(absent).select(pl.col(Token._fields).cast(pl.String))
    return texts.select(market, token.alias("token_id"), "token_label")


def tokens(frame: pl.DataFrame) -> tuple[tuple[Token, ...], Codes]:
    """The distinct tokens, and for each row the number of its token."""
    ids = identified(frame)
    distinct = ids.unique(maintain_order=True)
    numbered = ids.join(
        distinct.with_row_index("code"), on=Token._fields, how="left", nulls_equal=True, maintain_order="left"
    )
    return tuple(map(Token._make, distinct.iter_rows())), numbered["code"].to_numpy().astype(np.int32)


def sides(column: pl.Series) -> NDArray[np.int8]:
    """Sides as numbers: bids, asks, and -1 for another text. A missing side counts as bids."""
    codes_of = dict.fromkeys(BID_TEXTS, BIDS) | dict.fromkeys(ASK_TEXTS, ASKS)
    texts = column.cast(pl.String).str.strip_chars().str.to_lowercase().replace("", None)
    codes = texts.replace_strict(codes_of, default=-1, return_dtype=pl.Int8)
    return codes.set(texts.is_null(), BIDS).to_numpy().copy()
