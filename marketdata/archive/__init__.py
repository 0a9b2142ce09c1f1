"""An archive: history stored as Delta Lake tables at a path or an object-store address."""

from __future__ import annotations

from marketdata.archive.archive import Archive

__all__ = ["Archive"]
