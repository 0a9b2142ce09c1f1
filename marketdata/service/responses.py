"""Bodies of the interface, and what the description says about refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from marketdata.points.columns import METRICS
from marketdata.wire import models


class ErrorResponse(models.Body):
    """Every error except 422 (interface 2.7)."""

    detail: str


class Problem(BaseModel):
    """One parameter that does not validate (interface 7, 422)."""

    loc: list[str]
    msg: str
    type: str


class ValidationErrorResponse(BaseModel):
    """422 (interface 7)."""

    detail: list[Problem]


class HistoryPageMetadata(models.Body):
    """Paging of every history answer (interface 2.4)."""

    count: int
    limit: int
    next_cursor: str | None = None


class OrderBookSnapshot(models.Body):
    """One book (interface 2.3): levels are [price, size], best first."""

    t: models.Time
    bids: list[tuple[float, float]]
    asks: list[tuple[float, float]]


class PricePoint(models.Body):
    """One price (readings: price point)."""

    t: models.Time
    p: float | None


_METRIC_FIELDS: dict[str, Any] = dict.fromkeys(METRICS, (float | None, None))


class MetricPoint(create_model("Metrics", __base__=models.Body, t=(models.Time, ...), **_METRIC_FIELDS)):  # type: ignore[misc]
    """One point of a market's metrics (readings, metric point); each of `METRICS` is a number or null."""


Point = TypeVar("Point")


class History(models.Body):
    """Fields of every history answer."""

    market_id: str
    resolution: str
    metadata: HistoryPageMetadata


class MarketHistory(History, Generic[Point]):
    """Points grouped by token label (interface 2.2, 2.5)."""

    tokens: dict[str, str]
    data: dict[str, list[Point]]


class TokenHistory(History, Generic[Point]):
    """Points of one token (readings: single-token history)."""

    token_id: str
    token_label: str | None
    data: list[Point]


class MetricsHistory(History):
    """Points of a market (interface 2.6)."""

    data: list[MetricPoint]


class UsageLimits(models.Body):
    """Limits of the plan of the key."""

    requests_per_minute: int | None = None
    requests_remaining: int | None = None
    granularity_allowed: str | None = None
    max_history_days: str | None = None


class Usage(models.Body):
    """Plan and remaining requests of the key (readings: usage)."""

    plan: str | None = None
    organization: str | None = None
    limits: UsageLimits = Field(default_factory=UsageLimits)
    reset_at: int | float | None = None


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The bodies of these statuses, for the description."""
    return {status: {"model": ValidationErrorResponse if status == 422 else ErrorResponse} for status in statuses}


def printable(text: str, length: int = 200) -> str:
    """Text of a client for messages and logs: cut, and escaped where not printable."""
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response of JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(body), status, headers, "application/json")
