"""Frames and records on stdout: a table in a terminal, CSV or JSON in a pipe, never shortened there."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from marketdata.display import shortened
from marketdata.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.table import Table

Format = Literal["table", "csv", "json", "ndjson"]
_TABLE_ROWS = 10
_LONGEST_TEXT, _SHORTEST_TEXT = 60, 20
_NARROW_TERMINAL = 100
_ID_WIDTH, _ID_WIDTH_IF_NARROW = 16, 9
_CELL_STYLES = {"bid": "green", "ask": "red", "-": "dim"}


def choose(*, as_json: bool = False, as_csv: bool = False, as_ndjson: bool = False) -> Format:
    """The format that the options name (at most one); by default a table in a terminal and CSV in a pipe."""
    flags: dict[Format, bool] = {"json": as_json, "csv": as_csv, "ndjson": as_ndjson}
    named = [name for name, wanted in flags.items() if wanted]
    if len(named) > 1:
        raise ConfigError(f"{' and '.join('--' + name for name in named)} exclude each other; give one of them.")
    return named[0] if named else "table" if sys.stdout.isatty() else "csv"


def show(
    data: Any,
    fmt: Format,
    rows: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    empty: str = "there are no rows.",
    more: str = "",
) -> None:
    """Print a polars frame, eager or lazy.

    A table has `columns` only, and below it `more` if rows are left out. A pipe gets everything.
    """
    import polars as pl

    if fmt == "table":
        data, most = data.lazy().collect(), rows or _TABLE_ROWS
        count = len(data)
        if count:
            console().print(table(data, most, columns=columns), crop=False)
        if count > most:
            typer.echo(more or f"... {most:,} of {count:,} rows; --out FILE or --csv writes them all")
    else:
        data = data.lazy() if rows is None else data.lazy().head(rows)
        if fmt == "json":
            lines = _plain(data).collect().write_ndjson().split("\n")[:-1]
            sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
            count = len(lines)
        else:
            if fmt == "csv":
                header = pl.DataFrame(schema=data.collect_schema())
                sys.stdout.write(_plain(header, lists=False).collect().write_csv())
            count = _lines(data.collect_batches(maintain_order=True), fmt)
    _note(count, empty)


def stream(parts: Iterable[pl.DataFrame], rows: int | None) -> None:
    """Print frames as JSON lines as they arrive; after `rows` rows nothing more is requested."""
    _note(_lines(_first(parts, rows), "ndjson"))


def _first(parts: Iterable[pl.DataFrame], rows: int | None) -> Iterator[pl.DataFrame]:
    for part in parts:
        if rows is None:
            yield part
            continue
        yield part.head(rows)
        rows -= min(rows, len(part))
        if not rows:
            return


def _lines(parts: Iterable[pl.DataFrame], fmt: Format) -> int:
    total = 0
    for part in parts:
        rows = _plain(part, lists=fmt != "csv").collect()
        sys.stdout.write(rows.write_ndjson() if fmt == "ndjson" else rows.write_csv(include_header=False))
        sys.stdout.flush()
        total += len(rows)
    return total


def write(data: Any, path: Path, *, as_json: bool = False) -> None:
    """Write a polars frame, eager or lazy, to a file (see `parameters.check_out`), and print how many rows."""
    import polars as pl

    from marketdata.adapters.polars import write_file

    write_file(data.lazy() if path.suffix == ".parquet" else _plain(data, lists=path.suffix != ".csv"), path)
    rows = data.lazy().select(pl.len()).collect().item()
    _note(rows)
    typer.echo(json.dumps({"rows": rows, "out": str(path)}) if as_json else f"{rows:,} rows in {path}")


def _note(rows: int, empty: str = "there are no rows.") -> None:
    if not rows:
        typer.echo(f"marketdata: {empty}", err=True)


def record(value: Mapping[str, object], *, as_json: bool, text: str) -> None:
    """Print one record: the text in a terminal, JSON in a pipe."""
    if as_json or not sys.stdout.isatty():
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_text))
    else:
        typer.echo(text)


def table(data: pl.DataFrame, rows: int | None = None, *, columns: Sequence[str] | None = None) -> Table:
    """The first rows, one line each: ids and long texts shortened, slugs and ids of keys whole, times to the minute."""
    import polars.selectors as cs
    from rich.table import Table
    from rich.text import Text

    head = data.select(columns or data.columns).head(len(data) if rows is None else rows)
    numbers = set(head.select(cs.numeric()).columns)
    available = console().width
    head = shortened(head, _ID_WIDTH if available >= _NARROW_TERMINAL else _ID_WIDTH_IF_NARROW)
    cells = {name: _texts(head[name]) for name in head.columns}
    cut = [name for name in cells if not _is_whole(name, head.schema[name])]
    shown = _fitting(cells, cut, available)
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if left_out := [name for name in cells if name not in shown]:
        out.caption, out.caption_justify = f"... without {', '.join(left_out)}: --csv shows all", "left"
    for name in shown:
        style = "dim" if name.endswith("_id") else ""
        most = _LONGEST_TEXT if name in cut else None
        # rich narrows the columns that may wrap, and a cell that may not is cut.
        out.add_column(name, justify="right" if name in numbers else "left", style=style, max_width=most,
                       no_wrap=name not in cut)  # fmt: skip
    for row in zip(*(cells[name] for name in shown), strict=True):
        out.add_row(*(Text(text, _CELL_STYLES.get(text, ""), no_wrap=True, overflow="ellipsis") for text in row))
    return out


def _is_whole(name: str, kind: pl.DataType) -> bool:
    """Whether cells are never cut: what is copied, or told from others by its end, and what is no text."""
    import polars as pl

    return name.endswith(("id", "slug")) or kind not in (pl.String, pl.Categorical, pl.Enum, pl.List)


def _fitting(cells: Mapping[str, Sequence[str]], cut: Sequence[str], available: int) -> list[str]:
    """The columns that fit beside each other if texts are cut: ids are left out first, then the last ones, no slug."""
    least = {name: max(map(len, [name, *texts])) for name, texts in cells.items()}
    least |= {name: min(least[name], _SHORTEST_TEXT) for name in cut}
    while sum(least.values()) + 2 * (len(least) - 1) > available and len(least) > 1:
        del least[min(least, key=lambda name: (name == "slug", not name.endswith("_id"), -list(cells).index(name)))]
    return [name for name in cells if name in least]


def console() -> Console:
    """A console for people: as wide as the terminal, in colour if it supports it (``NO_COLOR`` is respected)."""
    from rich.console import Console

    is_sized = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns if is_sized else 200
    return Console(width=width, height=50, highlight=False)  # without both a dumb terminal has 80 columns


def _texts(column: pl.Series) -> list[str]:
    """Cells: times to the minute, numbers of a column with equally many decimals, "-" for null."""
    import polars as pl

    if isinstance(column.dtype, pl.Datetime):
        column = column.dt.strftime("%Y-%m-%d %H:%M")
    if column.dtype.is_float():
        return _numbers(column.to_list())
    return [_cell(value) for value in column]


def _numbers(values: list[float | None]) -> list[str]:
    """Numbers with the decimals of their column: five digits of the largest one, two of the smallest."""
    sizes = [abs(v) for v in values if v and math.isfinite(v)] or [1.0]
    decimals = max(_decimals(max(sizes), 5), _decimals(min(sizes), 2))
    texts = ["-" if v is None else f"{v:,.{decimals}f}" for v in values]
    while decimals and all(text.endswith("0") or v is None for text, v in zip(texts, values, strict=True)):
        decimals -= 1
        texts = [text if v is None else text[:-1].removesuffix(".") for text, v in zip(texts, values, strict=True)]
    return texts


def _decimals(value: float, digits: int) -> int:
    """Decimals with which a number shows this many digits."""
    return max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 0


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:,}"
    return ", ".join(map(_cell, value)) if isinstance(value, Iterable) and not isinstance(value, str) else str(value)


def _plain(data: Any, *, lists: bool = True) -> pl.LazyFrame:
    """Ids as texts and times as ISO 8601 in UTC; lists as JSON text where the format has none."""
    import polars as pl
    import polars.selectors as cs

    lazy: pl.LazyFrame = data.lazy().with_columns(
        cs.datetime().dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"), (cs.categorical() | cs.enum()).cast(pl.String)
    )
    if lists:
        return lazy
    names = [name for name, kind in lazy.collect_schema().items() if isinstance(kind, pl.List)]
    return lazy.with_columns(pl.col(names).map_elements(_json_list, return_dtype=pl.String)) if names else lazy


def _json_list(values: pl.Series) -> str:
    return json.dumps(values.to_list(), ensure_ascii=False)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)
