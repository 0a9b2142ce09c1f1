"""Prices at fixed times before the end of their markets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, in_memory, read
from marketdata.adapters.frame import Column, Texts
from marketdata.adapters.widths import optional_width
from marketdata.errors import EmptyRangeWarning, warn
from marketdata.points.arguments import choice
from marketdata.points.asof import latest
from marketdata.points.columns import Floats, Ints, Series
from marketdata.points.life import ENDS
from marketdata.points.mirrors import mirrors
from marketdata.points.schema import ID_COLUMNS
from marketdata.resolution import Width
from marketdata.tidy.groups import combined
from marketdata.tidy.outcomes import lives_of, records_of
from marketdata.tidy.returns import probability_of
from marketdata.tidy.scores import FORECAST_KINDS
from marketdata.times import SECOND, Duration, to_durations


def before_end(
    frame: F,
    markets: Any,
    before: Duration | Iterable[Duration],
    width: Width | None = None,
    *,
    of: Literal["scheduled", "actual"],
) -> F:
    """The price of each market at fixed times before its end, from rows that were known then.

    Prices shortly before the actual end look ahead, because nobody knew that end: a question that is decided early ends
    early. The scheduled end was known.

    Parameters
    ----------
    frame
        Prices of any kind of frame, or books or bbo, whose mids count.
    markets : frame
        Market records, or the result of `outcomes`.
    before : str, timedelta or list of them
        How long before the end: "1d", "6h". The column ``before`` has them as texts.
    of : {"scheduled", "actual"}
        The end: ``end_date`` (``ends_at``), or ``closed_at``, and ``resolved_at`` where that is null. A market whose
        venue may have moved ``end_date`` to the close has no scheduled end.
    width : str or timedelta, optional
        Bucket width of the rows, by default that of the frame, if it carries one. A row is known at the end of its
        bucket. Without a width it is known once the next row of its token has begun.

    Returns
    -------
    frame
        One row per market and time before its end, by market and time; of a market of three tokens and more one per
        token. Of two tokens that have a price the first counts, as for `brier`.

        - ``ts``: the moment [UTC].
        - ``market_id token_id token_label``.
        - ``before``: the time to the end, as given.
        - ``price``: the last one that was known at ``ts`` [probability]. Null where none was, and where the market had
          closed before: then there was nothing to forecast.
        - ``age``: ``ts`` less the start of the bucket of the price [s].

    Warns
    -----
    EmptyRangeWarning
        Markets of the frame have no such end, and so no row.

    Examples
    --------
    >>> prices = md.testing.prices("polars")
    >>> markets = md.testing.markets("polars")
    >>> rows = md.before_end(prices, markets, ["1d", "12h"], of="actual", width="1m")
    >>> rows.select("token_label", "before", "price").rows()
    [('Yes', '1d', None), ('Yes', '12h', 0.43)]
    """
    frame = read(frame)
    choice("of", of, ENDS)
    durations = to_durations(before, "before", "['1d', '6h']")
    given = optional_width(frame, width)
    _, series, name = probability_of(in_memory(frame, FORECAST_KINDS))
    if given is not None:
        given.check(series.ts)
    ends = lives_of(markets)
    known = [(i, ends[token.market_id]) for i, token in enumerate(series.tokens) if token.market_id in ends]
    known = [(i, end) for i, end in known if end.end(of) is not None]
    _warn_of_no_end({token.market_id for token in series.tokens}, {series.tokens[i].market_id for i, _ in known}, of)
    token = np.repeat(np.array([i for i, _ in known], np.int64), len(durations))
    which = np.tile(np.arange(len(durations)), len(known))
    end = np.repeat(np.array([end.end(of) for _, end in known], np.int64), len(durations))
    over = np.repeat(np.array([end.over for _, end in known], float), len(durations))
    moment = end - np.array([*durations.values()], np.int64)[which]
    row = _last_known(series, token, moment, None if given is None else given.micros)
    price = np.where((row < 0) | (over <= moment), np.nan, np.append(series.values[name], np.nan)[row])
    chosen = _counted(series, token, moment, price, markets)
    token, which, row = token[chosen], which[chosen], row[chosen]
    market = np.unique([one.market_id for one in series.tokens], return_inverse=True)[1]
    order = np.lexsort((token, moment[chosen], market[token]))
    token, which, row, at = token[order], which[order], row[order], moment[chosen][order]
    price = price[chosen][order]
    age = np.where(np.isnan(price), np.nan, (at - np.append(series.ts, 0)[row]) / SECOND)
    columns: dict[str, Column] = {"ts": frames.times(at)}
    columns |= {c: Texts(token, [getattr(one, c) for one in series.tokens]) for c in ID_COLUMNS}
    columns |= {"before": Texts(which, [*durations]), "price": price, "age": age}
    return as_kind_of(frame, columns, len(at))  # type: ignore[no-any-return]


def _last_known(series: Series, token: Ints, moment: Ints, width: int | None) -> Ints:
    """The last row of each token that is known at the moment, -1 for none."""
    if width is not None:
        return latest(token, moment - width, series.token, series.ts, exact=True)
    row = latest(token, moment, series.token, series.ts, exact=True) - 1
    return np.where((row >= 0) & (np.append(series.token, -1)[row] == token), row, -1)


def _counted(series: Series, token: Ints, moment: Ints, price: Floats, markets: Any) -> Ints:
    """The rows that count: of two tokens the first, or the only one with a price."""
    records, has_price = records_of(markets), ~np.isnan(price)
    market = np.unique([one.market_id for one in series.tokens], return_inverse=True)[1]
    _, place = combined([market[token].astype(np.int64), moment])
    is_priced = np.bincount(place, has_price) > 0
    rows = np.flatnonzero(has_price | ~is_priced[place])
    return rows[~mirrors(series.tokens, token[rows], moment[rows], records).left_out]


def _warn_of_no_end(markets: set[str], known: set[str], of: str) -> None:
    if lacking := sorted(markets - known):
        warn(
            f"{len(lacking)} of {len(markets)} markets of the frame have no {of} end and so no row, such as "
            f"{lacking[0]!r}.",
            EmptyRangeWarning,
            hint=(
                "Give market records with closed_at."
                if of == "actual"
                else "Where a venue moves the time at the close, only a record that was saved while the market was "
                "open has it: an archive keeps it. Another schedule in the records, such as latest_expiration_time of "
                "Kalshi, counts under the name ends_at."
            ),
        )
