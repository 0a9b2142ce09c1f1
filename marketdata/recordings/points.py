"""Tables of tidy points and of records, each read at once."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.order import same_as_before, sorted_by
from marketdata.points.records import COLUMNS
from marketdata.points.schema import ASK, BID, ID_COLUMNS
from marketdata.points.schema import COLUMNS as POINT_COLUMNS
from marketdata.recordings.book_rows import derived_markets
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.partitions import Partitions, read_rows
from marketdata.recordings.roles import (
    INDEX_NAMES,
    TEXT_ROLES,
    identified,
    is_time,
    numbers,
    refuse_two_outcomes,
)
from marketdata.recordings.table import GIVEN_AGAIN, Batch, FileKind, Table
from marketdata.recordings.units import is_probability
from marketdata.wire import kalshi
from marketdata.wire.records import OUTCOME_PAIRS, as_list, tokens_of_outcomes

OUTSIDE = "price outside of 0 to 1"
OUTCOMES, _UP_OR_DOWN = OUTCOME_PAIRS
_A_TICKER = r"^KX|^[A-Z0-9]+-"
_TEXTS = {*TEXT_ROLES, *ID_COLUMNS, *(name for names in COLUMNS.values() for name in names)}
_PRICES = ("price", "best_bid", "best_ask")
_FEW_QUOTES = 3
_FIRST_ROWS = re.compile(r", such as row .*")
# A second key of a table has few values, and most rows that repeat a time and a token differ by it.
_MOST_KEYS, _REPEATED = 20, 0.01


def read_points(
    table: Table,
    kind: FileKind,
    needed: tuple[str, ...],
    *,
    numbers_of: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    extra: bool = False,
) -> Iterator[Batch]:
    """The points of a table, without copies of rows and rows that lack a needed value or have prices outside of 0 to 1.

    The columns ``numbers_of`` have a number or nothing in each row. With ``extra``, which tidy tables have, a row of
    nothing is a missing value and stays, and so do further columns of numbers.
    """
    whole = Batch()
    with Partitions(table.bucket) as rows:
        for frame, batch in table.rows(prices=_PRICES):
            rows.add(frame)
            _count(batch, whole)
        refuse_damage(table.file)

        def points_of(part: pl.DataFrame, into: Batch) -> _Repeats:
            return _points_of(part, into, table, kind, needed, numbers_of, optional, extra=extra)

        if rows.is_small:
            given = rows.whole()
            if len(given):
                points_of(given, whole).refuse(table)
            yield whole
            return
        # What is wrong with the file is known before the first part is stored.
        found, repeats = list[tuple[Path, list[dict[str, Any]]]](), _Repeats()
        with tempfile.TemporaryDirectory(prefix="marketdata-import-") as folder:
            for number, part in enumerate(rows.parts()):
                batch = Batch()
                repeats += points_of(part, batch)
                points = batch.frames.pop(kind)
                _count(batch, whole)
                if len(points):
                    ts = points["ts"].dt.epoch("us").to_numpy() // table.bucket * table.bucket
                    whole.grid = np.gcd(whole.grid, np.gcd.reduce(ts))
                    found.append((Path(folder, f"{number}.arrow"), batch.markets))
                    points.write_ipc(found[-1][0], compression="lz4")
            repeats.refuse(table)
            yield whole
            for path, markets in found:
                yield Batch(frames={kind: read_rows(path)}, markets=markets, grid=whole.grid)
                path.unlink()


def _count(batch: Batch, whole: Batch) -> None:
    """Add the counts of a batch to those of the whole; of equal notes the first rows are named."""
    whole.rows += batch.rows
    whole.left_out += batch.left_out
    known = {_FIRST_ROWS.sub("", note) for note in whole.notes}
    whole.notes += [note for note in batch.notes if _FIRST_ROWS.sub("", note) not in known]


def _points_of(
    rows: pl.DataFrame,
    whole: Batch,
    table: Table,
    kind: FileKind,
    needed: tuple[str, ...],
    numbers_of: tuple[str, ...],
    optional: tuple[str, ...],
    *,
    extra: bool,
) -> _Repeats:
    """Add the points of some rows of a table: all rows of their markets and buckets."""
    names = ("market_id", "slug", "token_id", "token_label", *needed, *numbers_of, *optional)
    chosen = [name for name in dict.fromkeys(names) if name in rows.columns]
    if "market_id" in chosen and "slug" in chosen:
        chosen.remove("slug")
    points = rows.select("ts", "__row", *chosen, *(_further(rows, table) if extra else ()))
    for name in (n for n in points.columns if n not in ("ts", "__row", *_TEXTS)):
        values = pl.Series(name, numbers(points[name])).fill_nan(None)
        if name in numbers_of:
            said = points[name].cast(pl.String, strict=False).str.strip_chars().fill_null("")
            is_number = ~values.is_null() | said.str.to_lowercase().is_in(["", "nan", "null", "none"])
            points, values = left(points, is_number, f"whose {name} is no number", whole), values.filter(is_number)
        points = points.with_columns(values)
    if "token_id" in needed:
        points = _of_outcomes(points, whole) if table.has_tickers else _with_ids(points)
    for name in needed:
        is_present = pl.col(name).is_not_null() & (pl.col(name).cast(pl.String) != "")
        points = left(points, is_present, f"without a {name}", whole)
    if numbers_of and not extra:
        is_priced = pl.any_horizontal(pl.col(numbers_of).is_not_null())
        points = left(points, is_priced, f"without a {' or '.join(numbers_of)}", whole)
    repeats = _repeats(rows, points, table)
    is_export = kind == "quotes" and {*POINT_COLUMNS["quotes"]} <= {*table.file.columns}
    add_points(whole, kind, points, is_export=is_export)
    return repeats


class _Repeats(NamedTuple):
    """How many of some rows have the time and token of another one with other values, and what tells them apart."""

    again: int = 0
    rows: int = 0
    key: str | None = None

    def __add__(self, other: object) -> _Repeats:
        assert isinstance(other, _Repeats)
        return _Repeats(self.again + other.again, self.rows + other.rows, self.key or other.key)

    def refuse(self, table: Table) -> None:
        """ConfigError for a table in which many times of a token come again; a warning for some.

        So is one in which the token that ``token_id=`` gives has several values at a time.
        """
        again, count, key = self
        is_given = table.file.options.token_id is not None
        if not again or (again < count * _REPEATED and not is_given):
            return
        about = f"{table.file.name!r} has several rows for a token and a time"
        if key is not None:
            raise ConfigError(about + key)
        said = f"{about}: {again:,} of {count:,} are given again with other values"
        if again * 2 > count or is_given:
            raise ConfigError(f"{said}. Keep one of each.")
        warn(f"{said}; the last one counts.", RecordingWarning)


def _repeats(rows: pl.DataFrame, points: pl.DataFrame, table: Table) -> _Repeats:
    """What comes again among points of a table, and the column of its rows by whose values these differ."""
    keys = [name for name in ("ts", "market_id", "slug", "token_id") if name in points.columns]
    several = points.filter(_come_again(points, keys))
    distinct = several.drop("__row").unique()
    again = len(distinct) - distinct.select(keys).n_unique()
    if again < len(points) * _REPEATED and (not again or table.file.options.token_id is None):
        return _Repeats(again, len(points))
    of_points = {*keys, *_PRICES, *POINT_COLUMNS["metrics"], "token_label", "open", "high", "low", "close"}
    names = [n for n in rows.columns if n not in of_points and not n.startswith("__")]
    for name in (n for n in names if not rows[n].dtype.is_nested() and not rows[n].dtype.is_float()):
        values = rows[name].drop_nulls().unique().sort()
        if not 1 < len(values) <= max(_MOST_KEYS, len(rows) // 2):
            continue
        named = points.join(rows.select("__row", __key=name), on="__row")
        kept = named.drop("__row").unique()
        if (len(kept) - kept.select(*keys, "__key").n_unique()) * 10 < again:
            few = ", ".join(map(str, values.head(4).to_list()))
            column = table.columns.get(name, name)
            key = (
                f", which differ by {column} ({few}). Keep the rows of one of them, make a file of each, or, if "
                f"it says the token, name it with columns={{'token_id': {column!r}}}."
            )
            return _Repeats(again, len(points), key)
    return _Repeats(again, len(points))


def add_points(batch: Batch, kind: FileKind, points: pl.DataFrame, *, is_export: bool = False) -> Batch:
    """The batch with points of a kind, without impossible prices and copies of rows; a NaN is null.

    Quotes that an archive exported stay as they are; those of others may be crossed, or have zeros for empty sides.
    """
    prices = [name for name in _PRICES if name in points.columns]
    possible = left(points, is_probability(*prices), OUTSIDE, batch) if prices else points
    if kind == "quotes" and not is_export:
        possible = _without_empty_sides(possible)
    timed = possible.drop("__row", strict=False).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
    keys = [name for name in ("ts", "market_id", "slug", "token_id") if name in timed.columns]
    again = _come_again(timed, keys)
    if again.any():
        numbered = timed.with_row_index("__at")
        several = numbered.filter(again)
        distinct = several.unique(timed.columns, keep="first", maintain_order=True)
        batch.left_out["equal to another row"] += len(several) - len(distinct)
        if kind in ("prices", "quotes", "metrics"):
            distinct = last_of_each(distinct, tuple(keys), batch)
        timed = pl.concat([numbered.filter(~again), distinct]).sort("__at").drop("__at")
    batch.left_out = +batch.left_out
    batch.frames[kind] = timed
    return batch


def _come_again(points: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.bool_]:
    """Whether the time and the ids of each row are those of another one too."""
    codes = np.zeros(len(points), np.int64)
    for name in (n for n in keys if n != "ts"):
        ids = points[name]
        texts = (ids if ids.dtype == pl.Categorical else ids.cast(pl.String).cast(pl.Categorical)).to_physical()
        numbers_of = texts.cast(pl.Int64).fill_null(-1).to_numpy() + 1
        # A table has few ids, so the product of their numbers is far from the end of the type.
        codes = codes * (int(numbers_of.max(initial=0)) + 1) + numbers_of
    ts = points["ts"].to_physical().to_numpy()
    order = sorted_by(codes, ts)
    same = same_as_before(codes[order], ts[order])
    again = np.zeros(len(points), bool)
    again[order] = same | np.append(same[1:], False)[: len(same)]
    return again


def _without_empty_sides(quotes: pl.DataFrame) -> pl.DataFrame:
    """Quotes in which a bid of 0, and an ask of 0 or 1, mean that nobody is there."""
    bid, ask = pl.col("best_bid"), pl.col("best_ask")
    crossed = quotes.filter(bid > ask, ask > 0)
    both = quotes.filter(bid > 0, ask > 0)
    if len(both) >= _FEW_QUOTES and len(crossed) * 2 > len(both):
        raise ConfigError(
            f"best_bid is above best_ask in {len(crossed):,} of {len(both):,} rows. If the columns are called the "
            "other way round, name them with columns={'best_bid': ..., 'best_ask': ...}."
        )
    bids, asks = (
        [name for name in quotes.columns if name in (side, f"{side}_size")] for side in ("best_bid", "best_ask")
    )
    return quotes.with_columns(pl.when(bid > 0).then(pl.col(bids)), pl.when((ask > 0) & (ask < 1)).then(pl.col(asks)))


def left(rows: pl.DataFrame, kept: pl.Expr | pl.Series, reason: str, batch: Batch) -> pl.DataFrame:
    """The kept rows. Others are counted, and the first ones named by their number in the file."""
    remaining = rows.filter(kept)
    if count := len(rows) - len(remaining):
        batch.left_out[reason] += count
        first = rows.filter(~kept.fill_null(value=False)).get_column("__row", default=pl.Series()).head(3).to_list()
        if first:
            batch.notes.append(f"{reason}, such as row {', '.join(str(number + 1) for number in first)}")
    return remaining


def with_prices(rows: pl.DataFrame, names: list[str], batch: Batch) -> pl.DataFrame:
    """The rows with a price in at least one of these columns, and with no other number in any of them."""
    rows = rows.with_columns(pl.Series(name, numbers(rows[name])).fill_nan(None) for name in names)
    rows = left(rows, pl.any_horizontal(pl.col(names).is_not_null()), "without a price", batch)
    return left(rows, is_probability(*names), OUTSIDE, batch)


def last_of_each(rows: pl.DataFrame, names: tuple[str, ...], batch: Batch) -> pl.DataFrame:
    """The last row of each time and token; the others are counted."""
    last = rows.unique([name for name in names if name in rows.columns], keep="last", maintain_order=True)
    batch.left_out[GIVEN_AGAIN] += len(rows) - len(last)
    batch.left_out = +batch.left_out
    return last


def one_batch(table: Table, prices: tuple[str, ...] = ()) -> tuple[pl.DataFrame, Batch]:
    """All rows with a time, and the counts of the others."""
    parts, whole = [], Batch()
    for frame, batch in table.rows(prices=prices):
        parts.append(frame)
        whole.rows += batch.rows
        whole.left_out += batch.left_out
        whole.notes += [note for note in batch.notes if note not in whole.notes]
    refuse_damage(table.file)
    filled = [part for part in parts if part.width]
    rows = pl.concat(filled, how="diagonal_relaxed") if filled else pl.DataFrame()
    return rows, whole


def outcomes_of(table: Table) -> tuple[str, str]:
    """The labels of both outcomes, as the columns of their prices call them."""
    columns = [table.columns.get(name, "") for name in ("yes_price", "yes_bid", "yes_ask")]
    return _UP_OR_DOWN if any(column.startswith("up_") for column in columns) else OUTCOMES


def tokens_of_both(rows: pl.DataFrame, table: Table, batch: Batch) -> list[pl.Expr]:
    """The ids of Yes and No of each row: as the table names them, as Kalshi does, or derived from the market.

    The batch has the records of markets whose tokens the table does not name.
    """
    if "token_ids" in table.columns and rows["token_ids"].dtype == pl.String:
        if pair := tokens_of_outcomes(table.file.columns):
            names = ("token_ids" if name == table.columns["token_ids"] else name for name in pair.values())
            return [pl.col(name).cast(pl.String) for name in names]
        if {"token1", "token2"} <= set(table.file.columns):
            return [pl.col("token_ids").cast(pl.String), pl.col("token2").cast(pl.String)]
        lists = listed(rows["token_ids"])
        return [pl.lit(lists.list.get(i, null_on_oob=True)) for i in range(2)]
    markets = rows["market_id"].cast(pl.String).drop_nulls().unique(maintain_order=True)
    if table.columns.get("market_id") in ("ticker", "market_ticker") or markets.str.contains(_A_TICKER).all():
        batch.markets = [kalshi.market({"ticker": market}) for market in markets]
        return [pl.format("{}:{}", "market_id", pl.lit(label.lower())) for label in OUTCOMES]
    labels = outcomes_of(table)
    batch.markets = derived_markets(dict.fromkeys(markets, labels), {})
    return [pl.format("{}:{}", "market_id", pl.lit(label)) for label in labels]


def read_tidy_books(table: Table, names: list[str]) -> Iterator[Batch]:
    """The level rows of tidy books."""
    rows, whole = one_batch(table, ("price",))
    if len(rows):
        present = [name for name in names if name in rows.columns]
        points = rows.select("ts", "__row", *(n for n in present if n != "ts"))
        points = points.with_columns(
            pl.Series(name, numbers(points[name])).fill_nan(None) for name in ("level", "price", "size")
        )
        points = left(points, pl.col("token_id").cast(pl.String).fill_null("") != "", "without a token_id", whole)
        is_side = pl.col("side").cast(pl.String).is_in([BID, ASK]).fill_null(value=False)
        points = left(points, is_side, "whose side is neither bid nor ask", whole)
        add_points(whole, "books", points)
    yield whole


def _with_ids(points: pl.DataFrame) -> pl.DataFrame:
    """The rows with ids of tokens; a token without an id is named by its market and label."""
    if "token_id" in points.columns:
        refuse_two_outcomes(points)
        return points
    ids = identified(points)
    is_known = ids["market_id"] != ""
    return points.drop("market_id", "token_label", strict=False).with_columns(
        ids["market_id"], pl.when(is_known).then(ids["token_id"]).alias("token_id"), ids["token_label"]
    )


def _of_outcomes(points: pl.DataFrame, batch: Batch) -> pl.DataFrame:
    """The rows with the tokens of Kalshi: a ticker names the market, and a price without a label belongs to Yes."""
    ticker = pl.col("token_id").cast(pl.String)
    label = pl.col("token_label").cast(pl.String) if "token_label" in points.columns else pl.lit(None, pl.String)
    label = label.fill_null(OUTCOMES[0]).str.to_titlecase()
    batch.markets = [kalshi.market({"ticker": t}) for t in points.select(ticker).to_series().drop_nulls().unique()]
    if "token_label" not in points.columns:
        batch.notes.append("a ticker names a market: prices are those of Yes")
    return points.with_columns(
        ticker.alias("market_id"), pl.format("{}:{}", ticker, label.str.to_lowercase()).alias("token_id"),
        label.alias("token_label"),
    )  # fmt: skip


def _further(rows: pl.DataFrame, table: Table) -> list[str]:
    """Columns of numbers that have no role and are no times."""
    return [
        n for n in table.others
        if n in rows.columns and not rows[n].dtype.is_nested() and rows[n].null_count() < len(rows)
        and n not in INDEX_NAMES and not n.endswith(("_id", "_ts", "_ms", "_at")) and not is_time(rows[n])
        and not np.isnan(numbers(rows[n].drop_nulls())).any()
    ]  # fmt: skip


def _is_name(column: str) -> bool:
    return column in _TEXTS or column in ("ticker", "id") or column.endswith(("_id", "_ids", "_slug", "_hash"))


def refuse_damage(file: RecordingFile) -> None:
    """ConfigError for a damaged file: a part of it may not be stored as if it were the whole."""
    if file.damage:
        raise ConfigError(file.damage)


def listed(texts: pl.Series) -> pl.Series:
    """Lists of texts, as `as_list` reads them."""
    return pl.Series(texts.name, [as_list(text) for text in texts.to_list()], dtype=pl.List(pl.String), strict=False)


def typed(texts: pl.Series) -> pl.Series:
    """Truth values or numbers if they are written exactly as the texts, else the texts."""
    if _is_name(texts.name) or texts.null_count() == len(texts):
        return texts
    if texts.drop_nulls().str.to_lowercase().is_in(["true", "false"]).all():
        return texts.str.to_lowercase() == "true"
    tried = (texts.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((values for values in tried if values.cast(pl.String).eq_missing(texts).all()), texts)
