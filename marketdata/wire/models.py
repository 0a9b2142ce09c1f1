"""The bodies of the interface as pydantic models, unknown fields kept; points are read and checked by ``decode``."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError, create_model

from marketdata.errors import ContractError
from marketdata.points.columns import METRICS
from marketdata.points.records import FIELDS
from marketdata.resolution import Resolution

# Most points of a page, and so most tokens of a market of which a page can be served (interface 4.1, 8).
LARGEST_LIMIT = 200
# An id is a text; where a record has it as a number, its digits are the text.
RecordId = Annotated[StrictStr, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


# A model.
M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], body: object, what: str = "The answer") -> M:
    """A loaded body as a model; ContractError with the path of the first wrong value of ``what``."""
    try:
        return model.model_validate(body)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(p) for p in first["loc"])
        raise ContractError(f"{what} does not follow the interface: {path}: {first['msg']}.") from None


class Body(BaseModel):
    """Base of every body, with unknown fields."""

    model_config = ConfigDict(extra="allow")


class ErrorResponse(Body):
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


class HistoryPageMetadata(Body):
    """Paging of every history answer (interface 2.4)."""

    count: StrictInt
    limit: StrictInt
    next_cursor: StrictStr | None = None


class Envelope(Body):
    """A market's metrics without their points (interface 2.6)."""

    market_id: StrictStr
    resolution: StrictStr
    metadata: HistoryPageMetadata


class MarketEnvelope(Envelope):
    """A market's books or prices without their points (interface 2.2, 2.5)."""

    tokens: dict[StrictStr, StrictStr]


class TokenEnvelope(Envelope):
    """A token's books or prices without their points (readings: single-token history)."""

    token_id: StrictStr
    token_label: StrictStr | None = None


Level = Annotated[list[float], Field(min_length=2, max_length=2)]


class OrderBookSnapshot(Body):
    """One book (interface 2.3): levels are [price, size], best first."""

    t: str
    bids: list[Level]
    asks: list[Level]


class PricePoint(Body):
    """One price (readings: price point)."""

    t: str
    p: float | None


# Fields of a point of metrics: numbers that may be null or absent.
_METRICS: dict[str, Any] = dict.fromkeys(METRICS, (float | None, None))


class MetricPoint(create_model("Metrics", __base__=Body, t=(str, ...), **_METRICS)):  # type: ignore[misc]
    """One point of a market's metrics (readings: metric point): `METRICS`, each a number or null."""


# The model of a point.
P = TypeVar("P")


class MarketHistory(Body, Generic[P]):
    """Points grouped by token label (interface 2.2, 2.5)."""

    market_id: str
    resolution: Resolution
    tokens: dict[str, str]
    data: dict[str, list[P]]
    metadata: HistoryPageMetadata


class TokenHistory(Body, Generic[P]):
    """Points of one token (readings: single-token history)."""

    market_id: str
    token_id: str
    token_label: str | None
    resolution: Resolution
    data: list[P]
    metadata: HistoryPageMetadata


class MetricsHistory(Body):
    """Points of a market (interface 2.6)."""

    market_id: str
    resolution: Resolution
    data: list[MetricPoint]
    metadata: HistoryPageMetadata


class TokenRecord(Body):
    """An outcome contract of a market."""

    id: RecordId
    label: StrictStr | None = None


# Types of fields of records, by that in the table of `FIELDS`.
_RECORD_TYPES: dict[str, tuple[Any, Any]] = {
    "id": (str | None, None),
    "text": (str | None, None),
    "date": (str | None, None),
    "texts": (list[str] | None, None),
    "numbers": (list[float | None] | None, None),
    "tokens": (
        Annotated[list[TokenRecord], BeforeValidator(lambda value: [] if value is None else value)],
        Field(default_factory=list),
    ),
}
# Fields of a market that the service answers with.
_MARKET: dict[str, Any] = {
    field.name: _RECORD_TYPES[field.type] for field in FIELDS["markets"] if field.of in ("listing", "market")
}


class MarketDetail(create_model("Market", __base__=Body, **_MARKET | {"id": (RecordId, ...)})):  # type: ignore[misc]
    """One market (readings: one market)."""


class ListingMetadata(Body):
    """Paging of a listing; only the cursor matters."""

    count: int | None = None
    limit: int | None = None
    next_cursor: StrictStr | None = None


class Listing(Body):
    """One page of a discovery listing (readings: discovery listing); the records stay plain."""

    data: list[dict[str, Any]]
    metadata: ListingMetadata = Field(default_factory=ListingMetadata)

    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next page."""
        return self.metadata.next_cursor


class Tags(Body):
    """Every tag in use."""

    count: int | None = None
    data: list[str]


class Health(Body):
    """Whether the service is up."""

    status: str
    timestamp: str | int | float | None = None


class UsageLimits(Body):
    """Limits of the plan of the key."""

    requests_per_minute: int | None = None
    requests_remaining: int | None = None
    granularity_allowed: str | None = None
    max_history_days: str | None = None


class Usage(Body):
    """Plan and remaining requests of the key (readings: usage)."""

    plan: str | None = None
    organization: str | None = None
    limits: UsageLimits = Field(default_factory=UsageLimits)
    reset_at: int | float | None = None
