"""The functions that a page passes in the service are those that the page "How it works" names."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import requests
from service.conftest import delta_archive, small_archive
from service.web import Web, window

import marketdata
from marketdata.service.server import serve

PACKAGE = Path(marketdata.__file__).parent
PAGE = PACKAGE.parent / "docs" / "how_it_works.md"
# Functions of the package that a page which is read may enter, and those of the service among them.
MOST, MOST_OF_SERVICE = 117, 44


@pytest.fixture
def ran() -> Iterator[set[CodeType]]:
    """Functions of the package that threads started from now on have entered."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            found.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(note)
    yield found
    threading.setprofile(before)


def by_file(ran: set[CodeType]) -> dict[str, set[str]]:
    """Names of functions by file, once the answer is written; comprehensions are left out."""
    while not any(code.co_name == "_until_read" for code in set(ran)):
        time.sleep(0.01)
    found: dict[str, set[str]] = {}
    for code in set(ran):
        if "<" not in code.co_name:
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            found.setdefault(file, set()).add(code.co_qualname)
    return found


def test_a_page_passes_the_functions_that_are_named(tmp_path: Path, ran: set[CodeType]) -> None:
    """A second request of a page of books, which is then in memory, runs what the table says, and nothing else."""
    with serve(delta_archive(small_archive(), tmp_path)) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        # What is loaded at the start is no step of a page.
        for path in ("/coverage", "/v1/markets"):
            web.get(path)
        asked = {**window(), "limit": 20}
        cursor = web.get("/v1/markets/m1/books", **asked).body["metadata"]["next_cursor"]
        web.get("/v1/markets/m1/books", **asked, cursor=cursor)
        # The page behind it is read ahead, once.
        access = service._worker.connections._respond.__self__  # type: ignore[union-attr]
        while access._ahead or access.queue.in_flight:
            time.sleep(0.01)
        ran.clear()
        assert web.get("/v1/markets/m1/books", **asked, cursor=cursor).headers["content-encoding"] == "gzip"
        found = {file: names for file, names in by_file(ran).items() if file.startswith("service/")}
    rows = re.findall(r"^\| `(service/[\w/.]+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {file: set(re.findall(r"`([^`]+)`", functions)) for file, functions in rows}
    assert found == named
    # As the text above the table counts them.
    assert f"these {sum(map(len, named.values()))} functions" in PAGE.read_text(encoding="utf-8")


def test_a_page_that_is_read_passes_few_functions(tmp_path: Path, ran: set[CodeType]) -> None:
    """The first page of a market, in a process that has answered others, is read by a bounded number of functions."""
    with serve(delta_archive(small_archive(), tmp_path)) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        for path in ("/coverage", "/v1/markets"):
            web.get(path)
        web.get("/v1/markets/m1/prices", **window())
        ran.clear()
        assert web.get("/v1/markets/m1/books", **window()).status == 200
        found = by_file(ran)
    assert sum(map(len, found.values())) <= MOST, found
    assert sum(len(names) for file, names in found.items() if file.startswith("service/")) <= MOST_OF_SERVICE, found
