"""Rows S12 to S15: what a cursor is good for."""

from __future__ import annotations

import random
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from service.conftest import delta_archive, small_archive
from service.memory import MINUTE, MemoryArchive
from service.web import START, Web, cases, stop_minute, window
from starlette.exceptions import HTTPException

from marketdata.archive import Archive
from marketdata.client import Client
from marketdata.errors import ConfigError
from marketdata.service.pagination import Cursors, stored_secret
from marketdata.service.plans import AccessPlan
from marketdata.service.server import CURSOR_FILE, serve

INVALID = (400, {"detail": "Invalid cursor"})
FACTS = ["books", "m1", None, "1m", 0, 60]


def first_cursor(web: Web, **more: object) -> str:
    return str(web.history("books", limit=4, **more).body["metadata"]["next_cursor"])


@pytest.mark.fault("S12")
def test_a_cursor_is_short_and_safe_in_a_url(ask: Web) -> None:
    """At most 512 characters of the URL-safe alphabet."""
    cursor = first_cursor(ask)
    assert len(cursor) <= 512
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_.")


@pytest.mark.fault("S12")
def test_every_bit_of_a_cursor_counts(ask: Web) -> None:
    """A cursor with any one bit changed, cut anywhere, or with anything added is 400."""
    cursor = first_cursor(ask)
    cursors = Cursors(b"one secret for the whole suite")
    facts = ["books", "m1", None, "1m", START, START + 180 * MINUTE]
    assert cursors.read(facts, cursor)
    mutants = [
        cursor[:i] + chr(ord(c) ^ (1 << bit)) + cursor[i + 1 :] for i, c in enumerate(cursor) for bit in range(7)
    ]
    mutants += [cursor[:i] for i in range(len(cursor))] + [cursor[i:] for i in range(1, len(cursor))]
    mutants += [cursor + more for more in ("=", "==", ".", " ", "\n", "A", "\0", "é")] + [" " + cursor]
    for mutant in mutants:
        with pytest.raises(HTTPException, match="Invalid cursor"):
            cursors.read(facts, mutant)
    for mutant in [*random.Random(0).sample(mutants, 20), "", "x", "null", "é" * 50, "A" * 6000]:
        answer = ask.history("books", limit=4, cursor=mutant)
        assert (answer.status, answer.body) == INVALID


@pytest.mark.fault("S12")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutants_are_never_good(data: st.DataObject) -> None:
    """Whatever is done to the text of a cursor, only the text itself is good."""
    cursors = Cursors(b"0123456789abcdef", clock=lambda: 1000.0)
    cursor = cursors.give(FACTS, "-120000000")
    at = data.draw(st.integers(0, len(cursor)))
    gone = data.draw(st.integers(0, 4))
    put = data.draw(st.text(st.sampled_from(string.ascii_letters + string.digits + "-_.=+/ "), max_size=4))
    mutant = cursor[:at] + put + cursor[at + gone :]
    if mutant == cursor:
        assert cursors.read(FACTS, mutant) == "-120000000"
    else:
        with pytest.raises(HTTPException, match="Invalid cursor"):
            cursors.read(FACTS, mutant)


@pytest.mark.fault("G15")
@pytest.mark.soak
def test_a_hundred_thousand_mutants_are_refused() -> None:
    """Of 100,000 mutated cursors not one is good."""
    source = random.Random(15)
    cursors = Cursors(b"0123456789abcdef", clock=lambda: 1000.0)
    alphabet = string.ascii_letters + string.digits + "-_."
    refused = 0
    for i in range(cases(100_000)):
        cursor = cursors.give(FACTS, str(i * MINUTE))
        letters = list(cursor)
        for _ in range(source.randint(1, 3)):
            letters[source.randrange(len(letters))] = source.choice(alphabet)
        mutant = "".join(letters)
        if mutant == cursor:
            mutant = cursor[:-1]
        try:
            cursors.read(FACTS, mutant)
        except HTTPException:
            refused += 1
    print(f"\n{refused} mutants refused")
    assert refused == cases(100_000)


@pytest.mark.fault("S12")
def test_a_cursor_is_bound_to_its_request(ask: Web) -> None:
    """With another market, view, resolution or range, or for a listing, it is 400; slug and id are one market."""
    cursor = first_cursor(ask)
    assert ask.history("books", "will-it-rain", limit=200, cursor=cursor).status == 200
    others = [
        ask.history("books", "m3", limit=4, cursor=cursor),
        ask.history("prices", limit=4, cursor=cursor),
        ask.history("metrics", limit=4, cursor=cursor),
        ask.history("books", limit=4, resolution="10m", cursor=cursor),
        ask.history("books", limit=4, hours=2, cursor=cursor),
        ask.get("/v1/tokens/2/books", limit=4, cursor=cursor, **window()),
        ask.get("/v1/markets", cursor=cursor),
        ask.get("/v1/events", cursor=cursor),
    ]
    assert [(a.status, a.body) for a in others] == [INVALID] * len(others)


