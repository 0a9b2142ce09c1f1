"""The OpenAPI document, and answers held against it."""

from __future__ import annotations

import jsonschema
import pytest
import requests
from service.web import LONG_ID, Web, window
from still import SOON

from marketdata.service.server import Service

BOOKS = "/v1/markets/{id_or_slug}/books"


@pytest.fixture(scope="module")
def document(local: Service) -> dict:
    return requests.get(local.base_url + "/openapi.json", timeout=SOON).json()


def test_the_description_has_the_names_of_the_interface(document: dict) -> None:
    """Version, operation id, tag, key scheme and limits are those of the interface."""
    assert document["info"]["version"] == "0.1.1"
    books = document["paths"][BOOKS]["get"]
    assert books["operationId"] == "get_market_books_v1_markets__id_or_slug__books_get"
    assert books["tags"] == ["History"]
    scheme = document["components"]["securitySchemes"]["APIKeyHeader"]
    assert (scheme["type"], scheme["in"], scheme["name"]) == ("apiKey", "header", "X-API-Key")
    parameters = {p["name"]: p for p in books["parameters"]}
    assert list(parameters) == ["id_or_slug", "start_ts", "end_ts", "resolution", "limit", "cursor"]
    slug, limit = parameters["id_or_slug"]["schema"], parameters["limit"]["schema"]
    assert (slug["minLength"], slug["maxLength"]) == (1, 200)
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 200, 100)
    assert document["components"]["schemas"]["Resolution"]["enum"] == ["1m", "10m", "1h", "6h", "1d"]


def test_every_route_says_what_it_answers(document: dict) -> None:
    """Every operation needs the key, and declares the statuses of section 7 with their bodies."""
    for path, item in document["paths"].items():
        operation = item["get"]
        assert set(item) == {"get"}
        assert path.startswith("/v1/")
        assert operation["security"] == [{"APIKeyHeader": []}]
        assert {"200", "400", "401", "422", "429", "500", "503"} <= set(operation["responses"])
        for status, response in operation["responses"].items():
            name = response["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            if status != "200":
                assert name == ("ValidationErrorResponse" if status == "422" else "ErrorResponse")
    assert {"403", "404"} <= set(document["paths"][BOOKS]["get"]["responses"])


ASKED = {
    BOOKS: [("/v1/markets/m1/books", window(1)), ("/v1/markets/m1/books", {**window(1), "limit": "1"})],
    "/v1/markets/{id_or_slug}/prices": [("/v1/markets/m1/prices", window(1)), ("/v1/markets/no/prices", window(1))],
    "/v1/markets/{id_or_slug}/metrics": [("/v1/markets/m1/metrics", window(1)), ("/v1/markets/m1/metrics", {})],
    "/v1/tokens/{token_id}/books": [(f"/v1/tokens/{LONG_ID}/books", window(1))],
    "/v1/tokens/{token_id}/prices": [(f"/v1/tokens/{LONG_ID}/prices", window(1))],
    "/v1/series": [("/v1/series", {}), ("/v1/series", {"limit": "0"})],
    "/v1/events": [("/v1/events", {}), ("/v1/events", {"cursor": "x"})],
    "/v1/markets": [("/v1/markets", {})],
    "/v1/markets/{id_or_slug}": [("/v1/markets/m1", {}), ("/v1/markets/no", {})],
    "/v1/tags": [("/v1/tags", {})],
    "/v1/health": [("/v1/health", {})],
    "/v1/usage": [("/v1/usage", {})],
}


def test_every_answer_is_in_its_schema(ask: Web, document: dict) -> None:
    """Answers of every route, good and refused, validate against what the document declares for them."""
    assert set(ASKED) == set(document["paths"])
    for path, some in ASKED.items():
        responses = document["paths"][path]["get"]["responses"]
        for asked, params in some:
            answer = ask.get(asked, **params)
            schema = responses[str(answer.status)]["content"]["application/json"]["schema"]
            jsonschema.validate(answer.body, {**schema, "components": document["components"]})
