"""Bodies of the interface, and what the description says about refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
from pydantic import BaseModel, Field, create_model
from starlette.responses import Response

from marketdata.points.columns import METRICS, Books, Data
from marketdata.points.views import VIEWS
from marketdata.service.pages import ServedPage
from marketdata.times import SECOND
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

    t: str
    bids: list[tuple[float, float]]
    asks: list[tuple[float, float]]


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


def labels_of(market: dict[str, Any]) -> dict[str, str]:
    """Label to token id of a market; of two tokens with one label the later one has its id as label."""
    tokens: Sequence[dict[str, Any]] = market.get("tokens") or ()
    labels = {str(token["label"]) for token in tokens if token.get("label") is not None}
    token_ids: dict[str, str] = {}
    for token in tokens:
        token_id, label = str(token["id"]), token.get("label")
        name = token_id if label is None or str(label) in token_ids else str(label)
        while name in token_ids or (name in labels and name != str(label)):
            name += "'"  # an id that is the label of another token
        token_ids[name] = token_id
    return token_ids


def points_by_label(page: ServedPage, tokens: dict[str, str]) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Label to token id, and label to points (interface 2.2 and 2.5).

    A token that the record of the market lacks is added, under its own label or else its id.
    """
    tokens, by_label = dict(tokens), {label: list[Any]() for label in tokens}
    labels = {token_id: label for label, token_id in tokens.items()}
    for columns in page.parts:
        points = points_of(columns)
        for token, (start, end) in zip(columns.tokens, pairwise(columns.bounds.tolist()), strict=True):
            if start == end:
                continue
            token_id, label = str(token.token_id), token.token_label
            if token_id not in labels:
                labels[token_id] = token_id if label is None or label in tokens else label
                tokens[labels[token_id]] = token_id
            by_label.setdefault(labels[token_id], []).extend(points[start:end])
    return tokens, by_label


def points_of(columns: Data) -> list[dict[str, Any]]:
    """Points as the interface has them (2.3, 2.6), in the order of the columns."""
    unit: Literal["s", "ms"] = "ms" if (columns.ts % SECOND).any() else "s"
    fields = {"t": np.datetime_as_string(columns.ts.view("M8[us]"), unit=unit, timezone="UTC").tolist()}
    if isinstance(columns, Books):
        levels = np.stack(columns.levels(), axis=1).tolist()
        sides = [levels[start:end] for start, end in pairwise([0, *np.cumsum(columns.counts).tolist()])]
        fields |= {"bids": sides[::2], "asks": sides[1::2]}
    names = {column: field for spec in VIEWS.values() for field, column in spec.fields.items()}
    fields |= {names.get(name, name): values.tolist() for name, values in columns.values.items()}
    return [dict(zip(fields, point, strict=True)) for point in zip(*fields.values(), strict=True)]
