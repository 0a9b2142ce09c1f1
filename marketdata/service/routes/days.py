"""A whole day of a market in one answer, beside the interface: an Arrow stream, or the JSON of one long page."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request
from fastapi.responses import Response

from marketdata.points.columns import Data, Token
from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.service.dependencies import Context
from marketdata.service.pagination import ServedPage
from marketdata.service.parameters import IdOrSlug, read_time
from marketdata.service.responses import points, points_by_label, served_labels, to_json
from marketdata.times import DAY, Range
from marketdata.wire import stream
from marketdata.wire.models import ARROW_STREAM

# Points of a day (token x bucket) at most: an answer is made in memory.
MAX_POINTS = 10_000
router = APIRouter(prefix="/days", include_in_schema=False)
Date = Annotated[str, Path(pattern=r"^\d{4}-\d\d-\d\d$")]


@router.get("/{id_or_slug}/{view}/{date}")
def get_day(
    request: Request,
    id_or_slug: IdOrSlug,
    view: View,
    date: Date,
    resolution: Annotated[Resolution, Query()],
    context: Context,
) -> Response:
    """All points of a day [UTC] of a market; a day that is final has an ETag."""
    start = read_time(date, "date")
    rng = Range(start, start + DAY)
    context.grant.plan.check(view, resolution, start, context.parts.clock())
    source, (market_id, tokens) = context.parts.source, context.parts.pages.market(id_or_slug)
    if VIEWS[view].has_tokens and len(tokens) * DAY // resolution.micros > MAX_POINTS:
        raise HTTPException(400, f"A day of this market has more than {MAX_POINTS} points; request its pages instead.")
    is_stream = ARROW_STREAM in request.headers.get("accept", "")
    headers = {"Vary": "Accept, Accept-Encoding"}
    stamp = source.final_stamp(view, market_id, rng)
    if stamp is not None:
        facts = [stamp, *tokens.items(), resolution.value, is_stream, context.exchange.accepts_gzip]
        headers["ETag"] = f'"{hashlib.sha256(repr(facts).encode()).hexdigest()[:32]}"'
        headers["Cache-Control"] = "private, no-cache"
        known = request.headers.get("if-none-match", "").split(",")
        if any(tag.strip().removeprefix("W/") in ("*", headers["ETag"]) for tag in known):
            return Response(status_code=304, headers=headers)
    columns = source.columns(view, market_id, rng, resolution, None)
    metadata = {"count": len(columns), "limit": MAX_POINTS, "next_cursor": None}
    envelope = {"market_id": market_id, "resolution": resolution, "metadata": metadata}
    if is_stream:
        if VIEWS[view].has_tokens:
            columns, envelope["tokens"] = _labelled(columns, market_id, tokens)
        content = stream.encode(columns, to_json(envelope))
        return context.respond(content, ARROW_STREAM, **headers)
    page = ServedPage([columns])
    if VIEWS[view].has_tokens:
        envelope["tokens"], envelope["data"] = points_by_label(page, tokens)
    else:
        envelope["data"] = points(page)
    return context.respond(to_json(envelope), **headers)


def _labelled(columns: Data, market_id: str, tokens: dict[str, str]) -> tuple[Data, dict[str, str]]:
    """The points under the labels that pages have, and label to token id."""
    labels, tokens = served_labels(columns.tokens, tokens)
    named = [Token(market_id, tokens.get(label), label) for label in labels]
    out: Data = columns.of_codes(named, columns.token).sort()
    return out, tokens
