"""Columns to points of the interface, the inverse of `decode`; whoever sends them makes JSON of the values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from marketdata.points.columns import Books, Data
from marketdata.points.views import VIEWS
from marketdata.times import SECOND


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


def points_by_label(parts: Iterable[Data], tokens: dict[str, str]) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Label to token id, and label to points (interface 2.2 and 2.5).

    A token that the record of the market lacks is added, under its own label or else its id.
    """
    tokens, by_label = dict(tokens), {label: list[Any]() for label in tokens}
    labels = {token_id: label for label, token_id in tokens.items()}
    for columns in parts:
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
