"""The routes of interface section 4 as a FastAPI application."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from marketdata.service import errors
from marketdata.service.dependencies import Parts
from marketdata.service.routes import days, discovery, history, start_page, utility

# Version of the interface that is answered (its section 9).
VERSION = "0.1.1"


def create_app(parts: Parts) -> FastAPI:
    """The application behind ``Access``."""
    simulated = parts.source.simulated
    app = FastAPI(
        title="Historical Market Data Service",
        version=VERSION,
        description="Read-only historical prediction-market data." + (" Simulated." if simulated else ""),
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.parts = parts
    for routes in (history, discovery, utility, days):
        app.include_router(routes.router)
    app.include_router(start_page.create_router(simulated=simulated))
    app.add_exception_handler(RequestValidationError, _not_valid)
    return app


async def _not_valid(request: Request, problem: Exception) -> Response:
    """422 as the interface has it: FastAPI's own answer repeats the input, and does not say what is allowed."""
    assert isinstance(problem, RequestValidationError)
    found = []
    for error in problem.errors():
        message = error["msg"]
        if error["type"] == "extra_forbidden":
            (filters,) = request.scope["route"].dependant.query_params
            message = f"Unknown filter; allowed are {', '.join(filters.field_info.annotation.model_fields)}"
        loc = [errors.shown(str(part)) for part in error["loc"]]
        found.append({"loc": loc, "msg": message, "type": error["type"]})
    return errors.response(422, found)
