"""Dask frames: the rule for pandas frames, on partitions of all rows of their tokens.

A token that is spread over partitions is brought together first, lazily and without a sort. The index marks rows that
are together already: its values are the number of the partition, and its name lists the key columns (`home`). Results
of functions and scans of an archive have such an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from marketdata.adapters.frame import Native

_HOME = "__home"
_HOME_OF = "partition of "
_GAP = "\x1f"


def apply(
    frame: Native, function: Callable[[Native], Native], keys: Sequence[str], *, all_rows: bool = False
) -> Native:
    """Apply a function of pandas frames to each partition; ``keys`` brings equal ones together, ``all_rows`` all."""
    frame = frame.repartition(npartitions=1) if all_rows else _brought_together(frame, keys)
    meta = _whole(function, frame._meta)  # noqa: SLF001 as Dask itself reads it
    is_home = frame.known_divisions and _home_keys(frame.index) is not None
    return frame.map_partitions(partial(_whole, function), meta=meta, clear_divisions=not is_home)


def home(keys: Sequence[str], number: int, count: int) -> Native:
    """The index of a partition that shares no keys with another one."""
    import numpy as np
    import pandas as pd

    return pd.Index(np.full(count, number), name=_HOME_OF + " ".join(keys))


def _home_keys(index: Native) -> list[str] | None:
    """The keys of an index that `home` made; None for any other index."""
    name = str(index.name)
    return name.removeprefix(_HOME_OF).split() if name.startswith(_HOME_OF) else None


def _brought_together(frame: Native, keys: Sequence[str]) -> Native:
    """Each key in one partition, with keys that rise over the partitions."""
    import numpy as np

    count, home_keys = frame.npartitions, _home_keys(frame.index)
    # The function itself refuses a frame that lacks the ids.
    present = [c for c in keys if c in frame.columns]
    is_home = frame.known_divisions and home_keys is not None and {*home_keys} <= {*present}
    if count == 1 or not present or is_home:
        return frame
    names = frame.map_partitions(_names, present, meta=(_HOME, "str"), clear_divisions=True)
    every = names.drop_duplicates(split_out=1)

    def homed(part: Native, every: Any) -> Native:
        """A partition, 0 to count - 1, for each name; neighbouring names share one."""
        ordered = np.sort(np.asarray(every.unique(), dtype=object))
        place = np.searchsorted(ordered, np.asarray(_names(part, present), dtype=object))
        return part.assign(**{_HOME: place * count // max(len(ordered), 1)})

    meta = frame._meta.assign(**{_HOME: np.empty(0, np.int64)})  # noqa: SLF001
    homes = frame.map_partitions(homed, every, meta=meta, clear_divisions=True)
    # Shuffling from worker to worker does not support lists; a task per pair of partitions moves any column.
    method = "tasks" if any("list" in str(dtype) for dtype in frame.dtypes) else None
    homes = homes.set_index(_HOME, divisions=list(range(count + 1)), shuffle_method=method)
    return homes.rename_axis(index=_HOME_OF + " ".join(present))


def _names(part: Native, keys: list[str]) -> Native:
    """One text per row that is equal for equal keys, and sorts as they do, a null last."""
    import pandas as pd

    out = pd.Series("", index=part.index, dtype="str", name=_HOME)
    for key in keys:
        text = part[key].astype("object")
        out = out + ("0" + text.where(text.notna(), "").astype("str")).where(text.notna(), "1") + _GAP
    return out.astype("str")


def _whole(function: Callable[[Native], Native], part: Native) -> Native:
    out, keys = function(part.reset_index(drop=True)).reset_index(drop=True), _home_keys(part.index)
    if keys is not None and {*keys} <= {*out.columns}:
        out.index = home(keys, part.index[0] if len(part) else 0, len(out))
    return out
