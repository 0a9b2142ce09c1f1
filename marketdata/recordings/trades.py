"""Trade prints of files, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from marketdata.adapters import frames
from marketdata.adapters.frame import Texts
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.columns import Token, Trades
from marketdata.points.schema import ID_COLUMNS
from marketdata.recordings.files import ReadOptions, RecordingFile, files_of, refuse_one_token, tables_of
from marketdata.recordings.format import format_of, readable
from marketdata.recordings.roles import (
    ROLES,
    flags,
    given_sides,
    identified,
    numbers,
    refuse_two_outcomes,
    renamed_columns,
    words_of_sides,
)
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.units import is_probability
from marketdata.tidy.frames import FrameKind, frame_kind
from marketdata.wire.venues import TRADE_SIDES

_TEXTS = ("side", "trade_id", "transaction_hash", "maker", "taker", "account", "role")
_KNOWN = {**dict.fromkeys(_TEXTS[1:], pl.String), "is_block": pl.Float64, "fee": pl.Float64}
# Two recordings of one print agree in these columns.
_PRINT = ("transaction_hash", "trade_id", "market_id", "token_id", "side", "price", "size", "maker", "taker", "role")
# The number of the log of a fill, at the end of the id that is made of it; and sizes as files round them.
_LOG, _ROUNDING = r"^0x[0-9a-fA-F]+-(\d+)$", 1e-6
UNKNOWN_SIDES = " sides are no word for buy or sell and are null,"
_SAY_SIDES = "sides={'theirs': 'buy', ...} says what words mean"
_WRONG = "price outside of 0 to 1, or no size"


def has_unknown_sides(table: Table) -> str | None:
    """A column that is called a side, with words for neither buy and sell nor Yes and No."""
    if not {"side", "taker_outcome", "outcome_side"}.isdisjoint(table.columns):
        return None
    taken, sample = {*table.columns.values()}, table.file.sample
    for name in (one for one in ROLES["side"].names if one in sample.columns and one not in taken):
        words = sorted(words_of_sides(sample[name]).drop_nulls().unique(), key=lambda word: (word[:1] == "-", word))
        if words:
            shown, pair = " and ".join(map(repr, words[:3])), dict(zip(words[:2], ("buy", "sell"), strict=False))
            return (
                f"{name} has {shown}, which may be what the taker did or something else: say what they mean, such as "
                f"sides={pair}. Words that sides= does not name have no side; sides={{}} names none."
            )
    return None


def add_trades(frame: pl.DataFrame, batch: Batch) -> None:
    """Add the trades of a table; rows without a price or a size are counted as left out."""
    if "token_number" in frame.columns:
        label = "token_label" if "token_label" in frame.columns else "token_number"
        frame = frame.with_columns(pl.col(label).alias("token_label"))
    if "log_index" in frame.columns and "transaction_hash" in frame.columns and "trade_id" not in frame.columns:
        log = pl.col("log_index").cast(pl.String)  # two logs are two fills
        frame = frame.with_columns(pl.format("{}-{}", "transaction_hash", log).alias("trade_id"))
    if {"market_id", "token_id", "token_label"} <= set(frame.columns):
        frame = frame.with_columns(_tokens_of_markets())
    if "token_id" in frame.columns:
        refuse_two_outcomes(frame)
    if "side" in frame.columns:
        words = words_of_sides(frame["side"])
        sides = words.replace_strict(TRADE_SIDES, default=None, return_dtype=pl.String)
        if len(unknown := words.filter(sides.is_null() & words.is_not_null())):
            batch.notes.append(f"{len(unknown):,}{UNKNOWN_SIDES} such as {unknown[0][:40]!r}; {_SAY_SIDES}")
        frame = frame.with_columns(sides.alias("side"))
    texts = [pl.col(n).cast(pl.String) if n in frame.columns else pl.lit(None, pl.String).alias(n) for n in _TEXTS]
    amounts = [pl.Series(n, numbers(frame[n])) for n in ("price", "size", "fee") if n in frame.columns]
    is_block = [flags(frame["is_block"]).cast(pl.Float64).alias("is_block")] if "is_block" in frame.columns else []
    trades = frame.select("ts", *texts, *amounts, *is_block)
    trades = trades.with_columns(
        *identified(frame),
        pl.col("role").str.to_lowercase(),
    )
    add_rows(trades, batch)


def _tokens_of_markets() -> list[pl.Expr]:
    """The token and label of each row; where it is called as its market, the outcome tells it, as Kalshi calls it."""
    market, token, label = (pl.col(name).cast(pl.String) for name in ("market_id", "token_id", "token_label"))
    is_kalshi = market.str.starts_with("KX")
    of_outcome = pl.when(is_kalshi).then(pl.format("{}:{}", market, label.str.to_lowercase()))
    return [
        pl.when((market == token) & (label != "")).then(of_outcome).otherwise(token).alias("token_id"),
        pl.when(is_kalshi).then(label.str.to_titlecase()).otherwise(label).alias("token_label"),
    ]


def add_prints(parts: list[Trades], batch: Batch) -> None:
    """Add prints that `wire` has read."""
    frames_of = []
    for part in parts:
        names = list(zip(*(part.tokens[code] for code in part.token.tolist()), strict=True)) or [(), (), ()]
        columns = dict(zip(Token._fields, names, strict=True))
        frames_of.append(pl.DataFrame({"ts": part.ts, **columns, **{n: v.tolist() for n, v in part.values.items()}}))
    absent = dict.fromkeys(("side", *Token._fields), pl.String)
    empty = pl.DataFrame(schema={"ts": pl.Int64, "price": pl.Float64, "size": pl.Float64, **absent, **_KNOWN})
    add_rows(pl.concat([empty, *frames_of], how="diagonal_relaxed"), batch)


def add_rows(trades: pl.DataFrame, batch: Batch) -> None:
    """Add rows of prints with our columns; those without a possible price or size are counted as left out."""
    is_whole = (
        is_probability("price") & pl.col("price").is_not_null() & (pl.col("size") > 0) & pl.col("size").is_finite()
    )
    kept = trades.filter(is_whole.fill_null(value=False))
    known = [name for name in ("side", *_KNOWN) if name in kept.columns]
    # An empty text is no id, and no account.
    kept = kept.with_columns(pl.col(name).replace("", None) for name in known if kept[name].dtype == pl.String)
    batch.frames["trades"] = kept.select("ts", *Token._fields, "price", "size", *known)
    batch.left_out += Counter({_WRONG: len(trades) - len(kept)})


def read_trades(
    paths: Any,
    *,
    format: str | None = None,  # noqa: A002  as the option of the command is called
    columns: Mapping[str, str] | None = None,
    clock: str = "timestamp",
    token_id: str | None = None,
    time_format: str | None = None,
    sides: Mapping[str, str | None] | None = None,
    frame: FrameKind = "pandas",
) -> Any:
    """Trade prints of recordings and trade tables.

    Files are messages of a market channel, hourly event files, answers of the Data API and of Kalshi, tables of trades,
    and tables of fills on chain. A print that was recorded twice, in one file or several, is one row. The taker's own
    leg of a fill repeats the sum of its makers' legs, so it is left out where accounts or roles tell it.

    Parameters
    ----------
    paths : path or list of paths
        Files, folders and patterns, as for `Archive.add_files`.
    format : str, optional
        Name of the format of all files, where their columns fit several.
    columns : dict, optional
        The column of the files that has one of our names, such as ``{"ts": "when"}``.
    clock : str
        "timestamp", the time of the venue, "received", or the name of a column.
    token_id : str, optional
        The token of trades that name none, for one file. ``"{name}"`` is the name of each file.
    time_format : str, optional
        Form of dates that are no ISO 8601, such as ``"%m/%d/%Y"``.
    sides : dict, optional
        What words of the files for a side mean, such as ``{"1": "buy", "-1": "sell"}``.
    frame : {"pandas", "polars"}
        Kind of the result.

    Returns
    -------
    frame
        One row per print, by market, token and time: ``ts market_id token_id token_label side price size`` [UTC,
        probability, shares], then those of ``trade_id transaction_hash maker taker account role is_block fee`` that
        files have. ``side`` is what the taker did: "buy" or "sell"; in own fills it is what the account did, whose
        ``role`` is "taker" or "maker". A token whose market is not known is a market by itself.

    Raises
    ------
    ConfigError
        A file that was named has no trades.

    Warns
    -----
    RecordingWarning
        Rows without a price, a size or a time were left out, a side is no known word, or a file of a folder has no
        trades.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/trades.csv"
    >>> trade = {"timestamp": 1767225600, "asset_id": "7", "side": "BUY"}
    >>> pl.DataFrame([{**trade, "price": 0.48, "size": 30}]).write_csv(path)
    >>> md.read_trades(path)[["token_id", "side", "price", "size"]].to_numpy().tolist()
    [['7', 'buy', 0.48, 30.0]]
    """
    kind = frame_kind(frame)
    rows = recorded_trades(
        paths,
        ReadOptions(
            clock,
            format=format,
            columns=renamed_columns(columns),
            token_id=token_id,
            time_format=time_format,
            sides=given_sides(sides),
        ),
    )
    return frames.new(kind).build(
        {
            "ts": frames.times(rows["ts"].to_numpy()),
            **{name: Texts.of(rows[name].to_list()) for name in (*ID_COLUMNS, "side")},
            **{name: rows[name].to_numpy() for name in ("price", "size")},
            **{
                name: Texts.of(rows[name].to_list()) if kind_of == pl.String else rows[name].to_numpy()
                for name, kind_of in _KNOWN.items()
                if name in rows.columns and rows[name].null_count() < len(rows)
            },
        },
        len(rows),
    )


def recorded_trades(paths: Any, options: ReadOptions) -> pl.DataFrame:
    """The prints by market, token and time; warnings about rows and files that are left out."""
    parts, left_out = [], Counter[str]()
    files = files_of(paths)
    refuse_one_token(files, options)
    for path, is_named in files.items():
        tables = tables_of(path, options)
        for file in tables:
            try:
                for batch in _prints_of(file):
                    left_out += batch.left_out
                    for note in (note for note in batch.notes if UNKNOWN_SIDES in note):
                        warn(f"{file.name!r}: {note}.", RecordingWarning)
                    parts.append(batch.frames.get("trades", pl.DataFrame()))
            except ConfigError as problem:
                if is_named and len(tables) == 1:
                    raise
                warn(f"Left out {problem.problem}", RecordingWarning)
            if file.damage:
                warn(file.damage, RecordingWarning)
    parts = [part for part in parts if part.width]
    if not parts:
        raise ConfigError("No file has trades.", argument="paths", value=paths)
    market = pl.when(pl.col("market_id") == "").then("token_id").otherwise("market_id")
    rows = _with_texts(pl.concat(parts, how="diagonal_relaxed")).with_columns(market.alias("market_id"))
    once = _once(rows)
    left_out["recorded twice"] += len(rows) - len(once)
    del left_out["no trades"]
    if left_out := +left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        warn(f"Rows were left out of the trades: {reasons}.", RecordingWarning)
    return _without_repeated_legs(once).sort("market_id", "token_id", "ts", maintain_order=True)


def _prints_of(file: RecordingFile) -> Iterator[Batch]:
    table = Table(readable(file))
    chosen = format_of(table)
    read = chosen.read if chosen.kind == "trades" else chosen.trades
    if read is None:
        raise ConfigError(f"{file.name!r} has {chosen.kind} ({chosen.needed}), and no trades.")
    yield from read(table)


def prints_once(rows: pl.DataFrame) -> pl.DataFrame:
    """The prints of some whole markets, each once: without copies, and without repeated legs of takers."""
    return _without_repeated_legs(_once(_with_texts(rows)))


def _with_texts(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with all columns of texts that prints may have."""
    return rows.with_columns(pl.lit(None, pl.String).alias(name) for name in _TEXTS if name not in rows.columns)


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, each print once. Two rows are one print if its hash or id and all columns that both have agree."""
    has_id = pl.any_horizontal(pl.col("transaction_hash", "trade_id").is_not_null())
    numbered = rows.with_row_index("number")
    return numbered.filter(~has_id | (pl.col("number") == pl.col("number").first().over(_PRINT))).drop("number")


def _without_repeated_legs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without legs of takers that repeat the sum of the makers' legs of their transaction.

    A leg repeats others if its maker is the taker of another leg. So does the leg of a taker beside the leg of a maker.
    """
    is_maker, is_taker = (pl.col("role").eq_missing(role) for role in ("maker", "taker"))
    is_beside_maker = pl.col("transaction_hash").is_not_null() & is_maker.any().over("transaction_hash")
    is_known = pl.all_horizontal(pl.col("transaction_hash", "maker", "taker").is_not_null())
    takers = rows.filter(is_known, pl.col("maker") != pl.col("taker")).select(
        pl.struct("transaction_hash", maker="taker").unique().implode()
    )
    is_taker_of_another = is_known & pl.struct("transaction_hash", "maker").is_in(takers.to_series())
    return _without_balanced_legs(rows.filter(~(is_taker_of_another | (is_taker & is_beside_maker))))


