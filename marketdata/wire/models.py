"""Records and listings of the interface as pydantic models, which keep unknown fields; ``decode`` reads points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, ValidationError, create_model

from marketdata.decimals import to_number
from marketdata.errors import ContractError
from marketdata.points.records import FIELDS, RecordKind
from marketdata.times import moment_text, parse_iso

# A page holds whole buckets, so a market with more tokens than this cannot be served (interface 4.1, 8).
LARGEST_LIMIT = 200
ISO_PATTERN = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"
# What the description says of times; an archive has them so.
_OF_TIMES: dict[str, Any] = {"format": "date-time", "pattern": ISO_PATTERN}
Time = Annotated[str, Field(json_schema_extra=_OF_TIMES)]
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


def _number(value: Any) -> float | None:
    return None if value in (None, "") else to_number(value)


def _iso(value: Any) -> Any:
    """A time that can be read: a text as it came, and of a Unix time the text."""
    if isinstance(value, str) and value and not value.strip().isdigit():
        parse_iso(value)
        return value
    return value if isinstance(value, bool) else moment_text(value)


_PYDANTIC_TYPES: dict[str, tuple[Any, Any]] = {
    "id": (RecordId | None, None),
    "text": (StrictStr | None, None),
    "date": (Annotated[StrictStr | None, BeforeValidator(_iso), Field(json_schema_extra=_OF_TIMES)], None),
    "texts": (list[StrictStr] | None, None),
    "number": (Annotated[float | None, BeforeValidator(_number)], None),
    "numbers": (list[Annotated[float | None, BeforeValidator(_number)]] | None, None),
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


def _listed(kind: RecordKind) -> type[Body]:
    fields: dict[str, Any] = {field.name: _PYDANTIC_TYPES[field.type] for field in FIELDS[kind]}
    others = {
        "tokens": (list[TokenRecord] | list[Any] | None, None),
        "tags": (list[StrictStr] | list[Any] | None, None),
    }
    fields |= {name: kind_of for name, kind_of in others.items() if name in fields}  # of another shape they stay
    return create_model(f"Listed {kind}", __base__=Body, **fields)


_LISTED = {kind: _listed(kind) for kind in FIELDS}


def listed(kind: RecordKind, row: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a listing, with its known fields in their types and the others as they came; else a ContractError."""
    record: dict[str, Any] = parse(_LISTED[kind], row, f"A record of {kind}").model_dump(exclude_unset=True)
    if record.get("id") is None and not record.get("slug"):
        raise ContractError(f"A record of {kind} has neither an id nor a slug.")
    return record


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
