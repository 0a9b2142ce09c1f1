"""A page from columns to JSON, beside the framework's default way (make bench)."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest


@pytest.mark.bench
def test_encoding_beside_the_default_way() -> None:
    """Prints the time of one page from columns to JSON, ours and FastAPI's default for the same page as objects."""
    from bench.serving import market_books
    from fastapi.encoders import jsonable_encoder
    from fastapi.responses import JSONResponse

    from marketdata.resolution import Resolution
    from marketdata.service import responses
    from marketdata.service.cache import CachedChunk
    from marketdata.service.pagination import PageRows, ServedPage

    chunk = CachedChunk(market_books("m", 100, 0))
    page = ServedPage([PageRows(chunk, np.arange(200))], 200)
    tokens = {"Yes": "m-1", "No": "m-2"}

    def again() -> bytes:
        found, data = responses.points_by_label(page, tokens)
        body = {
            "market_id": "m",
            "resolution": Resolution.M1,
            "tokens": found,
            "data": data,
            "metadata": {"count": 200},
        }
        return responses.to_json(body)

    def ours() -> bytes:
        chunk.__dict__.pop("texts", None)
        return again()

    plain = json.loads(ours())

    def best(call, times: int) -> float:
        found = []
        for _ in range(times):
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        return min(found) * 1e3

    default = best(lambda: JSONResponse(jsonable_encoder(plain)).body, 5)
    first, second = best(ours, 20), best(again, 20)
    size = len(ours()) / 1e3
    print(f"\none page of {size:.0f} kB: {first:.2f} ms first, {second:.2f} ms again, default {default:.1f} ms")
