"""Frames for people: slugs, questions and labels from market records, short ids, and Yes before No."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, in_memory, is_in_memory, names_of, run
from marketdata.adapters.frame import Frame, Native, Texts
from marketdata.display import in_zone, library, shortened
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import texts
from marketdata.points.mirrors import label_rank
from marketdata.points.records import TOKEN_LISTS
from marketdata.points.schema import ID_COLUMNS, Kind, require
from marketdata.tidy.records import columns_of
from marketdata.times import to_zone


def named(frame: F, markets: Any, columns: str | Iterable[str] = ("slug", "question")) -> F:
    """Add the slug and the question of each market, and the label of each token, to a frame with ids.

    Returns the frame, rows as they were, with text columns at its end, dictionary encoded: a million rows grow by a few
    megabytes, not by the text of each row. A market without a record has nulls. ``token_label`` is added or completed
    where the frame has ``token_id``; a label that the frame has stays.

    Parameters
    ----------
    frame
        Any kind of frame with ``market_id``: books, prices, metrics, trades, fills, results.
    markets
        Market records of any kind of frame, as ``client.markets()`` and ``archive.markets()`` give them.
    columns : str or list of str
        The text columns of the records to add.

    Raises
    ------
    ConfigError
        The records lack a column of ``columns``, or it has no texts.
    NotTidyError
        A frame lacks ``market_id``, or two records of a market differ.

    Examples
    --------
    >>> prices = md.testing.prices(buckets=1)
    >>> md.named(prices, md.testing.markets())["slug"].tolist()
    ['rain-tomorrow', 'rain-tomorrow']
    """
    wanted = texts("columns", columns, "the name of a column of the market records")
    data = columns_of(markets, dict.fromkeys(("market_id", *TOKEN_LISTS, *wanted)))
    require("markets, a frame of market records,", ["market_id"], data)
    if missing := [name for name in wanted if name not in data]:
        raise ConfigError(f"columns names {', '.join(map(repr, missing))}, which the records lack.", argument="columns")
    of_market = {name: _by_market(data, name) for name in wanted}
    labels = _labels(data)

    def with_names(part: Frame) -> Native:
        require("A frame with ids", ["market_id"], part.names)
        ids = [name for name in ID_COLUMNS if name in part.names]
        tokens, which = frames.distinct_ids(part, ids)
        rows: list[dict[str, str | None]] = [dict(zip(ids, token, strict=True)) for token in tokens]
        found = {name: [by.get(row["market_id"]) for row in rows] for name, by in of_market.items()}
        if "token_id" in ids:
            found["token_label"] = [row.get("token_label") or labels.get(row["token_id"]) for row in rows]
        coded = {name: Texts.of(values) for name, values in found.items()}
        return frames.with_columns(part, {name: Texts(one.codes[which], one.texts) for name, one in coded.items()})

    names = names_of(frame)
    if "ts" not in names and is_in_memory(frame):
        return with_names(in_memory(frame))  # type: ignore[no-any-return]
    # The side of a trade or a fill is no side of a book.
    kinds: tuple[Kind, ...] = ("trades",) if "side" in names and "level" not in names else ("books", "series")
    return run(frame, with_names, kinds, partition_by="row", keep_extra=True)


def _by_market(data: Mapping[str, list[Any]], name: str) -> dict[str | None, str | None]:
    """A text of each market; NotTidyError where two records of one market differ."""
    found: dict[str | None, str | None] = {}
    for market, text in zip(data["market_id"], data[name], strict=True):
        if text is not None and not isinstance(text, str):
            raise ConfigError(f"columns names {name!r}, which has {type(text).__name__}s; allowed are texts.")
        if found.setdefault(market, text) != text:
            raise NotTidyError(f"Two records of the market {market!r} differ in {name}; keep one of them.")
    return found


def _labels(data: Mapping[str, list[Any]]) -> dict[str | None, str | None]:
    """The label of each token by its id."""
    if not data.keys() >= {*TOKEN_LISTS}:
        return {}
    lists = zip(*(data[name] for name in TOKEN_LISTS), strict=True)
    pairs = (zip(ids, labels, strict=False) for ids, labels in lists if ids is not None and labels is not None)
    return {str(token): label for pair in pairs for token, label in pair}


class Shown:
    """A frame as `show` displays it."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return repr(self._frame)

    def _repr_html_(self) -> str:
        return str(self._frame._repr_html_())


def show(frame: Any, *, id_width: int | None = 16, tz: str | None = None) -> Shown:
    """A frame to print or to end a cell with, its long ids shortened.

    Returns an object with the text and HTML of the pandas or polars DataFrame. Ids longer than ``id_width`` characters
    are shortened, and different ids stay different. ``id_width`` is at least 6. None shortens no id. Rows that are
    sorted by token begin with Yes in each market, whichever id is smaller; the index of pandas stays with its row.
    ``tz`` is a time zone, such as "America/New_York", in which times are shown; by default they stay as they are.

    Examples
    --------
    >>> prices = md.testing.prices().assign(market_id="0x" + "12" * 32)
    >>> print(md.show(prices[["market_id", "price"]].head(1), id_width=12))
          market_id  price
    0  0x1212…21212    0.4
    """
    if library(frame) not in ("pandas", "polars") or type(frame).__name__ == "LazyFrame":
        raise ConfigError(
            f"md.show takes a pandas or polars DataFrame, not {type(frame).__name__}; collect or convert it first."
        )
    if id_width is not None and not (type(id_width) is int and id_width >= 6):
        raise ConfigError("is refused; allowed are None and whole numbers from 6.", argument="id_width", value=id_width)
    shown = shortened(yes_first(frame), id_width)
    return Shown(shown if tz is None else in_zone(shown, to_zone(tz, "tz").key))


def yes_first(frame: Any) -> Any:
    """A pandas or polars DataFrame to be shown: of each market the rows of Yes, Up or Home come first.

    Any frame whose rows are not sorted by market and token is given back as it is.
    """
    names = [str(name) for name in frame.columns]
    if not {*ID_COLUMNS} <= {*names} or len(frame) < 2:
        return frame
    try:
        tokens, which = frames.distinct_ids(in_memory(frame), [*ID_COLUMNS])
    except NotTidyError:  # a frame need not be tidy to be shown
        return frame
    starts = np.flatnonzero(np.diff(which, prepend=-1))
    if len(starts) != len(tokens):
        return frame
    markets = [tokens[token][0] for token in which[starts]]
    place = {market: number for number, market in enumerate(dict.fromkeys(markets))}
    keys = [(place[tokens[token][0]], label_rank(tokens[token][2])[0]) for token in which[starts]]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    if order == [*range(len(keys))]:
        return frame
    ends = [*starts[1:], len(which)]
    rows = np.concatenate([np.arange(starts[one], ends[one]) for one in order])
    return frame.iloc[rows] if library(frame) == "pandas" else frame[rows]
