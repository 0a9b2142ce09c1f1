"""Dask frames: the rule for pandas frames, on partitions that hold whole tokens.

A token that is spread over partitions is brought together first, so each partition is a frame of its own. That
keeps the fast kernel, needs no sort of the whole, and is lazy: which token goes where is part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from marketdata.tidy.kinds import wrapped
from marketdata.tidy.schema import WHO

P = ParamSpec("P")
F = TypeVar("F")
R = TypeVar("R")
_Verb = Callable[Concatenate[F, P], R]
_HOME = "__home"
_GAP = "\x1f"


def by_partition(frame: Any, keys: Sequence[str], function: Callable[[Any], Any]) -> Any:
    """A function of pandas frames on a Dask frame; rows of equal keys are given to it together.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
    keys : sequence of str
        Columns whose values belong together.
    function : callable
        From a pandas frame to one; an empty frame gives the columns of the answer.

    Returns
    -------
    dask.dataframe.DataFrame
        As many partitions; over all of them the keys rise, as in a tidy frame. Nothing is computed.

    Examples
    --------
    >>> import pytest
    >>> dd = pytest.importorskip("dask.dataframe")
    >>> import pandas as pd
    >>> frame = dd.from_pandas(pd.DataFrame({"who": ["b", "a", "b"], "x": [1, 2, 3]}, index=[0, 1, 2]), npartitions=3)
    >>> by_partition(frame, ["who"], lambda part: part.sort_values(["who", "x"])).compute()["x"].tolist()
    [2, 1, 3]
    """
    return _mapped(_brought_together(frame, keys), function)


def apply(frame: Any, function: Callable[[Any], Any], keys: Sequence[str] | None, *, whole: bool = False) -> Any:
    """A function of pandas frames on each partition of a Dask frame; with ``keys`` rows of equal ones come together.

    With ``whole`` all rows come into one partition.
    """
    if whole:
        frame = frame.repartition(npartitions=1)
    elif keys:
        frame = _brought_together(frame, keys)
    return _mapped(frame, function)


def row_by_row(function: _Verb[F, P, R]) -> _Verb[F, P, R]:
    """A verb that needs no other row: on Dask it is called for each partition as it is."""
    return _on_partitions(function, lambda frame: frame)


def at_once(function: _Verb[F, P, R]) -> _Verb[F, P, R]:
    """A verb of few rows that needs them all: on Dask they come into one partition."""
    return _on_partitions(function, lambda frame: frame.repartition(npartitions=1))


def token_by_token(function: _Verb[F, P, R]) -> _Verb[F, P, R]:
    """A verb that needs all rows of a token, but not those of others: on Dask it is called for each partition."""
    return _on_partitions(function, partial(_brought_together, keys=WHO))


def market_by_market(function: _Verb[F, P, R]) -> _Verb[F, P, R]:
    """A verb that needs all rows of a market, but not those of others: on Dask it is called for each partition."""
    return _on_partitions(function, partial(_brought_together, keys=WHO[:1]))


def _on_partitions(function: _Verb[F, P, R], prepare: Callable[[Any], Any]) -> _Verb[F, P, R]:
    @wraps(function)
    def on_any_kind(frame: F, *args: P.args, **kwargs: P.kwargs) -> R:
        data = wrapped(frame)
        if not data.implementation.is_dask():
            return function(frame, *args, **kwargs)
        return _mapped(prepare(data.to_native()), lambda part: function(part, *args, **kwargs))  # type: ignore[no-any-return]

    # To a type checker the frame is by position only; by name it works too.
    return on_any_kind  # type: ignore[return-value]


def _brought_together(frame: Any, keys: Sequence[str]) -> Any:
    """Rows of equal keys in one partition; over the partitions the keys rise."""
    count = frame.npartitions
    # Who lacks the ids is told so by the verb itself.
    present = [c for c in keys if c in frame.columns]
    if count == 1 or not present:
        return frame
    names = frame.map_partitions(_names, present, meta=(_HOME, "str"), clear_divisions=True)
    every = names.drop_duplicates(split_out=1)
    homes = frame.map_partitions(_homed, every, present, count, meta=_with_home(frame), clear_divisions=True)
    return homes.set_index(_HOME, divisions=list(range(count + 1)))


def _mapped(frame: Any, function: Callable[[Any], Any]) -> Any:
    meta = _whole(function, frame._meta)  # noqa: SLF001 what Dask itself asks of a frame
    return frame.map_partitions(partial(_whole, function), meta=meta, clear_divisions=True)


def _with_home(frame: Any) -> Any:
    import numpy as np

    return frame._meta.assign(**{_HOME: np.empty(0, np.int64)})  # noqa: SLF001


def _names(part: Any, keys: list[str]) -> Any:
    """One text per row that is equal where the keys are, and sorts as they do: a null is last."""
    import pandas as pd

    out = pd.Series("", index=part.index, dtype="str", name=_HOME)
    for key in keys:
        text = part[key].astype("object")
        out = out + ("0" + text.where(text.notna(), "").astype("str")).where(text.notna(), "1") + _GAP
    return out.astype("str")


def _homed(part: Any, every: Any, keys: list[str], count: int) -> Any:
    """Neighbouring names share a home, 0 to count - 1."""
    import numpy as np

    ordered = np.sort(np.asarray(every.unique(), dtype=object))
    place = np.searchsorted(ordered, np.asarray(_names(part, keys), dtype=object))
    return part.assign(**{_HOME: place * count // max(len(ordered), 1)})


def _whole(function: Callable[[Any], Any], part: Any) -> Any:
    return function(part.reset_index(drop=True)).reset_index(drop=True)
