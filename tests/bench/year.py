"""A year of many markets, scaled down: pulled by two processes into one archive, compacted, and read from S3."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import marketdata as md
from bench.measure import Table
from marketdata.archive import Archive

# What is pulled of a market: pages of 100 minutes of books and prices of two tokens, and of 200 of metrics.
_YEAR, _MARKETS, _PER_MINUTE = 365 * 1440, 1_000, 2_000
PAGES = 2 * (_YEAR // 100) + _YEAR // 200
_PULL = """
import sys
import marketdata as md
address, key, root, start, end, *markets = sys.argv[1:]
md.Archive(root).pull(md.Client(address, key), markets, start=start, end=end, progress=False)
"""


def run(*, quick: bool = False) -> list[Table]:
    """Pull, compact, verify; then the requests of queries to an object store."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        origin = md.simulate(root / "origin", events=1 if quick else 4, days=1 if quick else 2, frame="polars")
        archive = Archive(root / "pulled", frame="polars")
        tables = [_pulled(origin, archive)]
        try:
            import moto.server  # noqa: F401
        except ModuleNotFoundError:
            return tables
        return [*tables, _requests(archive)]


def _pulled(origin: Archive, archive: Archive) -> Table:
    markets = [record["id"] for record in origin.records("markets")]
    covered = origin.coverage(frame="polars")
    span = [str(covered["start"].min()), str(covered["end"].max())]
    with md.serve(origin, requests_per_minute=1_000_000) as service:
        client = md.Client(service.base_url, service.api_key)
        before = client.usage()["limits"]["requests_remaining"]
        began = time.perf_counter()
        pulls = [
            subprocess.Popen(
                [sys.executable, "-c", _PULL, service.base_url, service.api_key, archive.location, *span, *part]
            )
            for part in (markets[0::2], markets[1::2])
        ]
        if any(pull.wait() for pull in pulls):
            raise RuntimeError("a pull failed")
        took = time.perf_counter() - began
        asked = before - client.usage()["limits"]["requests_remaining"] - 1
    if not archive.verify().is_empty():
        raise RuntimeError("what was pulled is not what was written")
    minutes = (covered["end"].max() - covered["start"].min()).total_seconds() / 60
    scale = _MARKETS * _YEAR / (len(markets) * minutes)
    rows = archive.scan("books").select("level").collect().height
    files, size = _files(archive)
    archive.compact()
    fewer, smaller = _files(archive)
    whole = PAGES * _MARKETS
    table = Table(
        f"{len(markets)} markets for {minutes / 1440:g} days, pulled by two processes into one archive",
        ["what", "here", f"1,000 markets for a year, {scale:,.0f} times as much"],
        [
            ["level rows", f"{rows:,}", f"{rows * scale / 1e9:,.0f} G"],
            ["requests", f"{asked:,}", f"{whole:,}"],
            ["time", f"{took:.0f} s", f"{whole / _PER_MINUTE / 1440:.1f} days at {_PER_MINUTE:,} requests a minute"],
            ["bytes of books, as pulled", f"{size:,}", f"{size * scale / 1e9:,.0f} GB"],
            ["bytes of books, compacted", f"{smaller:,}", f"{smaller * scale / 1e9:,.0f} GB"],
            ["files of books, as pulled", f"{files:,}", ""],
            ["files of books, compacted", f"{fewer:,}", f"{max(1, smaller * scale / 8e6):,.0f} of 8 MB"],
        ],
    )
    table.notes.append(f"{smaller / rows:.2f} bytes a level row.")
    return table


def _files(archive: Archive) -> tuple[int, int]:
    files = archive.files("books")
    return len(files), sum(Path(file).stat().st_size for file in files)


def _requests(archive: Archive) -> Table:
    """What queries ask of an object store."""
    from object_store import served

    market = archive.records("markets")[0]["id"]
    with served() as store:
        root = Path(archive.location)
        for path in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
            store.client.upload_file(str(path), "history", f"year/{path.relative_to(root)}")

        def opened() -> Archive:
            return Archive("s3://history/year", frame="polars", storage_options=store.options)

        used = opened()
        used.books(market)
        used.scan("prices")
        ways: dict[str, Callable[[], Any]] = {
            "books of a market, archive just opened": lambda: opened().books(market),
            "books of a market, archive in use": lambda: used.books(market),
            "scan of a market at 1h": lambda: used.scan("books", market, resolution="1h").collect(),
            "scan of all prices at 1h": lambda: used.scan("prices", resolution="1h").collect(),
            "coverage, archive just opened": lambda: opened().coverage(),
        }
        table = Table("Requests of a query to an object store", ["query", "GET and HEAD"])
        for name, way in ways.items():
            store.tell()
            way()
            seen = store.tell()[1]
            table.rows.append([name, str(seen.get("GET", 0) + seen.get("HEAD", 0))])
        table.notes.append(f"{len(used.files('books'))} file of books. GETs include listings of the commit logs.")
        return table
