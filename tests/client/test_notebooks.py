"""Notebooks show plans, reports, records and frames as text, and no bar stays."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections import Counter

import pytest

from marketdata.client.discovery import Record
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.plans import Plan

EVIL = "<script>alert('x')</script>"
SHOWN = {
    "plan": Plan(1, 2, 0.5, 1000, (EVIL,), 60),
    "report": Report(repairs=Counter({EVIL: 1}), warnings=Counter({EVIL: 2}), requests=3),
    "record": Record(question=EVIL, **{EVIL: 1}),
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_texts_of_a_service_are_shown_as_text(shown) -> None:
    """A table in a notebook runs nothing that a service wrote into a name or a value."""
    html = shown._repr_html_()
    assert html.startswith("<table>")
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_a_fetch_leaves_no_bar_behind(local_client) -> None:
    """Outside of a terminal, neither a fetch nor a plan prints anything."""
    slug = local_client.markets()["slug"][0]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        local_client.books(slug, "2025-12-31", "2026-01-01", "1h")
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_calls_work_inside_a_running_loop(local_client) -> None:
    """A notebook runs a loop all the time: a call works in it, and in a thread beside it."""
    slug = local_client.markets()["slug"][0]

    async def cell() -> None:
        span = ("2025-12-31", "2026-01-01", "6h")
        assert local_client.prices(slug, *span).equals(await asyncio.to_thread(local_client.prices, slug, *span))

    asyncio.run(cell())