@pytest.mark.fault("S12")
def test_a_repeated_or_empty_cursor_is_refused(ask: Web) -> None:
    """Two cursors, also two equal ones, and an empty one are 400."""
    cursor = first_cursor(ask)
    for given_ in ([cursor, cursor], [cursor, "x"], ["", cursor], ""):
        answer = ask.get("/v1/markets/m1/books", limit=4, cursor=given_, **window())
        assert (answer.status, answer.body) == INVALID


@pytest.mark.fault("S12")
def test_an_expired_cursor_and_a_foreign_secret_are_refused() -> None:
    """A cursor ends with its lifetime, and is read with its secret only."""
    now = [0.0]
    cursors = Cursors(b"old secret 012345", lifetime=10, clock=lambda: now[0])
    cursor = cursors.give(FACTS, "60")
    assert cursors.read(FACTS, cursor) == "60"
    with pytest.raises(HTTPException, match="Invalid cursor"):
        Cursors(b"new secret 012345", clock=lambda: now[0]).read(FACTS, cursor)
    now[0] = 10.5
    with pytest.raises(HTTPException, match="Invalid cursor"):
        cursors.read(FACTS, cursor)


def test_a_short_secret_is_refused() -> None:
    """A secret that could be guessed is a ConfigError."""
    with pytest.raises(ConfigError, match="16 bytes"):
        Cursors(b"short")


@pytest.mark.fault("S13")
def test_a_cursor_outlives_a_restart(tmp_path) -> None:
    """The secret is kept beside the archive with mode 0600, so the next service reads the cursor."""
    archive = delta_archive(small_archive(), tmp_path)
    pages = []
    cursor = None
    while cursor is not None or not pages:
        with serve(archive) as service, requests.Session() as session:
            body = Web(service.base_url, service.api_key, session).history("books", limit=100, cursor=cursor).body
        pages.append(body)
        cursor = body["metadata"]["next_cursor"]
    assert len(pages) == 3
    times = [row["t"] for body in pages for row in body["data"]["Yes"]]
    assert times == sorted(set(times))
    assert (tmp_path / CURSOR_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.fault("S13")
def test_services_that_start_at_once_share_the_secret(tmp_path) -> None:
    """Of many that make the secret at the same time all read the same one, and nothing else stays behind."""
    path = tmp_path / "secret"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: stored_secret(path), range(32)))
    assert len(found) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


@pytest.mark.fault("S13")
def test_without_a_place_the_secret_lives_with_the_process(tmp_path) -> None:
    """Where nothing can be written there is a secret all the same."""
    assert len(stored_secret(tmp_path / "no" / "folder" / "secret")) >= 32


@pytest.mark.fault("S14")
def test_a_cursor_goes_on_with_another_key(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor is accepted from another key; rate and plan are those of the key that shows it."""
    plans = {"pro": AccessPlan("pro"), "none": AccessPlan("none", views=("metrics",)), "slow": AccessPlan("slow", 1)}
    keys = {"a": "pro", "b": "pro", "c": "none", "d": "slow"}
    with serve(archive, keys=keys, plans=plans) as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        web = {key: Web(service.base_url, key, session) for key in keys}
        cursor = first_cursor(web["a"])
        same = web["a"].history("books", limit=4, cursor=cursor).body["data"]
        assert web["b"].history("books", limit=4, cursor=cursor).body["data"] == same
        assert web["c"].history("books", limit=4, cursor=cursor).status == 403
        assert web["d"].history("books", limit=4, cursor=cursor).status == 200
        assert web["d"].history("books", limit=4, cursor=cursor).status == 429


@pytest.mark.fault("S15")
def test_an_archive_that_grows_neither_repeats_nor_skips() -> None:
    """Points that arrive behind the walk do not shift it; points before it are met."""
    archive = small_archive()
    with serve(archive) as service, requests.Session() as session:
        web = Web(service.base_url, service.api_key, session)
        times: list[str] = []
        cursor = None
        for number in range(1000):
            body = web.history("prices", limit=20, cursor=cursor, hours=5).body
            times += [row["t"] for row in body["data"]["No"]]
            cursor = body["metadata"]["next_cursor"]
            if cursor is None:
                break
            if number < 5:
                archive.put("prices", "m1", "2", START + 3 * MINUTE, 0.1)  # a gap that the walk has passed
                archive.put("prices", "m1", "2", START + (200 + number) * MINUTE, 0.2)  # still to come
        assert times == sorted(set(times))
        expected = [m for m in range(180) if m % 7 != 3] + [200 + i for i in range(5)]
        assert len(times) == len(expected)


def test_an_archive_without_points_is_served_twice(tmp_path: Path) -> None:
    """The file that signs cursors makes no other folder of an empty one: it is served again, and lists nothing."""
    for _ in range(2):
        with serve(Archive(tmp_path)) as service:
            assert len(Client(service.base_url, service.api_key).markets()) == 0
