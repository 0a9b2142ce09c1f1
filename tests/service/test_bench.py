"""A page from columns to JSON, beside the framework's default way (make bench)."""

from __future__ import annotations

import json
import time

import pytest


@pytest.mark.bench
def test_encoding_beside_the_default_way() -> None:
    """Prints the time of one page from columns to JSON, ours and FastAPI's default for the same page as objects."""
    from bench.serving import market_books
    from fastapi.encoders import jsonable_encoder
    from fastapi.responses import JSONResponse

    from marketdata.resolution import Resolution
    from marketdata.service import responses
    from marketdata.service.pagination import ServedPage

    page = ServedPage([market_books("m", 100, 0)], 200)
    tokens = {"Yes": "m-1", "No": "m-2"}

    def ours() -> bytes:
        found, data = responses.points_by_label(page, tokens)
        body = {
            "market_id": "m",
            "resolution": Resolution.M1,
            "tokens": found,
            "data": data,
            "metadata": {"count": 200},
        }
        return responses.to_json(body)

    plain = json.loads(ours())

    def best(call, times: int) -> float:
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        return min(found) * 1e3

    default = best(lambda: JSONResponse(jsonable_encoder(plain)).body, 5)
    took = best(ours, 20)
    size = len(ours()) / 1e3
    print(f"\none page of {size:.0f} kB: {took:.2f} ms, default {default:.1f} ms")
