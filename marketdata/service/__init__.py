"""The interface over HTTP, answered from an archive: an ASGI application, and two ways to run it."""

from __future__ import annotations

from marketdata.service.application import create_application
from marketdata.service.server import run, serve

__all__ = ["create_application", "run", "serve"]
