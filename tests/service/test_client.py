"""Row S40: our client and the service are two halves of one interface."""

from __future__ import annotations

from typing import Any

import pandas.testing
import polars.testing
import pytest

import marketdata as md
from marketdata.service.server import Service

DAY = ("2026-01-05", "2026-01-06")


def assert_same(one: Any, other: Any) -> None:
    """Equal rows; means to 1e-12."""
    if hasattr(one, "to_dicts"):
        polars.testing.assert_frame_equal(one, other, check_exact=False, rel_tol=1e-12, abs_tol=0)
    else:
        pandas.testing.assert_frame_equal(one, other, check_exact=False, rtol=1e-12, atol=0, check_categorical=False)


@pytest.mark.fault("S40")
@pytest.mark.parametrize("resolution", ["10m", "1h", "6h", "1d"])
@pytest.mark.parametrize("frame", ["pandas", "polars"])
@pytest.mark.parametrize("view", ["books", "prices", "metrics"])
def test_a_coarse_answer_is_the_fine_one_resampled(service: Service, view: str, frame: str, resolution: str) -> None:
    """For every view, kind of frame and resolution, what the service aggregates is what the client would."""
    client = md.Client(service.base_url, service.api_key, frame=frame)
    fine = getattr(client, view)("m1", *DAY, "1m")
    coarse = getattr(client, view)("m1", *DAY, resolution)
    assert len(coarse)
    again = md.resample(fine, resolution)
    assert_same(coarse, again[[c for c in again.columns if not c.endswith("_count")]])


@pytest.mark.fault("S40")
def test_every_method_of_the_client_is_answered(service: Service) -> None:
    """Discovery, tokens, usage, health and a market of 210 tokens through the client."""
    client = md.Client(service.base_url, service.api_key, frame="polars")
    assert client.series()["slug"].to_list() == ["weather"]
    assert set(client.events(series_slug="weather")["slug"].to_list()) == {"rain", "snow"}
    assert client.markets(event_slug="rain", page_size=1)["slug"].to_list() == ["will-it-rain"]
    assert client.market("will-it-rain")["id"] == "m1"
    assert client.tags() == ["daily", "nature"]
    assert client.health()["status"] == "ok"
    assert client.usage()["plan"] == "local"
    assert len(client.prices("wide", *DAY, "1m")) == 210
    assert len(client.token_prices("w9", *DAY, "1m")) == 1


@pytest.mark.fault("S40")
def test_refusals_reach_the_user_as_errors(service: Service) -> None:
    """Each status of section 7 is the client's error of that name."""
    client = md.Client(service.base_url, service.api_key)
    with pytest.raises(md.NotFoundError, match="Market not found: nope"):
        client.prices("nope", *DAY, "1m")
    with pytest.raises(md.AuthenticationError, match="Invalid or expired API key"):
        md.Client(service.base_url, "wrong").health()
