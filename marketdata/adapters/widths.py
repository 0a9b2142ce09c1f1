"""The bucket width that a frame carries: plain data in pandas and Arrow, an attribute in polars, nothing in engines.

Nothing depends on it alone. A copy may lose it; then ``width=`` is needed. If it no longer holds, the times of the rows
contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marketdata.adapters import frames
from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError
from marketdata.points.grids import RowWidth
from marketdata.resolution import BucketWidth, Width

_NAME = "marketdata_width"
_POLARS = ("polars.DataFrame", "polars.LazyFrame")


def with_width(frame: Any, width: BucketWidth | None) -> Any:
    """The frame, which now carries this width of its buckets or none; a frame of an engine carries none."""
    text = None if width is None else str(width)
    if frames.is_a(frame, "pandas.DataFrame"):
        frame.attrs = {name: value for name, value in frame.attrs.items() if name != _NAME}
        frame.attrs |= {} if text is None else {_NAME: text}
    elif frames.is_a(frame, *_POLARS):
        setattr(frame, f"_{_NAME}", text)
    elif frames.is_a(frame, "pyarrow.Table"):
        others = {name: value for name, value in (frame.schema.metadata or {}).items() if name != _NAME.encode()}
        return frame.replace_schema_metadata(others | ({} if text is None else {_NAME: text}))
    return frame


def carried_width(frame: Any) -> BucketWidth | None:
    """The bucket width that the frame carries, None if it carries none."""
    text: Any = None
    if frames.is_a(frame, "pandas.DataFrame"):
        text = frame.attrs.get(_NAME)
    elif frames.is_a(frame, *_POLARS):
        text = getattr(frame, f"_{_NAME}", None)
    elif frames.is_a(frame, "pyarrow.Table"):
        text = (frame.schema.metadata or {}).get(_NAME.encode(), b"").decode() or None
    return None if text is None else BucketWidth.of(text, "width")


def common_width(frames: Sequence[Any]) -> BucketWidth | None:
    """The width that all frames carry, None if one carries none; ConfigError if they differ."""
    widths = [carried_width(frame) for frame in frames]
    different = {str(width): place for place, width in reversed([*enumerate(widths)]) if width is not None}
    if len(different) > 1:
        each = ", ".join(f"{width} (frames[{place}])" for width, place in sorted(different.items(), key=lambda w: w[1]))
        raise ConfigError(
            f"frames have buckets of different widths: {each}. Rows of one frame have one width, which says when they "
            "are known.",
            hint="Bring them to one width first, with md.resample.",
        )
    return None if None in widths else widths[0]


def width_of(
    frame: Native,
    width: Width | BucketWidth | None,
    argument: str = "width",
    what: str = "the frame",
    otherwise: str = "",
) -> RowWidth:
    """The bucket width of a frame: what the argument says, else what the frame carries, else a ConfigError."""
    return RowWidth.of(width, carried_width(frame), argument, what, otherwise)


def optional_width(frame: Native, width: Width | None) -> RowWidth | None:
    """`width_of` for a function that needs no width: None if neither argument nor frame says it."""
    return RowWidth.optional(width, carried_width(frame))


def width_beside(frame: Native, width: Width | None, argument: str, what: str, books: RowWidth) -> RowWidth:
    """`width_of` for rows that are read beside books: by default they have the width of the books."""
    chosen = (
        f"If they are some of the rows of buckets of {books}, say when each was known in a column available_at, which "
        "is ts plus that width."
    )
    if width is None and carried_width(frame) is None:
        return RowWidth(books.width, argument, what, otherwise=chosen)
    return width_of(frame, width, argument, what, chosen)
