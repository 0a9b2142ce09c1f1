"""A process that records until it is killed: the address of a stream, the folder, and the markets."""

from __future__ import annotations

import sys

import marketdata as md
import marketdata.archive.recording
import marketdata.stream.connection

if __name__ == "__main__":
    address, folder, *markets = sys.argv[1:]
    marketdata.stream.connection.PING_EVERY = 0.2
    marketdata.archive.recording._DECODE_EVERY = 0.05
    client = md.Client("polymarket", hosts={"stream": address, "clob": "http://127.0.0.1:9"})
    for report in md.Archive(folder).record(client, markets, commit_every=0.15):
        print(report.books, flush=True)
