"""The tools as a server of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import ArgsKwargs

from marketdata.errors import MarketDataError, not_installed
from marketdata.mcp.tools import Answer, Tools
from marketdata.times import TimeLike

_INSTRUCTIONS = (
    "Historical prediction-market data, read only. Begin with `markets`: it lists markets, and of an archive the range "
    "that is stored and what is missing. Give a slug to the other tools. Prices are probabilities (0 to 1), sizes are "
    "shares, times are UTC and name the start of a bucket. `missing` are ranges without data: nothing is filled in. "
    "With `as_of` nothing is shown that was known only later. Ask for one `outcome` and few `rows` where that suffices."
)
TIME_LIMIT = 60.0  # of a call [s]


class Server:
    """A server of the tools of an archive or a client, whose frames are polars; `run` serves until its input ends."""

    def __init__(self, source: Any, as_of: TimeLike | None = None) -> None:
        self.tools = Tools(source, as_of)
        self.calls = self.tools.offered

    def run(self) -> None:
        """Serve until the input ends; ModuleNotFoundError without the extra ``mcp``."""
        try:
            import anyio
            import mcp  # noqa: F401  the server needs it
        except ModuleNotFoundError as problem:
            raise not_installed("marketdata mcp", "mcp", "mcp") from problem
        anyio.run(self._serve)

    async def _serve(self) -> None:
        import anyio
        from mcp import types
        from mcp.server.lowlevel import Server as ProtocolServer
        from mcp.server.stdio import stdio_server

        # One call at a time: the warnings of a call are its notes, and Python's filters of warnings are global.
        limiter = anyio.CapacityLimiter(1)

        async def list_tools(*_: object) -> types.ListToolsResult:
            read_only = types.ToolAnnotations(read_only_hint=True)
            listed = [
                types.Tool(name=name, description=inspect.getdoc(getattr(self.tools, name)), annotations=read_only,
                           input_schema=call.json_schema())
                for name, call in self.calls.items()
            ]  # fmt: skip
            return types.ListToolsResult(tools=listed)

        async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
            stop = threading.Event()
            call = partial(self.answer, params.name, params.arguments or {}, stop)
            try:
                with anyio.move_on_after(TIME_LIMIT):
                    answer, problem = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=limiter)
                    text = problem or json.dumps(answer, separators=(",", ":"), ensure_ascii=False)
                    content = [types.TextContent(type="text", text=text)]
                    return types.CallToolResult(content=content, structured_content=answer, is_error=bool(problem))
                text = f"The call took more than {TIME_LIMIT:g} s and was stopped; ask for less."
                return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
            finally:
                # Also if the client cancels: a statement that nobody waits for ends.
                stop.set()

        server: Any = ProtocolServer(
            "marketdata", instructions=_INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
        )
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    def answer(
        self, name: str, arguments: Mapping[str, Any], stop: threading.Event
    ) -> tuple[Answer | None, str | None]:
        """The answer of a tool, or what was wrong: errors name what to do, and never a key."""
        if name not in self.calls:
            return None, f"The tool {name!r} does not exist; there are {', '.join(self.calls)}."
        self.tools.stop = stop
        try:
            return self.calls[name].validate_python(ArgsKwargs((), dict(arguments))), None
        except ValidationError as problem:
            return None, _problem(problem, self.calls[name].json_schema()["properties"])
        except MarketDataError as problem:
            return None, str(problem)


def _problem(error: ValidationError, allowed: Iterable[str]) -> str:
    """One sentence for each wrong argument."""
    said = []
    for problem in error.errors(include_url=False):
        name = ".".join(map(str, problem["loc"]))
        if problem["type"] == "unexpected_keyword_argument":
            said.append(f"The argument {name!r} does not exist; allowed are {', '.join(allowed)}.")
        elif problem["type"] == "missing_argument":
            said.append(f"The argument {name!r} is missing.")
        else:
            said.append(f"{name}={problem['input']!r}: {problem['msg']}.")
    return " ".join(said)
