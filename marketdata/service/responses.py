"""Bodies of the interface, and what the description says about refusals."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from pydantic import BaseModel, Field, StrictInt, StrictStr, create_model
from starlette.responses import Response

from marketdata.points.columns import METRICS, Books, Data
from marketdata.points.views import VIEWS
from marketdata.service.pages import ServedPage
from marketdata.times import SECOND
from marketdata.wire import models

Described = dict[int | str, dict[str, Any]]


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

    count: StrictInt
    limit: StrictInt
    next_cursor: StrictStr | None = None


Level = Annotated[list[float], Field(min_length=2, max_length=2)]


class OrderBookSnapshot(models.Body):
    """One book (interface 2.3): levels are [price, size], best first."""

    t: str
    bids: list[Level]
    asks: list[Level]


class PricePoint(models.Body):
    """One price (readings: price point)."""

    t: str
    p: float | None


_METRIC_FIELDS: dict[str, Any] = dict.fromkeys(METRICS, (float | None, None))


class MetricPoint(create_model("Metrics", __base__=models.Body, t=(str, ...), **_METRIC_FIELDS)):  # type: ignore[misc]
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


def _refusal(status: int, description: str) -> Described:
    model = ValidationErrorResponse if status == 422 else ErrorResponse
    return {status: {"model": model, "description": description}}


REFUSALS: Described = {
    **_refusal(400, "Invalid timestamp, limit, cursor, market or host."),
    **_refusal(401, "Key missing, invalid or expired."),
    **_refusal(422, "A parameter does not validate."),
    **_refusal(429, "Rate limit exceeded for this key."),
    **_refusal(500, "Unexpected error."),
}
NOT_FOUND = _refusal(404, "Not found.")
PLAN_REFUSES = _refusal(403, "The plan does not allow it.")


def json_response(body: object) -> Response:
    """A response of JSON; NaN and infinities become null."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def points(page: ServedPage) -> list[Any]:
    """Points of one token, or of a market (interface 2.6)."""
    return [point for columns in page.parts for point in _points(columns)]


def points_by_label(page: ServedPage, tokens: dict[str, str]) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Label to token id, and label to points (interface 2.2 and 2.5).

    A token that the record of the market lacks is added, under its own label or else its id.
    """
    tokens, by_label = dict(tokens), {label: list[Any]() for label in tokens}
    labels = {token_id: label for label, token_id in tokens.items()}
    for columns in page.parts:
        part = _points(columns)
        for token, (start, end) in zip(columns.tokens, pairwise(columns.bounds.tolist()), strict=True):
            if start == end:
                continue
            label = labels.get(token.token_id or "")
            if label is None:
                is_taken = token.token_label is None or token.token_label in tokens
                label = (token.token_id if is_taken else token.token_label) or ""
                if token.token_id:
                    labels[token.token_id], tokens[label] = label, token.token_id
            by_label.setdefault(label, []).extend(part[start:end])
    return tokens, by_label


def _points(columns: Data) -> list[Any]:
    unit: Literal["s", "ms"] = "ms" if (columns.ts % SECOND).any() else "s"
    times = np.datetime_as_string(columns.ts.view("M8[us]"), unit=unit, timezone="UTC").tolist()
    if isinstance(columns, Books):
        levels = np.stack(columns.levels(), axis=1).tolist()
        ends = np.append(0, np.cumsum(columns.counts)).tolist()
        snapshots: list[dict[str, Any]] = [
            {"t": t, "bids": levels[bids:asks], "asks": levels[asks:end]}
            for t, bids, asks, end in zip(times, ends[:-1:2], ends[1::2], ends[2::2], strict=True)
        ]
        for name, values in columns.values.items():
            for snapshot, value in zip(snapshots, values.tolist(), strict=True):
                snapshot[name] = None if value != value else value  # noqa: PLR0124  NaN is null
        return snapshots
    field_of = {column: field for spec in VIEWS.values() for field, column in spec.fields.items()}
    names = ("t", *(field_of.get(name, name) for name in columns.values))
    rows = zip(times, *(values.tolist() for values in columns.values.values()), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
