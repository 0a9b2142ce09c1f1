"""Who may ask for what, and how often: keys, plans, rates and hosts."""

from __future__ import annotations

import datetime as dt
import logging
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.memory import MemoryArchive
from reference.web import START, Web, in_process, window
from service.clocks import Clock

from marketdata.errors import ConfigError
from marketdata.service.access import RateLimiter
from marketdata.service.keys import KeyStore, add_key, digest, read_key_file, revoke_key

REFUSED = {"detail": "Invalid or expired API key."}
DAY = 86_400
PLANS = {
    "free": {"resolutions": ["1h", "1d"], "views": ["prices"], "max_history_days": 5},
    "pro": {},
}


@pytest.mark.fault("S1", "S2", "S3")
def test_keys_that_are_not_good_get_one_answer(local: Web) -> None:
    """Missing, empty, wrong, long, doubled and not ASCII: the same 401, and never 500."""
    doubled = (["key", "key"], ["key", "other"], ["other", "key"])
    for headers in ([], [""], ["wrong"], ["KEY"], ["kéy"], ["k" * 30_000], *doubled):
        sent = [("X-API-Key", key.encode()) for key in headers]
        answer = local.session.get("/v1/health", headers=sent)
        assert (answer.status_code, answer.json()) == (401, REFUSED)
    assert local.get("/v1/health").status == 200


@pytest.mark.fault("S1", "S6")
def test_a_key_ends_when_it_expires_or_is_revoked(tmp_path, archive: MemoryArchive) -> None:
    """It is good until the second of its expiry; of two entries of one key the stricter counts."""
    clock = Clock(START / 1e6)
    expires = dt.datetime.fromtimestamp(clock.now + 1, dt.UTC).isoformat()
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    ends = {"old": f"expires = {expires}", "gone": "revoked = true", "twin": "", "twin ": "revoked = true"}
    entries = [
        f"[[keys]]\nid = '{key}'\nplan = 'a'\nhash = '{digest(key.strip().encode())}'\n{end}"
        for key, end in ends.items()
    ]
    path.write_text("\n".join(["[plans.a]", *entries]))
    web = in_process(archive, keys=path, clock=clock)
    assert [web.as_key(key).get("/v1/health").status for key in ("old", "gone", "twin")] == [200, 401, 401]
    clock.now += 1
    assert web.as_key("old").get("/v1/health").status == 401


@pytest.mark.fault("S4", "S38")
def test_a_key_counts_in_its_headers_only_and_no_log_shows_it(local: Web, caplog: pytest.LogCaptureFixture) -> None:
    """In the query, as basic or in a cookie a key is 401, as are two; as bearer it counts. No log has it."""
    caplog.set_level(logging.DEBUG)
    nobody = local.as_key(None)
    assert nobody.get("/v1/health", api_key="key").status == 401
    for sent in ("Basic key", "key", "Bearer", "Bearer key key", "Bearer wrong"):
        assert nobody.get("/v1/health", {"Authorization": sent}).status == 401
    assert nobody.get("/v1/health", {"Authorization": "bearer key"}).status == 200
    assert local.get("/v1/health", {"Authorization": "Bearer key"}).status == 401
    assert nobody.get("/v1/health", {"Cookie": "X-API-Key=key"}).status == 401
    caplog.clear()
    assert local.get("/v1/markets/a%0d%0aforged%1b%E2%80%AE", secret="key").status == 422
    lines = [record.getMessage() for record in caplog.records if record.name == "marketdata.service.access"]
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert "GET /v1/markets/a%0d%0aforged" in lines[0]
    assert "secret" not in lines[0]


@pytest.mark.fault("S7")
def test_the_key_is_asked_first(local: Web) -> None:
    """Below /v1 everything without a key is 401, routes and methods that do not exist included."""
    for path in ("/v1/nowhere", "/v1", "/v1/", "/v1/markets/x/books", "/v1/health?limit=abc", "/v1//"):
        for method in ("GET", "POST", "OPTIONS"):
            answer = local.session.request(method, path)
            assert (answer.status_code, answer.json()) == (401, REFUSED)


