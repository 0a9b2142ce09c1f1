"""The same columns as every kind of frame, and the rows of any frame as plain values."""

from __future__ import annotations

import math
from typing import Any

import narwhals as nw
from hypothesis import settings

from marketdata.tidy.frames import to_frame

KINDS = ["pandas", "polars", "lazy", "shuffled pandas", "shuffled polars", "arrow"]
# For tests that run over every kind: each kind adds its examples.
few = settings(max_examples=max(8, settings().max_examples // 5))
WHO = ["market_id", "token_id", "token_label"]


def of_kind(columns: Any, kind: str) -> Any:
    """The same columns as a frame of one kind."""
    frame = to_frame(columns, "pandas" if "pandas" in kind else "polars")
    if kind == "lazy":
        return frame.lazy()
    if kind == "arrow":
        return frame.to_arrow()
    if kind == "shuffled pandas":
        return frame.sample(frac=1, random_state=7)
    return frame.sample(fraction=1, shuffle=True, seed=7) if kind == "shuffled polars" else frame


def rows(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of any frame as plain Python values; null and NaN are None."""
    data = nw.from_native(frame)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    data = data.with_columns(nw.col(c).cast(nw.String) for c in (*WHO, "side") if c in data.columns)
    columns = [data["ts"].dt.timestamp("us").to_list()]
    columns += [data[c].to_list() for c in data.columns if c != "ts"]
    plain = [[None if not isinstance(v, str) and str(v) in ("None", "<NA>", "nan") else v for v in c] for c in columns]
    return list(zip(*plain, strict=True))


def close(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]], *, digits: float = 1e-12, least: float = 1e-15) -> bool:
    """Equal rows; floats to 1e-12, or to other digits where a formula cancels some."""
    return len(a) == len(b) and all(
        len(x) == len(y)
        and all(
            (
                math.isclose(p, q, rel_tol=digits, abs_tol=least)
                if isinstance(p, float) and isinstance(q, float)
                else p == q
            )
            for p, q in zip(x, y, strict=True)
        )
        for x, y in zip(a, b, strict=True)
    )
