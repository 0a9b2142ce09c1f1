"""What an archive holds, in a line and as HTML: views, markets, time and size, from the commit logs alone."""

from __future__ import annotations

import html as escaping
from typing import NamedTuple

from marketdata.archive.storage.parquet import FAR
from marketdata.archive.store import ArchiveStore
from marketdata.errors import MarketDataError
from marketdata.times import to_datetime


class Summary(NamedTuple):
    """Views with points, the number of markets, the time from the first point to the last, and bytes."""

    views: list[str]
    markets: int
    span: str
    size: str


def summary_of(store: ArchiveStore) -> Summary:
    """The summary of the newest versions."""
    files = {view: table.version().files for view, table in store.points.items()}
    every = [file for some in files.values() for file in some]
    times = [at for file in every if file.ts_max < FAR for at in (file.ts_min, file.ts_max)]
    span = " to ".join(f"{to_datetime(at):%Y-%m-%d %H:%M}" for at in (min(times), max(times))) if times else ""
    records = store.tables["markets"].version().files
    size = sum(file.size for file in (*every, *records)) / 1e6
    views = [str(view) for view, some in files.items() if some]
    return Summary(views, sum(file.rows for file in records), span, f"{size:,.1f} MB")


def line(store: ArchiveStore) -> str:
    """One line; only the address where the archive cannot be read."""
    try:
        views, markets, span, size = summary_of(store)
    except MarketDataError:
        return f"Archive({store.root!r})"
    if not views:
        return f"Archive({store.root!r}): {markets:,} markets, no points"
    what = f"{', '.join(views)} of {markets:,} market{'s' if markets != 1 else ''}"
    return f"Archive({store.root!r}): {what}, {span} UTC at {store.base}, {size}"


def html(store: ArchiveStore) -> str:
    """A small table for notebooks."""
    try:
        views, markets, span, size = summary_of(store)
    except MarketDataError:
        return escaping.escape(line(store))
    rows = {
        "Archive": store.root,
        "Views": ", ".join(views) or "none",
        "Markets": f"{markets:,}",
        "Time (UTC)": span or "no points",
        "Base": str(store.base),
        "Size": size,
    }
    cells = "".join(f"<tr><th>{name}</th><td>{escaping.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table>{cells}</table>"
