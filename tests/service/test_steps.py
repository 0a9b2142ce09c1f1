"""The functions that a page passes in the service are those that the page "How it works" names."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import requests
from service.conftest import delta_archive, small_archive
from service.web import Web, window

import marketdata
from marketdata.service.server import serve

PACKAGE = Path(marketdata.__file__).parent
PAGE = PACKAGE.parent / "docs" / "how_it_works.md"


def test_a_page_passes_the_functions_that_are_named(tmp_path: Path) -> None:
    """A second request of a page of books, which is then in memory, runs what the table says, and nothing else."""
    ran: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{PACKAGE}/service/"):
            ran.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(note)
    try:
        with serve(delta_archive(small_archive(), tmp_path)) as service, requests.Session() as session:
            web = Web(service.base_url, service.api_key, session)
            # What is loaded at the start is no step of a page.
            for path in ("/coverage", "/v1/markets"):
                web.get(path)
            asked = {**window(), "limit": 20}
            cursor = web.get("/v1/markets/m1/books", **asked).body["metadata"]["next_cursor"]
            web.get("/v1/markets/m1/books", **asked, cursor=cursor)
            # The page behind it is read ahead, once.
            time.sleep(0.5)
            ran.clear()
            assert web.get("/v1/markets/m1/books", **asked, cursor=cursor).headers["content-encoding"] == "gzip"
            while not any(code.co_name == "_until_read" for code in set(ran)):
                time.sleep(0.01)
            passed = set(ran)
    finally:
        threading.setprofile(before)
    found: dict[str, set[str]] = {}
    for code in passed:
        if "<" not in code.co_name:
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            found.setdefault(file, set()).add(code.co_qualname)
    rows = re.findall(r"^\| `(service/[\w/.]+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {file: set(re.findall(r"`([^`]+)`", functions)) for file, functions in rows}
    assert found == named
    # As the text above the table counts them.
    assert f"these {sum(map(len, named.values()))} functions" in PAGE.read_text(encoding="utf-8")
