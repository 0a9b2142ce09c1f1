"""The commands and the options of all of them."""

from __future__ import annotations

from typing import Annotated

import typer

from marketdata.cli.commands import archive, client, demo, service

_EPILOG = (
    "Real prices without a key: marketdata markets --service polymarket (or kalshi); this was tried against recorded "
    "answers only. For another service the key comes from MARKETDATA_API_KEY, the address from --base-url or "
    "MARKETDATA_BASE_URL. "
    "Exit codes: 0 done, 1 failed, 2 argument refused, 3 key or plan, 4 not found, 5 service or network."
)
app = typer.Typer(
    name="marketdata",
    help="Historical prediction-market data as tidy frames.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,  # noqa: ARG001  main reads it
) -> None:
    if version:
        import marketdata

        typer.echo(f"marketdata {marketdata.__version__}")
        raise typer.Exit


for command in (
    *(demo.demo, service.serve, client.usage, client.series, client.events, client.markets, client.tokens),
    *(
        client.fetch,
        client.plan,
        archive.pull,
        archive.record,
        archive.replay,
        archive.coverage,
        archive.verify,
        archive.compact,
        service.mcp,
    ),
):
    app.command()(command)
app.command("import")(archive.import_)
app.command()(archive.export)
app.add_typer(service.keys, name="keys")