ODD_HOSTS = [
    text.format("data.example.org")
    for text in (
        "{}@evil.example",
        "evil@{}",
        "{}/evil",
        "{}?evil",
        "{}#evil",
        "{}\\evil",
        "{}:1:2",
        "[{}]",
        "{}:1x",
        "/{}",
    )
]


@pytest.mark.fault("S8", "S43")
def test_the_host_header_is_one_of_the_names(archive: MemoryArchive) -> None:
    """Another name, or none, is 400 as JSON and is not repeated; ports and case do not matter."""
    web = in_process(archive, host_names=["Data.example.org", "::1"])
    for host in ("evil.example", "data.example.org.evil.example", "", "[", *ODD_HOSTS):
        answer = web.get("/v1/health", {"Host": host})
        assert (answer.status, answer.body) == (400, {"detail": "Invalid host header"})
    for host in ("data.example.org:1", "DATA.EXAMPLE.ORG", "[::1]:80"):
        assert web.get("/v1/health", {"Host": host}).status == 200
    two = web.session.get("/v1/health", headers=[("Host", "::1"), ("Host", "evil.example"), ("X-API-Key", "key")])
    assert two.status_code == 400


@pytest.mark.fault("S10")
def test_a_plan_refuses_view_resolution_and_lookback(archive: MemoryArchive) -> None:
    """Each has its own 403, in the words of a live service; the border instant is allowed, a second later is not."""
    clock = Clock(START / 1e6 + 5 * DAY)
    web = in_process(archive, keys={"f": "free", "p": "pro"}, plans=PLANS, clock=clock)
    refused = {
        ("books", "1h"): "Your plan does not allow historical order books",
        ("metrics", "1h"): "Your plan does not allow historical metrics",
        ("prices", "1m"): "Your plan does not allow 1m granularity. Minimum: 1h (allowed: 1h, 1d)",
    }
    for (view, resolution), detail in refused.items():
        answer = web.history(view, resolution=resolution)
        assert (answer.status, answer.body["detail"]) == (403, detail)
    assert web.get("/v1/tokens/2/prices", **window(1, "1h")).status == 200
    for offset, status in ((-1, 200), (0, 200), (1, 403)):
        clock.now = START / 1e6 + 5 * DAY + offset
        answer = web.history("prices", resolution="1h")
        assert answer.status == status
    assert answer.body["detail"] == "Your plan allows up to the last 5 days of historical data"
    assert web.as_key("p").history("books").status == 200


@pytest.mark.fault("S11")
def test_rights_are_checked_on_every_page(archive: MemoryArchive) -> None:
    """A cursor carries no rights: another key continues it by its own plan, and a border that moves ends it."""
    clock = Clock(START / 1e6 + 5 * DAY)
    web = in_process(
        archive, keys={"f": "free", "p": "pro", "n": "none"}, plans={**PLANS, "none": {"views": []}}, clock=clock
    )
    asked = {"resolution": "1h", "limit": 2}
    cursor = web.history("prices", **asked).body["metadata"]["next_cursor"]
    assert [web.as_key(key).history("prices", cursor=cursor, **asked).status for key in "fpn"] == [200, 200, 403]
    clock.now += 1
    assert [web.as_key(key).history("prices", cursor=cursor, **asked).status for key in "fp"] == [403, 200]


