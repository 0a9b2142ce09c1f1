"""Fixtures of recordings."""

from archive.conftest import recorded

__all__ = ["recorded"]
