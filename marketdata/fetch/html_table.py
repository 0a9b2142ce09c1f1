"""Names and values as a small HTML table, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable


def html_table(rows: Iterable[tuple[object, object]]) -> str:
    """Two columns; whatever the texts contain is shown as text."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"
