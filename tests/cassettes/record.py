"""Record every cassette anew, from a local service with simulated data.

``python -m tests.cassettes.record [NAME ...]``, at the top of the repository. Needs no network.
The one of the rate limit waits a minute, as the service tells it to.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import vcr

import marketdata as md
from marketdata.testing import vcr_config

from .scenes import BASE_URL, SCENES, Scene

FOLDER = Path(__file__).parent / "test_cassettes"
HEAD = (
    "# Recorded by tests/cassettes/record.py from the local service on loopback, which answers with simulated data.\n"
    "# No key is in it. Address and dates are set to fixed ones. Do not edit: record it anew.\n"
)
NOW = 1_767_225_600.0  # 2026-01-01
DATE = "Thu, 01 Jan 2026 00:00:00 GMT"
LARGEST = 20_000  # bytes


def record(name: str, scene: Scene, archive: md.Archive) -> int:
    """Run a scene and keep what was said; the size of the file [bytes]."""
    path = FOLDER / f"{name}.yaml"
    path.unlink(missing_ok=True)
    with md.serve(archive, secret=b"only for recorded cursors", clock=lambda: NOW, **scene.service) as service:
        key = service.api_key
        assert key is not None
        config = vcr_config(key)
        scrub = config["before_record_response"]

        def moved(request: Any) -> Any:
            request.uri = request.uri.replace(service.base_url, BASE_URL)
            return request

        def dated(answer: dict[str, Any]) -> dict[str, Any]:
            answer = scrub(answer)
            return {**answer, "headers": {n: [DATE] if n == "date" else v for n, v in answer["headers"].items()}}

        recorder = vcr.VCR(**{**config, "before_record_request": moved, "before_record_response": dated})
        with (
            recorder.use_cassette(str(path), record_mode="all"),
            contextlib.suppress(md.MarketDataError),
            md.Client(service.base_url, key, **scene.client) as client,
        ):
            scene.call(client)
    text = HEAD + path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    assert key not in text
    assert len(text.encode()) < LARGEST, f"{path.name} has {len(text.encode())} bytes"
    return len(text.encode())


def main(names: list[str]) -> None:
    """Record the scenes that are named, or all."""
    FOLDER.mkdir(exist_ok=True)
    archive = md.simulate(events=2, days=0.05, markets=1, levels=3, seed=1)
    for name in names or SCENES:
        print(f"{name}: {record(name, SCENES[name], archive):,} bytes", flush=True)
    if not names:
        for path in FOLDER.glob("*.yaml"):
            if path.stem not in SCENES:
                path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
