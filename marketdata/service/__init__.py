"""The interface over HTTP, answered from an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marketdata.service.server import run, serve

__all__ = ["run", "serve"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from marketdata.service import server

        return getattr(server, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
