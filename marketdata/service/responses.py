"""Responses: history bodies from columns without a Python object per level, headers, and refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from marketdata.points.columns import Books, Data, Token
from marketdata.points.views import VIEWS
from marketdata.service.pagination import ServedPage
from marketdata.wire import models

Described = dict[int | str, dict[str, Any]]
# The description of each refusal.
REFUSALS: Described = {
    400: {"model": models.ErrorResponse, "description": "Invalid timestamp, limit, cursor, market or host."},
    401: {"model": models.ErrorResponse, "description": "Key missing, invalid or expired."},
    414: {"model": models.ErrorResponse, "description": "The URL is too long."},
    422: {"model": models.ValidationErrorResponse, "description": "A parameter does not validate."},
    429: {"model": models.ErrorResponse, "description": "Rate limit exceeded for this key."},
    431: {"model": models.ErrorResponse, "description": "The headers are too large."},
    500: {"model": models.ErrorResponse, "description": "Unexpected error."},
    503: {"model": models.ErrorResponse, "description": "The service is busy."},
}
NOT_FOUND: Described = {404: {"model": models.ErrorResponse, "description": "Not found."}}
PLAN_REFUSES: Described = {403: {"model": models.ErrorResponse, "description": "The plan does not allow it."}}
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY


def to_json(body: object) -> bytes:
    """JSON bytes; NaN and infinities become null."""
    try:
        return orjson.dumps(body, option=_OPTIONS)
    except orjson.JSONEncodeError:
        # A record may have a whole number of any length.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def points(page: ServedPage) -> list[Any]:
    """Points of one token, or of a market (interface 2.6)."""
    return [point for columns in page.parts for point in _points(columns)]


def points_by_label(page: ServedPage, tokens: dict[str, str]) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Label to token id, and label to points (interface 2.2 and 2.5)."""
    data: dict[str, list[Any]] = {label: [] for label in tokens}
    for columns in page.parts:
        made, edges = _points(columns), columns.bounds.tolist()
        some = [(t, a, b) for t, (a, b) in zip(columns.tokens, pairwise(edges), strict=True) if a < b]
        labels, tokens = served_labels([token for token, *_ in some], tokens)
        for label, (_, a, b) in zip(labels, some, strict=True):
            data.setdefault(label, []).extend(made[a:b])
    return tokens, data


def served_labels(found: Sequence[Token], tokens: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The label of each token, and label to token id, with the tokens that the record of the market does not have."""
    label_of = {token_id: label for label, token_id in tokens.items()}
    out: list[str] = []
    for token in found:
        label = label_of.get(token.token_id or "")
        if label is None:
            known = token.token_label is None or token.token_label in tokens
            label = (token.token_id if known else token.token_label) or ""
            if token.token_id:
                tokens = {**tokens, label: token.token_id}
        out.append(label)
    return out, tokens


def _points(columns: Data) -> list[Any]:
    # Bucket starts are whole seconds.
    times = np.datetime_as_string(columns.ts.view("M8[us]").astype("M8[s]"), timezone="UTC").tolist()
    if isinstance(columns, Books):
        levels, ends = np.stack(columns.levels(), axis=1), np.append(0, np.cumsum(columns.counts)).tolist()
        return [
            {"t": t, "bids": levels[a:b], "asks": levels[b:c]}
            for t, a, b, c in zip(times, ends[:-1:2], ends[1::2], ends[2::2], strict=True)
        ]
    field_of = {column: field for spec in VIEWS.values() for field, column in spec.fields.items()}
    names = ("t", *(field_of.get(name, name) for name in columns.values))
    rows = zip(times, *(values.tolist() for values in columns.values.values()), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]