@pytest.mark.fault("S29")
def test_of_many_requests_at_once_the_plan_passes(archive: MemoryArchive) -> None:
    """Several threads send 40 on one key, and 25 pass; the others are 429 with a true Retry-After."""
    web = in_process(archive, keys={"a": "p", "b": "p"}, plans={"p": {"requests_per_minute": 25}})
    clock = web.session.app.state.service.limiter.clock = Clock()
    with web.session, ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: web.get("/v1/tags").status, range(40)))
    assert sorted(statuses) == [200] * 25 + [429] * 15
    refused = web.get("/v1/tags")
    assert (refused.status, refused.headers["retry-after"]) == (429, "61")
    assert refused.body == {"detail": "Rate limit exceeded. Please try again later."}
    assert web.as_key("b").get("/v1/tags").status == 200
    clock.now += 61
    usage = web.get("/v1/usage").body["limits"]
    assert (usage["requests_per_minute"], usage["requests_remaining"]) == (25, 24)


@pytest.mark.fault("S29", "S30")
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.5, 20.0, 59.9, 60.0, 60.1]), st.integers(1, 9)), max_size=40),
)
def test_a_rate_is_that_of_a_plain_list(asked: list[tuple[float, int]]) -> None:
    """With plans that change, what passes and what remains is counted over every window of 60 s, borders included."""
    clock = Clock()
    limiter, passed = RateLimiter(clock), list[float]()
    for pause, plan in asked:
        clock.now += pause
        recent = [at for at in passed if at >= clock.now - 60]
        until = recent[max(0, len(recent) - plan)] + 60 - clock.now if recent else 0.0
        assert limiter.remaining("k", plan) == (max(0, plan - len(recent)), until)
        wait = limiter.wait("k", plan)
        assert wait == (None if len(recent) < plan else math.floor(until) + 1)
        if wait is None:
            passed.append(clock.now)


@pytest.fixture
def key_file(tmp_path):
    """A key file with one plan."""
    path = tmp_path / "keys.toml"
    add_key(path, "pro")
    return path


