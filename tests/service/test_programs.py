"""Small programs as strangers write them for a vendor: only the address is changed, and they use requests alone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from reference.memory import MemoryArchive

from marketdata.points.views import VIEWS
from marketdata.service import serve
from marketdata.service.server import Service

SPAN = {"start_ts": "2026-01-05T00:00:00Z", "end_ts": "2026-01-05T03:00:00Z", "resolution": "1m"}


@pytest.fixture(scope="module")
def service(archive: MemoryArchive) -> Iterator[Service]:
    with serve(archive) as running:
        yield running


class Program:
    """A session with a key and an address; it waits after a 429, and follows cursors to their end."""

    def __init__(self, address: str, key: str) -> None:
        self.address = f"{address}/v1"
        self.session = requests.Session()
        self.session.headers["X-API-Key"] = key

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        while True:
            response = self.session.get(f"{self.address}/{path}", params=params, timeout=30)
            if response.status_code != 429:
                response.raise_for_status()
                body: dict[str, Any] = response.json()
                return body
            time.sleep(float(response.headers.get("Retry-After", 1)))

    def pages(self, path: str, **params: Any) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            page = self.get(path, **params, **({"cursor": cursor} if cursor else {}))
            yield page
            cursor = page["metadata"].get("next_cursor")
            if cursor is None:
                return


@pytest.fixture
def program(service: Service) -> Iterator[Program]:
    out = Program(service.base_url, service.api_key)
    yield out
    out.session.close()


def stored(archive: MemoryArchive, view: Any, market: str) -> set[tuple[str | None, int]]:
    """Token and time of each point of the archive."""
    columns = archive.columns(view, market)
    tokens = [columns.tokens[code].token_id for code in columns.token.tolist()]
    return set(zip(tokens, columns.ts.tolist(), strict=True))


def test_a_program_that_walks_every_endpoint(program: Program, archive: MemoryArchive) -> None:
    """Discovery leads to markets, those to tokens, and all histories are read without a word about limits."""
    assert program.get("health")["status"] == "ok"
    assert program.get("usage")["limits"]["requests_per_minute"] > 0
    assert "nature" in program.get("tags")["data"]
    for series in program.get("series")["data"]:
        for event in program.get("events", series_slug=series["slug"])["data"]:
            assert program.get("markets", event_slug=event["slug"])["data"]
    listed = [row for page in program.pages("markets", limit=2) for row in page["data"]]
    assert {row["id"] for row in listed} == {"m1", "m3", "wide"}
    market = program.get("markets/will-it-rain")
    for view in VIEWS:
        pages = list(program.pages(f"markets/{market['slug']}/{view}", **SPAN))
        assert sum(page["metadata"]["count"] for page in pages) == len(stored(archive, view, "m1"))
    for token in market["tokens"]:
        for view in ("books", "prices"):
            count = sum(len(page["data"]) for page in program.pages(f"tokens/{token['id']}/{view}", **SPAN))
            assert count == sum(1 for token_id, _ in stored(archive, view, "m1") if token_id == token["id"])


def test_a_program_that_joins_labels_with_tokens(program: Program, archive: MemoryArchive) -> None:
    """The labels of pages are those of the record of the market, so each price has its token."""
    ids = {token["label"]: token["id"] for token in program.get("markets/m1")["tokens"]}
    rows = set()
    for page in program.pages("markets/m1/prices", **SPAN, limit=200):
        assert page["tokens"] == ids
        rows |= {(ids[label], point["t"]) for label, points in page["data"].items() for point in points}
    assert len(rows) == len(stored(archive, "prices", "m1"))


def test_a_program_that_resumes_from_sqlite(service: Service, archive: MemoryArchive, tmp_path: Path) -> None:
    """Rows and cursor are committed together; a run that ends after two pages is continued by the next one."""

    def run(most_pages: int | None) -> None:
        program = Program(service.base_url, service.api_key)
        with sqlite3.connect(tmp_path / "history.db") as database:
            database.execute("create table if not exists prices (label, t, p, primary key (label, t))")
            database.execute("create table if not exists progress (market primary key, cursor)")
            row = database.execute("select cursor from progress where market = 'm1'").fetchone()
            cursor, pages = row[0] if row else None, 0
            while most_pages is None or pages < most_pages:
                page = program.get("markets/m1/prices", **SPAN, limit=50, **({"cursor": cursor} if cursor else {}))
                points = [(label, p["t"], p["p"]) for label, some in page["data"].items() for p in some]
                database.executemany("insert or ignore into prices values (?, ?, ?)", points)
                cursor, pages = page["metadata"]["next_cursor"], pages + 1
                database.execute("insert or replace into progress values ('m1', ?)", (cursor,))
                database.commit()
                if cursor is None:
                    break
        database.close()
        program.session.close()

    run(2)
    run(None)
    database = sqlite3.connect(tmp_path / "history.db")
    assert database.execute("select count(*) from prices").fetchone()[0] == len(stored(archive, "prices", "m1"))
    database.close()
