"""The tokens and markets of a frame as charts draw them: in order, named, and broken at gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory
from marketdata.adapters.frame import Frame
from marketdata.adapters.normalization import is_missing
from marketdata.adapters.widths import carried_width
from marketdata.display import without_middle
from marketdata.errors import ConfigError
from marketdata.plot.chart import FAINT, PALETTE, Array
from marketdata.points.columns import Series

# Any stands for a frame of market records.
Questions = Mapping[str, str] | Any


class TokenSeries(NamedTuple):
    """Values of one token, ordered by time."""

    market_id: str
    token_id: str
    label: str
    ts: Array
    columns: dict[str, Array]
    width: int | None = None
    """The bucket width of the rows, if the frame carries it [microseconds]."""

    def broken(self, *names: str) -> list[Array]:
        """Times and columns, broken where the data has a gap."""
        return broken_at_gaps(self.ts, *(self.columns[name] for name in names), width=self.width)


def token_series(table: Frame, columns: Sequence[str], names: Mapping[str, str] | None = None) -> Iterator[TokenSeries]:
    """The rows of each token by time, or of each market, with its label or the name of its market in ``names``."""
    carried = carried_width(table.native)
    width = None if carried is None else carried.micros
    if table.kind == "trades":  # several prints may share a time
        table, rows = frames.sorted_rows(table)
        series = Series(rows.tokens, rows.bounds, rows.ts, {name: table.numbers(name) for name in columns})
    else:
        _, series = frames.sorted_series(table, columns)
    ts = series.ts.view("M8[us]")
    for (market, token, label), (a, b) in zip(series.tokens, pairwise(series.bounds.tolist()), strict=True):
        name = token_name(token, label) if names is None else market_name(names, market, 60)
        columns_of_token = {c: v[a:b] for c, v in series.values.items()}
        yield TokenSeries(market, token or "", name, ts[a:b], columns_of_token, width)


def coloured(tokens: Sequence[TokenSeries], value: str, what: str) -> list[tuple[TokenSeries, str, str]]:
    """Tokens in the order in which they are drawn, each with its colour and its text in the legend.

    If there are more tokens than colours, those with the greatest last value get one. The others share one entry.
    """
    most = len(PALETTE)
    ordered = tokens if len(tokens) <= most else sorted(tokens, key=lambda t: -last_value(t.columns[value]))
    further = f"{len(tokens) - most} further {what}"
    named = [(t, colour, t.label) for t, colour in zip(ordered, PALETTE, strict=False)]
    return [*((t, FAINT, further) for t in ordered[most:]), *named]


def last_value(values: Array) -> float:
    """The last value that is not NaN, else 0."""
    finite = values[~np.isnan(values)]
    return float(finite[-1]) if len(finite) else 0.0


def questions_of(markets: Questions) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Question (or slug) and ids of the tokens of each market id.

    Raises ConfigError for a frame without market records.
    """
    if (records := _records(markets)) is not None:
        titles = {r["id"]: r.get("question") or r.get("slug") for r in records}
        recorded = {r["id"]: [str(token["id"]) for token in r["tokens"] or ()] for r in records}
        return {market: text for market, text in titles.items() if text}, recorded
    if markets is None or isinstance(markets, Mapping):
        return dict(markets or {}), {}
    source = in_memory(markets)
    names = source.names
    key = next((c for c in ("market_id", "id") if c in names), None)
    text = next((c for c in ("question", "slug") if c in names), None)
    if key is None or text is None:
        raise ConfigError(
            "markets= is a mapping of market id to text, or a frame with market_id and question, as client.markets() "
            f"gives it, or a record, as client.market() gives it; this one has {', '.join(names)}."
        )
    ids = source.texts(key)
    tokens = zip(ids, source.raw("token_ids") if "token_ids" in names else (), strict=False)
    recorded = {m: [str(one) for one in token_ids] for m, token_ids in tokens if m and token_ids is not None}
    return {m: t for m, t in zip(ids, source.texts(text), strict=True) if m and t}, recorded


def _records(markets: Questions) -> list[Mapping[str, Any]] | None:
    """The records of ``client.market(id)`` or a list of them; None for anything else."""
    records = markets if isinstance(markets, list | tuple) else [markets]
    return list(records) if all(isinstance(r, Mapping) and "id" in r and "tokens" in r for r in records) else None


def is_simulated(markets: Questions) -> bool:
    """Whether a frame of market records has a market of a simulation."""
    if (records := _records(markets)) is not None:
        return any(bool(record.get("simulated")) for record in records)
    if markets is None or isinstance(markets, Mapping):
        return False
    source = in_memory(markets)
    return "simulated" in source.names and any(not is_missing(one) and bool(one) for one in source.raw("simulated"))


def market_name(questions: Mapping[str, str], market_id: str | None, most: int) -> str:
    """The question of a market, else its id, with at most ``most`` characters."""
    if market_id is not None and market_id in questions:
        return without_middle(questions[market_id], most)
    return f"market {without_middle(market_id or '?', 13)}"


def token_name(token_id: str | None, label: str | None) -> str:
    """The label of a token, else its id, shortened."""
    return label or without_middle(token_id or "", 13)


def broken_at_gaps(ts: Array, *values: Array, width: int | None = None) -> list[Array]:
    """The series with a NaN in every gap, so that no line bridges it.

    A gap is a missing bucket of this ``width`` [microseconds], or without it more than ten usual steps.
    """
    if len(ts) < 3 and (width is None or len(ts) < 2):
        return [ts, *values]
    step = np.diff(ts)
    usual = np.median(step) if width is None else np.timedelta64(width, "us").astype(step.dtype)
    gaps = np.flatnonzero(step > (10 if width is None else 1) * usual) + 1
    return [np.insert(ts, gaps, ts[gaps - 1] + usual), *(np.insert(v, gaps, np.nan) for v in values)]
