"""A fetch that ends half-way goes on where it ended: every row once, no page asked for twice."""

from __future__ import annotations

import _thread
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pytest
import requests
from reference.clocks import SOON
from reference.faults import HANG_UP, Act, Ask, FaultServer, refuse

import marketdata as md
from marketdata.testing import no_waiting

HISTORY = ("/books", "/prices", "/metrics")


@dataclass
class Relay:
    """Passes requests on to ``base_url``; give it to a FaultServer as its answer.

    ``lives`` is the number of history pages until it dies, None for ever; ``served`` has the points of each whole page.
    It does not tell the rate of a key, so that clients send eight requests at once: when it dies, no more pages than
    those are on their way, whoever comes first.
    """

    base_url: str
    lives: int | None = None
    death: Act = HANG_UP
    served: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._session = requests.Session()
        self._session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=100))

    def __call__(self, ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return refuse(404, "Not Found")
        history = ask.path.endswith(HISTORY)
        with self._lock:
            if history and self.lives is not None:
                self.lives -= 1
                if self.lives < 0:
                    return self.death
        key = ask.header("X-API-Key")
        answer = self._session.get(self.base_url + ask.target, headers={"X-API-Key": key[0]} if key else {})
        if history and answer.status_code == 200:
            self.served.append(answer.json()["metadata"]["count"])
        act = Act(status=answer.status_code, body=answer.content)
        for name in ("Date", "Retry-After"):
            if name in answer.headers:
                act = act.with_header(name, answer.headers[name])
        return act


DEATHS = {"hangs up": HANG_UP, "fails": refuse(500, "Failed to fetch data."), "refuses": refuse(403, "No more.")}


RANGE = ("2025-12-31", "2026-01-01", "1m")
LIMIT = 20


@pytest.fixture(scope="module")
def service() -> Iterator[Any]:
    with md.serve(md.simulate(events=1, days=0.1, markets=2, levels=2, seed=5)) as running:
        yield running


@pytest.fixture(scope="module")
def slugs(service: Any) -> list[str]:
    """Two markets of two tokens."""
    markets = md.Client(service.base_url, service.api_key, frame="polars").markets()
    return markets.filter(pl.col("token_ids").list.len() == 2)["slug"].to_list()


@pytest.fixture
def relay(service: Any) -> Relay:
    return Relay(service.base_url)


@pytest.fixture
def front(relay: Relay) -> Iterator[FaultServer]:
    with FaultServer(relay) as server:
        yield server


def rows(frames: list[Any]) -> list[str]:
    """Every row of frames of either kind, sorted, with every bit of its numbers."""
    out = []
    for frame in frames:
        plain = frame if isinstance(frame, pl.DataFrame) else pl.from_pandas(frame)
        out += [repr(row) for row in plain.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String)).rows()]
    return sorted(out)


@pytest.mark.parametrize(
    ("view", "kind", "death"),
    [("books", "polars", "hangs up"), ("prices", "pandas", "fails"), ("metrics", "polars", "refuses")],
)
def test_partial_and_resume_are_the_whole(
    service: Any, relay: Relay, front: FaultServer, slugs: list[str], view: str, kind: Any, death: str
) -> None:
    """A service that dies three times on the way: all parts together are the whole, and hardly a page came twice."""
    whole = getattr(md.Client(service.base_url, service.api_key, frame=kind), view)(slugs, *RANGE)
    relay.death = DEATHS[death]
    parts = []
    resume: Any = None
    said: md.MarketDataError | None = None
    with no_waiting():
        for lives in (12, 2, 0, None):
            relay.lives = lives
            # Another client each time, as if the program had been started anew.
            client = md.Client(front.base_url, service.api_key, frame=kind, page_limit=LIMIT)
            try:
                if resume is None:
                    parts.append(getattr(client, view)(slugs, *RANGE))
                else:
                    parts.append(client.resume(pickle.loads(pickle.dumps(resume))))
            except md.MarketDataError as error:
                assert lives is not None
                parts.append(error.partial)
                resume, said = error.resume, said or error
            client.close()
    assert len(parts) == 4
    assert len({tuple(part.columns) for part in [whole, *parts]}) == 1
    assert rows(parts) == rows([whole])
    assert len(parts[0]) > 0 < len(parts[-1])
    assert len(parts[2]) == 0
    assert ("client.resume(error.resume)" in str(said)) is (death != "refuses")
    # Requests in flight are repeated, and the page before them if its order is unknown.
    assert sum(relay.served) - whole.md.report.points <= LIMIT * 18 * 3


def test_levels_are_cut_in_both_halves(service: Any, relay: Relay, front: FaultServer, slugs: list[str]) -> None:
    """The caller who asked for the best level asks for it again when going on."""
    client = md.Client(front.base_url, service.api_key, frame="polars", page_limit=LIMIT)
    relay.lives = 5
    with no_waiting(), pytest.raises(md.errors.NetworkError) as caught:
        client.books(slugs[0], *RANGE, levels=1)
    relay.lives = None
    rest = client.resume(caught.value.resume, levels=1)
    assert rows([caught.value.partial, rest]) == rows([client.books(slugs[0], *RANGE, levels=1)])


@pytest.mark.fault("N31")
def test_ctrl_c_keeps_what_arrived(service: Any, relay: Relay, slugs: list[str]) -> None:
    """Ctrl-C ends a fetch whose answers do not come: it leaves first, and another client fetches exactly the rest."""
    stuck, over = threading.Event(), threading.Event()

    def slow(ask: Ask) -> Act:
        act = relay(ask)
        if len(relay.served) > 10:
            if not stuck.is_set():
                stuck.set()
                _thread.interrupt_main()
            over.wait(SOON)
        return act

    with FaultServer(slow) as front:
        client = md.Client(front.base_url, service.api_key, frame="polars", page_limit=LIMIT)
        try:
            with pytest.raises(KeyboardInterrupt) as stop:
                client.books(slugs, *RANGE)
        finally:
            over.set()
    partial, resume = stop.value.partial, pickle.loads(pickle.dumps(stop.value.resume))  # type: ignore[attr-defined]
    with FaultServer(relay) as again:
        rest = md.Client(again.base_url, service.api_key, frame="polars").resume(resume)
    whole = md.Client(service.base_url, service.api_key, frame="polars").books(slugs, *RANGE)
    assert rows([partial, rest]) == rows([whole])
    assert len(partial) > 0 < len(rest)
    # Chunks in flight at that moment are requested again.
    assert sum(relay.served) - whole.md.report.points <= LIMIT * len(front.asks)
