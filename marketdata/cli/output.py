"""Frames and records on stdout: a table in a terminal, CSV or JSON in a pipe, never shortened there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from marketdata.display import shortened
from marketdata.errors import ConfigError
from marketdata.tidy.names import yes_first

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
        data, most = yes_first(data.lazy().collect()), rows or _TABLE_ROWS
        count = len(data)
        if count:
            console().print(table(data, most, columns=columns), crop=False)
        if count > most:
            typer.echo(more or f"... {most:,} of {count:,} rows; --out FILE or --csv writes them all")
        _note(count, empty)
    elif fmt == "json":
        lines = _plain(data.lazy().slice(0, rows)).collect().write_ndjson().split("\n")[:-1]
        sys.stdout.write("[\n" + ",\n".join(lines) + "\n]\n")
        _note(len(lines), empty)
    else:
        if fmt == "csv":
            sys.stdout.write(
                _plain(pl.DataFrame(schema=data.lazy().collect_schema()), lists=False).collect().write_csv()
            )
        stream(data.lazy().collect_batches(maintain_order=True), rows, fmt, empty)


def stream(
    parts: Iterable[pl.DataFrame], rows: int | None, fmt: Format = "ndjson", empty: str = "there are no rows."
) -> None:
    """Print frames as lines as they arrive; after `rows` rows nothing more is requested."""
    count = 0
    for part in parts:
        shown = _plain(part.slice(0, None if rows is None else rows - count), lists=fmt != "csv").collect()
        sys.stdout.write(shown.write_ndjson() if fmt == "ndjson" else shown.write_csv(include_header=False))
        sys.stdout.flush()
        count += len(shown)
        if count == rows:
            break
    _note(count, empty)


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
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    typer.echo(text)


def table(data: pl.DataFrame, rows: int | None = None, *, columns: Sequence[str] | None = None) -> Table:
    """The first rows, one line each: ids and long texts shortened, slugs and ids of keys whole, times to the minute."""
    import polars as pl
    import polars.selectors as cs
    from rich.table import Table
    from rich.text import Text

    head, available = data.select(columns or data.columns).slice(0, rows), console().width
    numbers = set(head.select(cs.numeric()).columns)
    head = shortened(head, _ID_WIDTH if available >= _NARROW_TERMINAL else _ID_WIDTH_IF_NARROW)
    cells = {name: _texts(head[name]) for name in head.columns}
    # Cells stay whole if people copy them, if their ends tell them apart, or if they are no text.
    kinds = (pl.String, pl.Categorical, pl.Enum, pl.List)
    cut = [name for name in cells if head.schema[name] in kinds and not name.endswith(("id", "slug"))]
    shown = _fitting(cells, cut, available)
    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if left_out := [name for name in cells if name not in shown]:
        out.caption, out.caption_justify = f"... without {', '.join(left_out)}: --csv shows all", "left"
    for name in shown:
        # rich narrows the columns that may wrap, and a cell that may not is cut.
        look: dict[str, Any] = {"max_width": _LONGEST_TEXT} if name in cut else {"no_wrap": True}
        look |= {"justify": "right" if name in numbers else "left", "style": "dim" if name.endswith("_id") else ""}
        out.add_column(name, **look)
    for row in zip(*(cells[name] for name in shown), strict=True):
        out.add_row(*(Text(text, _CELL_STYLES.get(text, ""), no_wrap=True, overflow="ellipsis") for text in row))
    return out


def _fitting(cells: Mapping[str, Sequence[str]], cut: Sequence[str], available: int) -> list[str]:
    """The columns that fit in a row if texts are cut; ids are left out first, then the last columns, but no slug."""
    least = {name: max(map(len, [name, *texts])) for name, texts in cells.items()}
    least |= {name: min(least[name], _SHORTEST_TEXT) for name in cut}
    while sum(least.values()) + 2 * (len(least) - 1) > available and len(least) > 1:
        del least[min(least, key=lambda name: (name == "slug", not name.endswith("_id"), -list(cells).index(name)))]
    return list(least)


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
    if not column.dtype.is_float():
        return [_cell(value) for value in column]
    # Show five digits of the largest number, two of the smallest, and no trailing zero that all have.
    powers = column.abs().filter(column.is_finite() & (column != 0)).log10().floor().cast(pl.Int64).sort().to_list()
    decimals = max([0, *(4 - power for power in powers[-1:]), *(1 - power for power in powers[:1])])
    texts = ["-" if number is None else f"{number:,.{decimals}f}" for number in column]
    zeros = [len(text) - len(text.rstrip("0")) for text in texts if text != "-"] if decimals else []
    spare = min(zeros, default=0)
    return [text if text == "-" else text[: len(text) - spare].removesuffix(".") for text in texts]


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

    def as_json(values: pl.Series) -> str:
        return json.dumps(values.to_list(), ensure_ascii=False)

    lazy: pl.LazyFrame = data.lazy().with_columns(
        cs.datetime().dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ"), (cs.categorical() | cs.enum()).cast(pl.String)
    )
    return lazy if lists else lazy.with_columns(cs.list().map_elements(as_json, return_dtype=pl.String))
