"""What an archive holds, in a line and as HTML: views, markets, time and size, from the commit logs alone."""

from __future__ import annotations

import html as escaping

from marketdata.archive.storage.files import FAR
from marketdata.archive.store import ArchiveStore
from marketdata.errors import MarketDataError
from marketdata.times import to_datetime


def _facts(store: ArchiveStore) -> dict[str, str] | None:
    """The summary of the newest versions; None where the archive cannot be read."""
    try:
        files = {view: table.version().files for view, table in store.points.items()}
        records, base = store.tables["markets"].version().files, str(store.base)
    except MarketDataError:
        return None
    points = [file for version_files in files.values() for file in version_files]
    times = [time for file in points if file.ts_max < FAR for time in (file.ts_min, file.ts_max)]
    return {
        "Archive": store.root,
        "Views": ", ".join(str(view) for view, view_files in files.items() if view_files) or "none",
        "Markets": f"{sum(file.rows for file in records):,}",
        "Time (UTC)": " to ".join(f"{to_datetime(time):%Y-%m-%d %H:%M}" for time in (min(times), max(times)))
        if times
        else "no points",
        "Base": base,
        "Size": f"{sum(file.size for file in (*points, *records)) / 1e6:,.1f} MB",
    }


def line(store: ArchiveStore) -> str:
    """One line; only the address where the archive cannot be read."""
    facts = _facts(store)
    if facts is None:
        return f"Archive({store.root!r})"
    _, views, markets, span, base, size = facts.values()
    count = f"{markets} market{'' if markets == '1' else 's'}"
    if views == "none":
        return f"Archive({store.root!r}): {count}, no points"
    return f"Archive({store.root!r}): {views} of {count}, {span} UTC at {base}, {size}"


def html(store: ArchiveStore) -> str:
    """A small table for notebooks."""
    rows = _facts(store) or {"Archive": store.root}
    cells = "".join(f"<tr><th>{name}</th><td>{escaping.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table>{cells}</table>"
