"""Records and listings of the interface as pydantic models, which keep unknown fields; ``decode`` reads points."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError, create_model

from marketdata.errors import ContractError
from marketdata.points.records import FIELDS

# A page holds whole buckets, so a market with more tokens than this cannot be served (interface 4.1, 8).
LARGEST_LIMIT = 200
# Some services write ids as numbers.
RecordId = Annotated[StrictStr, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
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


class TokenRecord(Body):
    """An outcome contract of a market."""

    id: RecordId
    label: StrictStr | None = None


_PYDANTIC_TYPES: dict[str, tuple[Any, Any]] = {
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
_SERVED_MARKET_FIELDS: dict[str, Any] = {
    field.name: _PYDANTIC_TYPES[field.type] for field in FIELDS["markets"] if field.of in ("listing", "market")
}


class MarketDetail(create_model("Market", __base__=Body, **_SERVED_MARKET_FIELDS | {"id": (RecordId, ...)})):  # type: ignore[misc]
    """One market (readings: one market)."""


class ListingMetadata(Body):
    """Paging of a listing; only the cursor matters."""

    count: int | None = None
    limit: int | None = None
    next_cursor: StrictStr | None = None


class Listing(Body):
    """One page of a discovery listing; records stay dicts."""

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
