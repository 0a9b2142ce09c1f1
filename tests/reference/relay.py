"""A real local service behind a relay that can be slow, die, or refuse: what clients see end to end."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import requests
from reference.faults import HANG_UP, Act, Ask, refuse

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
