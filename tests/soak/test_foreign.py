"""Ten thousand frames that the library did not write: each call is right, or refuses and says what to do."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pytest
from reference import foreign, tables
from reference.foreign_cases import CASES, Case, Rows, judged, plain_rows

from marketdata.archive import Archive

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")]
SLICES, EACH = 10, 1_000
NESTED = 4


def kept(frame: Any, view: str) -> Rows:
    """Return a frame that was added to an archive and read again."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(folder)
        archive.add(**{view: frame})
        assert len(archive.verify()) == 0
        markets = archive.markets()["market_id"].to_list()
        return plain_rows(getattr(archive, view)(markets)) if markets else []


ALL_CASES = CASES | {
    "archive.add books": Case("books", lambda f: kept(f, "books"), tables.with_sentinels),
    "archive.add prices": Case("prices", lambda f: kept(f, "prices"), lambda frame: frame),
    "archive.add metrics": Case("metrics", lambda f: kept(f, "metrics"), lambda frame: frame),
}


@pytest.mark.parametrize("part", range(SLICES))
def test_no_foreign_frame_is_taken_wrongly(part: int) -> None:
    """A thousand calls over all functions and libraries give no wrong value and no untyped error."""
    counts, failed = Counter[str](), []
    names = list(ALL_CASES)
    for number in range(part * EACH, (part + 1) * EACH):
        name = names[number % len(names)]
        view = ALL_CASES[name].view
        is_nested = view == "books" and number // len(names) % NESTED == 0
        drawn = foreign.of_seed("nested" if is_nested else view, str(number))
        verdict, text = judged(name, ALL_CASES[name], drawn)
        counts[verdict] += 1
        if verdict in ("wrong", "untyped"):
            failed.append(f"{number} {verdict}: {name}, {drawn.container}, {drawn.fault}, {drawn.how}: {text}")
    print(f"{EACH} calls: {dict(counts)}")
    assert not failed, "\n".join(failed[:20])
