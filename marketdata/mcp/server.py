"""The tools as a server of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from pydantic import ValidationError
from pydantic_core import ArgsKwargs

from marketdata.errors import MarketDataError, not_installed
from marketdata.mcp.statement import MOST_BYTES
from marketdata.mcp.tools import Answer, Tools
from marketdata.times import TimeLike

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.types import CallToolResult

_INSTRUCTIONS = (
    "Historical prediction-market data, read only. Begin with `markets`: it lists markets, and of an archive the range "
    "that is stored and what is missing. Give a slug to the other tools. Prices are probabilities (0 to 1), sizes are "
    "shares, times are UTC and name the start of a bucket. `missing` are ranges without data: nothing is filled in. "
    "With `as_of` nothing is shown that was known only later. Ask for one `outcome` and few `rows` where that suffices."
)
TIME_LIMIT = 60.0  # of a call [s]
_log = logging.getLogger("marketdata.mcp")


class Server:
    """A server of the tools of an archive or a client, whose frames are polars; `run` serves until its input ends."""

    def __init__(self, source: Any, as_of: TimeLike | None = None) -> None:
        self.tools = Tools(source, as_of)
        self.calls = self.tools.offered
        # One call at a time: the warnings of a call are its notes, and Python's filters of warnings are global.
        self._running = threading.Lock()

    def run(self) -> None:
        """Serve until the input ends, or Ctrl-C ends the process; ModuleNotFoundError without the extra ``mcp``."""
        protocol = self._protocol()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, _end_process)
        try:
            protocol.run()
        finally:
            self.tools.stop.set()
            # A thread that computes while the interpreter ends would abort the process.
            with self._running:
                pass

    def _protocol(self) -> MCPServer[Any]:
        """The tools in the server of the protocol's own library."""
        try:
            from mcp.server.mcpserver import MCPServer
            from mcp.server.mcpserver.tools import Tool
            from mcp.types import ToolAnnotations
        except ModuleNotFoundError as problem:
            raise not_installed("marketdata mcp", "mcp", "mcp") from problem

        call = self._call

        class Protocol(MCPServer[Any]):  # type: ignore[misc] # the library is not typed here
            async def call_tool(self, name: str, arguments: Mapping[str, Any], *_: object) -> CallToolResult:
                return await call(name, arguments)

        tools = []
        for name, checked in self.calls.items():
            function, read_only = getattr(self.tools, name), ToolAnnotations(read_only_hint=True)
            tool = Tool.from_function(
                function, description=inspect.getdoc(function), annotations=read_only, structured_output=False
            )
            tool.parameters = checked.json_schema()  # which refuses further arguments, as the call does
            tools.append(tool)
        return Protocol(
            "marketdata",
            instructions=_INSTRUCTIONS,
            version=version("prediction-marketdata"),
            tools=tools,
            log_level="WARNING",
        )

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """The answer of a tool, or the error; a call ends after the time limit, or once its sender cancels it."""
        import anyio
        from mcp.types import CallToolResult, TextContent

        stop = threading.Event()
        answer, problem = None, f"The call took more than {TIME_LIMIT:g} s and was stopped; ask for less."
        try:
            with anyio.move_on_after(TIME_LIMIT):
                answer, problem = await anyio.to_thread.run_sync(
                    partial(self.answer, name, arguments, stop), abandon_on_cancel=True
                )
        finally:
            stop.set()  # a statement that nobody waits for ends
        text = problem or msgspec.json.encode(answer).decode()
        content = [TextContent(type="text", text=text)]
        return CallToolResult(content=content, structured_content=answer, is_error=bool(problem))

    def answer(self, name: str, arguments: Mapping[str, Any], stop: threading.Event) -> tuple[Answer | None, str]:
        """The answer of a tool, or what was wrong: errors name what to do, and never a key."""
        if name not in self.calls:
            return None, f"The tool {name!r} does not exist; there are {', '.join(self.calls)}."
        with self._running:
            self.tools.stop = stop
            try:
                answer = self.calls[name].validate_python(ArgsKwargs((), dict(arguments)))
            except ValidationError as problem:
                return None, _problem(problem, self.calls[name].json_schema()["properties"])
            except MarketDataError as problem:
                return None, str(problem)
            except BaseException as problem:  # a panic of a library in Rust is no Exception, and would end the server
                _log.exception("the tool %s failed", name)
                return None, f"The tool {name} failed ({type(problem).__name__}); the log of the server has more."
        if (size := len(msgspec.json.encode(answer))) > MOST_BYTES:
            return None, f"The answer has {size:,} bytes; at most {MOST_BYTES:,} are allowed: ask for less."
        return answer, ""


def _end_process(*_: object) -> NoReturn:
    """End with the code of Ctrl-C: the thread that waits for input would keep the interpreter until a line arrives."""
    os._exit(130)


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
