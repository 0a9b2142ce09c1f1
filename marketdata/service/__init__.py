"""The interface over HTTP, answered from an archive: an ASGI application, and two ways to run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marketdata.service.application import create_application
    from marketdata.service.server import run, serve

__all__ = ["create_application", "run", "serve"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from marketdata.service import application, server

    return getattr(application if name == "create_application" else server, name)
