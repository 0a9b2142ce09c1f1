"""``marketdata keys``: keys of the local service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from marketdata.cli import output
from marketdata.cli.parameters import Csv, Json

keys = typer.Typer(help="Create, list and revoke keys of the local service.", no_args_is_help=True)
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="TOML file of keys and plans; only hashes of keys are stored.")
]


@keys.command()
def new(
    file: File,
    plan: Annotated[str | None, typer.Option(help="Plan of the key: of the file, or for a new file its name.")] = None,
    organization: Annotated[str | None, typer.Option(help="Owner of the key.")] = None,
) -> None:
    """Create a key and show it once. A new file gets one plan that allows everything.

    \b
    Example:
      marketdata keys new keys.toml --plan pro --organization "My desk"
    """
    from marketdata.service.keys import add_key

    key, entry = add_key(file, plan, organization=organization)
    typer.echo(f"{entry.id} (plan {entry.plan}); this is the only time the key is shown:\n{key}")


@keys.command("list")
def list_(file: File, *, as_json: Json = False, as_csv: Csv = False) -> None:
    """List keys by id; never the keys themselves.

    \b
    Example:
      marketdata keys list keys.toml --json
    """
    import polars as pl

    from marketdata.service.keys import read_key_file

    entries = read_key_file(file).keys
    rows = [(e.id, e.plan, e.organization, e.created, e.expires, e.revoked) for e in entries]
    times = pl.Datetime("us", "UTC")
    schema: Any = {**dict.fromkeys(("id", "plan", "organization"), pl.String), "created": times, "expires": times}
    schema["revoked"] = pl.Boolean
    output.show(
        pl.DataFrame(rows, schema, orient="row"), output.choose(as_json=as_json, as_csv=as_csv), max(1, len(entries))
    )


@keys.command()
def revoke(
    file: File, key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Id of the key, from the list.")]
) -> None:
    """Make a key invalid for ever. A running service applies it within a second.

    \b
    Example:
      marketdata keys revoke keys.toml KEY_ID
    """
    from marketdata.service.keys import revoke_key

    revoke_key(file, key_id)
    typer.echo(f"{key_id} is revoked")
