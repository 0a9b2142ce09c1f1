"""Cursors: signed, bound to a request, valid for a time."""

from __future__ import annotations

import string
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.memory import MINUTE
from reference.web import START, Web, in_process, window
from service.clocks import Clock
from service.conftest import small_archive
from starlette.exceptions import HTTPException

from marketdata.service.cursors import Cursors, stored_secret

INVALID = (400, {"detail": "Invalid cursor"})
FACTS = ["books", "m1", None, "1m", 0, 60]


@pytest.fixture
def cursor(local: Web) -> str:
    return str(local.history("books", limit=4).body["metadata"]["next_cursor"])


@pytest.mark.fault("S12")
@given(st.data())
def test_only_the_cursor_itself_is_good(data: st.DataObject) -> None:
    """Whatever is changed, cut or added, the text is refused; a cursor is short and safe in a URL."""
    cursors = Cursors(b"0123456789abcdef", Clock())
    cursor = cursors.issue(FACTS, -120_000_000)
    assert len(cursor) <= 512
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_.")
    place, cut = data.draw(st.integers(0, len(cursor))), data.draw(st.integers(0, 4))
    added = data.draw(st.text(st.sampled_from(string.ascii_letters + string.digits + "-_.=+/ é\0"), max_size=4))
    mutant = cursor[:place] + added + cursor[place + cut :]
    if mutant == cursor:
        assert cursors.read(FACTS, mutant) == -120_000_000
    else:
        with pytest.raises(HTTPException, match="Invalid cursor"):
            cursors.read(FACTS, mutant)


@pytest.mark.fault("S12")
def test_every_last_character_counts() -> None:
    """A signature has two bits that decode to nothing: the three other spellings of it are refused as well."""
    cursors = Cursors(b"0123456789abcdef", Clock())
    cursor = cursors.issue(FACTS, 60)
    for last in set(string.ascii_letters + string.digits + "-_") - {cursor[-1]}:
        with pytest.raises(HTTPException):
            cursors.read(FACTS, cursor[:-1] + last)


@pytest.mark.fault("S12")
def test_a_cursor_is_bound_to_its_request(local: Web, cursor: str) -> None:
    """With another market, view, resolution or range, or for a listing, it is 400; slug and id are one market."""
    assert local.history("books", "will-it-rain", limit=200, cursor=cursor).status == 200
    others = [
        local.history("books", "m3", limit=4, cursor=cursor),
        local.history("prices", limit=4, cursor=cursor),
        local.history("books", limit=4, resolution="10m", cursor=cursor),
        local.history("books", limit=4, hours=2, cursor=cursor),
        local.get("/v1/tokens/2/books", limit=4, cursor=cursor, **window()),
        local.get("/v1/markets", cursor=cursor),
        *(local.history("books", limit=4, cursor=bad) for bad in ([cursor, cursor], "", "x", "é", "A" * 6000)),
    ]
    assert [(a.status, a.body) for a in others] == [INVALID] * len(others)


@pytest.mark.fault("S12")
def test_a_cursor_ends_after_its_lifetime_and_with_its_secret() -> None:
    """It is read with the secret that signed it, for its lifetime by the clock of the service."""
    clock = Clock(0.0)
    cursors = Cursors(b"old secret 012345", clock, lifetime=10)
    cursor = cursors.issue(FACTS, 60)
    clock.now = 10.0
    assert cursors.read(FACTS, cursor) == 60
    with pytest.raises(HTTPException):
        Cursors(b"new secret 012345", clock).read(FACTS, cursor)
    clock.now = 10.5
    with pytest.raises(HTTPException):
        cursors.read(FACTS, cursor)


@pytest.mark.fault("S13")
def test_a_cursor_outlives_a_restart(stored) -> None:
    """The secret is kept beside the archive, for its owner alone, so the next service reads the cursor."""
    times, cursor = [], None
    for _ in range(3):
        body = in_process(stored, secret=None).history("books", limit=100, cursor=cursor).body
        times += [row["t"] for row in body["data"]["Yes"]]
        cursor = body["metadata"]["next_cursor"]
    assert cursor is None
    assert times == sorted(set(times))
    from pathlib import Path

    assert Path(stored.location, "_cursor.secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.fault("S13")
def test_services_that_start_at_once_share_the_secret(tmp_path) -> None:
    """All read the same one, and nothing else stays behind; where nothing can be written there is one all the same."""
    path = tmp_path / "secret"
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: stored_secret(path), range(32)))) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]
    assert len(stored_secret(tmp_path / "no" / "folder" / "secret")) >= 32


@pytest.mark.fault("S15")
def test_an_archive_that_grows_neither_repeats_nor_skips() -> None:
    """Points that arrive behind the position do not shift it; points before it are met."""
    archive = small_archive()
    web, times, cursor = in_process(archive), list[str](), None
    for number in range(1000):
        body = web.history("prices", limit=20, cursor=cursor, hours=5).body
        times += [row["t"] for row in body["data"]["No"]]
        cursor = body["metadata"]["next_cursor"]
        if cursor is None:
            break
        if number < 5:
            archive.put("prices", "m1", "2", START + 3 * MINUTE, 0.1)
            archive.put("prices", "m1", "2", START + (200 + number) * MINUTE, 0.2)
    assert times == sorted(set(times))
    assert len(times) == len([m for m in range(180) if m % 7 != 3]) + 5
