"""Frames of several markets as one, with ids that stay categorical."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from marketdata.adapters.concat import below_each_other, checked_names
from marketdata.adapters.dispatch import F, in_memory, is_in_memory, read
from marketdata.adapters.widths import common_width, with_width
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.schema import Kind, kind_of

PRICED: tuple[Kind, ...] = ("books", "prices", "quotes")


def concat(frames: Iterable[F]) -> F:
    """Concatenate tidy frames, for example of several markets, and keep their ids categorical.

    ``pandas.concat`` turns categoricals of different categories into texts, which take many times the memory. Returns
    the rows of all ``frames`` (pandas, polars or Arrow, all of one library and one kind of rows) in their order, with a
    new index in pandas. Columns that a frame lacks are null, and times become UTC; nothing is sorted or
    deduplicated. The result carries the bucket width that all frames carry. ConfigError if there is no frame, or
    libraries or widths differ, NotTidyError if kinds of rows do.

    Examples
    --------
    >>> both = md.concat(
    ...     [md.testing.prices(markets=1), md.testing.prices(markets=2)]
    ... )
    >>> both["market_id"].cat.categories.tolist()
    ['rain', 'snow']
    """
    if not isinstance(frames, Iterable):
        raise ConfigError("is refused; pass a list of frames.", argument="frames", value=frames)
    tables: list[Any] = [read(frame) for frame in ([frames] if hasattr(frames, "columns") else frames)]
    if not tables:
        raise ConfigError("frames is empty; pass a list of at least one frame.")
    # Further columns of a kind may differ, the columns of a measure may not.
    kinds = [_rows_kind(checked_names(frame, place)) for place, frame in enumerate(tables)]
    other = next((place for place, kind in enumerate(kinds) if kind != kinds[0]), None)
    if other is not None:
        raise NotTidyError(
            f"frames[0] has rows of {kinds[0]}, frames[{other}] of {kinds[other]}; frames of one kind are concatenated."
        )
    for table, kind in zip(tables, kinds, strict=True):
        if kind in PRICED and is_in_memory(table):
            in_memory(table, [kind])
    width = common_width(tables)
    return with_width(below_each_other(tables), width)  # type: ignore[no-any-return]


def _rows_kind(columns: list[str]) -> str:
    if "ts" not in columns:
        return "records"
    try:
        return kind_of(columns)
    except NotTidyError:
        return f"the columns {sorted(columns)}"
