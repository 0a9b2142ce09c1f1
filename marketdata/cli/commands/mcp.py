"""``marketdata mcp``: tools for programs that speak the Model Context Protocol."""

from __future__ import annotations

from typing import Annotated

import typer

from marketdata.cli import parameters
from marketdata.cli.parameters import BaseUrl


def mcp(
    archive: Annotated[
        str | None, typer.Argument(metavar="ARCHIVE", help="Folder or address of an archive; without it the service.")
    ] = None,
    as_of: Annotated[str | None, typer.Option(help="Hide what was known only after this time; without SQL.")] = None,
    base_url: BaseUrl = None,
) -> None:
    """Serve tools of the Model Context Protocol.

    Programs find markets and read books, prices, metrics and SQL over standard input and output.

    \b
    Examples:
      marketdata mcp history
      marketdata mcp history --as-of 2026-01-01
    """
    from marketdata.mcp.server import server

    source = parameters.client(base_url) if archive is None else parameters.open_archive(archive)
    server(source, as_of).run()
