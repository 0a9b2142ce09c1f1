"""The client: one line from a market to a tidy frame."""

from marketdata.client.client import Client
from marketdata.client.history import read_pages

__all__ = ["Client", "read_pages"]
