"""The tools as a server of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from marketdata.errors import MarketDataError, not_installed
from marketdata.mcp.tools import Answer, Tools
from marketdata.times import TimeLike

# Instructions that a program gets before it calls a tool.
_INSTRUCTIONS = (
    "Historical prediction-market data, read only. Find a market with `markets`, then give its slug to the others. "
    "Prices are probabilities (0 to 1), sizes are shares, times are UTC and name the start of a bucket. `missing` are "
    "ranges without data: nothing is filled in. With `as_of` nothing is shown that was known later only."
)


def server(source: Any, as_of: TimeLike | None = None) -> Any:
    """A server of the tools of an archive or a client whose frames are polars; ``.run()`` serves until its input ends.

    ModuleNotFoundError if the extra ``mcp`` is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ModuleNotFoundError as problem:
        raise not_installed("marketdata mcp", "mcp", "mcp") from problem
    tools = Tools(source, as_of)
    out = MCPServer("marketdata", instructions=_INSTRUCTIONS, log_level="WARNING")

    def shown(tool: Callable[..., Answer]) -> Callable[..., Answer]:
        """The tool, whose errors are told to the caller in our words: they name what to do, and never a key."""

        @functools.wraps(tool)
        def called(**arguments: Any) -> Answer:
            try:
                return tool(**arguments)
            except MarketDataError as error:
                raise ToolError(str(error)) from None

        return called

    offered: list[Callable[..., Answer]] = [tools.markets, tools.order_book, tools.books, tools.prices]
    offered += [tools.metrics, tools.features]
    offered += [tools.coverage] if hasattr(source, "coverage") else []
    offered += [tools.sql] if tools.has_sql else []
    for tool in offered:
        out.add_tool(shown(tool), description=inspect.getdoc(tool), annotations=ToolAnnotations(read_only_hint=True))
    return out
