"""Row S32: several processes answer at one address, and a key has one plan."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from service.apart import process
from service.conftest import delta_archive, small_archive
from service.test_protocol import stop_under_load
from service.web import window
from still import SOON

from marketdata.errors import ConfigError
from marketdata.service.auth import KeyFile, create_key_file
from marketdata.service.plans import AccessPlan
from marketdata.service.server import Service, serve

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes share a socket on POSIX")


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> KeyFile:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    create_key_file(path, {"small": AccessPlan("small", 50), "large": AccessPlan("large")})
    return KeyFile(path)


@pytest.fixture(scope="module")
def keys(key_file: KeyFile) -> Iterator[str]:
    """Keys of 50 requests a minute, which are there before the processes are."""
    return iter([key_file.add("small")[0] for _ in range(3)])


@pytest.fixture(scope="module")
def pair(key_file: KeyFile, keys: Iterator[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two processes."""
    archive = delta_archive(small_archive(), tmp_path_factory.mktemp("archive"))
    with serve(archive, keys=key_file.path, workers=2) as running:
        yield running


def ask(service: Service, key: str, path: str = "/v1/health", **params: str) -> requests.Response:
    """One request on a connection of its own, which any of the processes accepts."""
    return requests.get(service.base_url + path, params=params, headers={"X-API-Key": key}, timeout=SOON)


@contextlib.contextmanager
def halted(service: Service, number: int) -> Iterator[None]:
    """One process of a service stands still, so that another one accepts what comes."""
    pid = service._worker._running[number].pid
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def processes_of(answers: list[requests.Response]) -> int:
    """How many processes answered: each counts its requests from a start of its own."""
    return len({int(answer.headers["x-request-id"], 16) >> 24 for answer in answers})


@pytest.mark.fault("S29", "S32")
def test_a_plan_holds_over_all_processes(pair: Service, keys: Iterator[str]) -> None:
    """Of 200 requests at once exactly the 50 of the plan pass, whichever process answers; usage knows all of them."""
    key, other = next(keys), next(keys)
    answers, began = list[requests.Response](), time.monotonic()
    with ThreadPoolExecutor(32) as pool:
        for number in (0, 1):
            with halted(pair, number):
                answers += pool.map(lambda _: ask(pair, key), range(10))
        answers += pool.map(lambda _: ask(pair, key), range(180))
    minutes = (time.monotonic() - began) // 60
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(200) + statuses.count(429) == 200
    assert 50 <= statuses.count(200) <= 50 * (1 + minutes)
    assert processes_of(answers) == 2
    left = [ask(pair, other, "/v1/usage").json()["limits"]["requests_remaining"] for _ in range(8)]
    assert left == list(range(49, 41, -1))


@pytest.mark.fault("S13", "S32")
def test_a_walk_goes_on_in_another_process(pair: Service, key_file: KeyFile) -> None:
    """Cursors of one process are good in the others: pages of many connections are the whole history once."""
    key, cursor = key_file.add("large")[0], None
    time.sleep(1)
    answers, times = [], list[str]()
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        with halted(pair, len(answers) % 2):
            answers.append(ask(pair, key, "/v1/markets/m1/prices", **window(), limit="10", **more))
        assert answers[-1].status_code == 200
        times += [point["t"] for point in answers[-1].json()["data"]["Yes"]]
        cursor = answers[-1].json()["metadata"]["next_cursor"]
        if cursor is None:
            break
    assert times == sorted(set(times))
    assert len(times) == 154
    assert processes_of(answers) == 2


@pytest.mark.fault("S6", "S32")
def test_a_revoked_key_ends_in_every_process(pair: Service, key_file: KeyFile) -> None:
    """A second after its revocation no process accepts a key."""
    key, entry = key_file.add("large")
    time.sleep(1)
    assert {ask(pair, key).status_code for _ in range(10)} == {200}
    key_file.revoke(entry.id)
    time.sleep(1)
    assert {ask(pair, key).status_code for _ in range(10)} == {401}


@pytest.mark.fault("S32")
def test_a_process_that_dies_is_replaced(pair: Service, keys: Iterator[str]) -> None:
    """After one was killed the other answers, a new one joins it, and the requests of a key are still counted."""
    key, began = next(keys), time.monotonic()
    assert [ask(pair, key).status_code for _ in range(5)] == [200] * 5
    workers = pair._worker
    killed = workers._running[0]
    killed.kill()
    killed.wait()
    assert ask(pair, key).status_code == 200
    deadline = time.monotonic() + SOON
    while workers._running[0] is killed:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with halted(pair, 1):
        left = ask(pair, key, "/v1/usage").json()["limits"]["requests_remaining"]
    assert left == 43 or time.monotonic() - began > 60


@pytest.mark.fault("S32", "S36", "S46")
def test_processes_stop_together_and_cut_no_body(tmp_path: Path) -> None:
    """A service of two processes that is told to stop under load finishes its answers and exits with 0."""
    delta_archive(small_archive(), tmp_path)
    assert stop_under_load(tmp_path, signal.SIGTERM, workers=2)


@pytest.mark.fault("S32")
def test_no_process_outlives_the_one_that_started_it(tmp_path: Path) -> None:
    """Where the first process is killed the others end too, so the address is free."""
    delta_archive(small_archive(), tmp_path)
    with process(tmp_path, workers=2) as (running, url, key):
        assert requests.get(url + "/v1/health", headers={"X-API-Key": key}, timeout=SOON).status_code == 200
        running.kill()
        running.wait()
        deadline = time.monotonic() + SOON
        while True:
            try:
                requests.get(url + "/v1/health", headers={"X-API-Key": key}, timeout=SOON)
            except requests.ConnectionError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.fault("S32")
def test_what_cannot_be_passed_on_is_refused(tmp_path: Path) -> None:
    """A number below 1 and a clock of a local function are refused by name."""
    archive = delta_archive(small_archive(), tmp_path)
    for number in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="workers="):
            serve(archive, workers=number)
    with pytest.raises(ConfigError, match="workers=2"):
        serve(archive, workers=2, clock=lambda: 0.0)