def _without_balanced_legs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without one of the two sides of a transaction whose sizes add up to the same: they are one fill.

    The taker has one leg against several, or the last log. Legs of makers stay, with the side of the taker, or the leg
    of the taker where it bought one outcome from those who bought the other. Where nothing tells the taker, a leg of
    the first token stays, without a side.
    """
    group = ["transaction_hash", "market_id"]
    first = pl.col("token_id").min().over(group)
    is_plus = (pl.col("side") == "buy") == (pl.col("token_id") == first)
    plus, minus = (pl.col("size").filter(one).sum().over(group) for one in (is_plus, ~is_plus))
    counts = [one.sum().over(group) for one in (is_plus, ~is_plus)]
    log = pl.col("trade_id").str.extract(_LOG).cast(pl.Int64)
    last = is_plus.sort_by(log).last().over(group)
    is_known = pl.col("transaction_hash").is_not_null() & pl.col("side").is_not_null() & pl.col("role").is_null()
    is_pair = pl.col("token_id").n_unique().over(group) <= len(("buy", "sell"))
    facts = rows.with_columns(
        __plus=is_plus,
        __one=pl.col("token_id").n_unique().over(group) == 1,
        __both=is_known.all().over(group) & is_pair & (minus > 0) & ((plus - minus).abs() <= plus * _ROUNDING),
        __taker=pl.when((counts[0] == 1) & (counts[1] > 1)).then(pl.lit(value=True))
        .when((counts[1] == 1) & (counts[0] > 1)).then(pl.lit(value=False))
        .when(log.is_not_null().all().over(group)).then(last),
    )  # fmt: skip
    is_taker = pl.col("__plus") == pl.col("__taker")
    stays = pl.when(pl.col("__taker").is_null()).then((pl.col("side") == "buy") & (pl.col("token_id") == first))
    kept = facts.filter(~pl.col("__both") | stays.otherwise(is_taker != pl.col("__one")))
    other = pl.when(pl.col("side") == "buy").then(pl.lit("sell")).otherwise(pl.lit("buy"))
    side = pl.when(pl.col("__taker").is_null()).then(None).when(pl.col("__one")).then(other).otherwise("side")
    return kept.with_columns(pl.when("__both").then(side).otherwise("side").alias("side")).drop(
        "__plus", "__one", "__both", "__taker"
    )