@pytest.mark.fault("S6")
def test_a_revoked_key_ends_with_the_next_request(key_file, archive: MemoryArchive, caplog) -> None:
    """Changes of the file apply at once; a file that cannot be read, or that others may read, changes nothing."""
    (key, entry), (other, _) = add_key(key_file, "pro"), add_key(key_file, "pro")
    web = in_process(archive, keys=key_file).as_key(key)

    def statuses() -> list[int]:
        return [web.as_key(one).get("/v1/health").status for one in (key, other)]

    assert statuses() == [200, 200]
    whole = key_file.read_bytes()
    key_file.write_bytes(whole[: len(whole) // 2] + b'"')
    assert statuses() == [200, 200]
    assert "the keys before it stay in use" in caplog.text
    key_file.write_bytes(whole)
    key_file.chmod(0o644)
    assert statuses() == [200, 200]
    key_file.chmod(0o600)
    revoke_key(key_file, entry.id)
    assert statuses() == [401, 200]
    key_file.unlink()
    assert statuses() == [401, 401]
    assert key not in caplog.text


def find(path, key: str) -> object:
    """The rights of a key by a store that has just been made."""
    return KeyStore(path).find(key.encode())


@pytest.mark.fault("S6")
def test_a_key_file_holds_hashes_and_what_its_owner_wrote(tmp_path) -> None:
    """Adding and revoking keep mode, comments, order and spelling, follow a link, and store no key."""
    written = f"""# Keys of the desk; ask Ada before you change this.
[plans."pro \U0001f680"]   # the fast one
requests_per_minute = 2_000  # agreed in March

[[keys]]
id = "k_1"  # do not lend
plan = "pro \U0001f680"
hash = "{digest(b"old")}"
"""
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "keys.toml", tmp_path / "keys.toml"
    target.touch(0o600)
    target.write_text(written, encoding="utf-8")
    link.symlink_to(target)
    key, entry = add_key(link, "pro \U0001f680", organization='Desk "\U0001f40b" \\ 1\n')
    revoke_key(link, "k_1")
    text = target.read_text(encoding="utf-8")
    assert [line for line in written.splitlines() if line not in text.splitlines()] == []
    assert key not in text
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert [(e.id, e.organization, e.revoked) for e in read_key_file(link).keys] == [
        ("k_1", None, True),
        (entry.id, 'Desk "\U0001f40b" \\ 1\n', False),
    ]
    assert find(link, key) is not None
    assert find(link, "old") is None
    before = target.read_bytes()
    with pytest.raises(ConfigError, match="left as it was"):
        add_key(link, "pro \U0001f680", organization="\ud83d")
    with pytest.raises(ConfigError, match=r"plan 'gold' does not exist in keys.toml; allowed are pro"):
        add_key(link, "gold")
    with pytest.raises(ConfigError, match=r"no key 'k_nope'.*k_1"):
        revoke_key(link, "k_nope")
    assert target.read_bytes() == before


@pytest.mark.fault("S6")
def test_writers_at_the_same_time_lose_no_key(tmp_path) -> None:
    """Keys added by four threads, to a file that none of them finds, are all kept, and no other file stays."""
    path = tmp_path / "keys.toml"

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(lambda _: add_key(path)[1].id, range(12)))
    assert sorted(entry.id for entry in read_key_file(path).keys) == sorted(ids)
    assert {found.name for found in tmp_path.iterdir()} <= {"keys.toml", "keys.toml.lock"}


GOOD = f"[plans.a]\n[[keys]]\nid = 'k'\nplan = 'a'\nhash = 'sha256:{'0' * 64}'"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[plans.a]\nresolutions = ['7m']", "plans.a.resolutions"),
        ("[plans.a]\nviews = ['trades']", "plans.a.views"),
        ("[plans.a]\nrequests_per_minute = 0", "plans.a.requests_per_minute"),
        ("[plans.a]\nmax_history_days = nan", "plans.a.max_history_days"),
        ("[plans.a]\nrpm = 1", "plans.a.rpm"),
        ("plans = 3", "plans"),
        ("[[keys]]\nid = 'k'", "keys.0.hash"),
        (GOOD.replace("sha256:", "my secret key "), "keys.0.hash"),
        (GOOD.replace("plan = 'a'", "plan = 'b'"), "key 'k' names the plan 'b'; allowed are a"),
        (f"{GOOD}\nrevoke = true", "keys.0.revoke"),
        (f"{GOOD}\nrevoked = 'false'", "keys.0.revoked"),
        (f"{GOOD}\n{GOOD.partition(chr(10))[2]}", "two keys have one id"),
        ("=", "line 1"),
    ],
)
def test_a_key_file_with_a_mistake_says_which(key_file, archive: MemoryArchive, text: str, named: str) -> None:
    """Every mistake is a ConfigError with the file and the entry, before anything is served; no value is repeated."""
    key_file.write_text(text)
    with pytest.raises(ConfigError, match=f"keys.toml cannot be read: .*{named}") as refused:
        in_process(archive, keys=key_file)
    assert "secret" not in str(refused.value)


def test_a_key_file_is_there_and_private(key_file, archive: MemoryArchive) -> None:
    """A file that is missing, or that others may read, is a ConfigError that says what to do."""
    with pytest.raises(ConfigError, match="marketdata keys new"):
        in_process(archive, keys=key_file.with_name("none.toml"))
    key_file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        in_process(archive, keys=key_file)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"keys": {"": "local"}}, "empty key"),
        ({"keys": {"k": "gold"}, "plans": {"pro": {}}}, "'gold'; allowed are pro"),
        ({"plans": {"local": {"rpm": 1}}}, "plans.local.rpm"),
        ({"resolutions": ["30s"]}, "30s.*points of 1m"),
        ({"resolutions": ["1w"]}, "1w"),
        ({"resolutions": ["often"]}, "often"),
        ({"resolutions": []}, "is empty"),
        ({"secret": b"short"}, "16 bytes"),
    ],
)
def test_options_that_cannot_be_are_named(archive: MemoryArchive, options: dict, named: str) -> None:
    """A ConfigError says which argument was refused, and what is allowed."""
    with pytest.raises(ConfigError, match=named):
        in_process(archive, **options)
