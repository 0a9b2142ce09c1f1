"""Keys of the local service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marketdata.cli import show
from marketdata.cli.words import Json

keys = typer.Typer(help="Make, list and revoke keys of the local service.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="TOML file of keys and plans; only hashes of keys are kept.")]


@keys.command()
def new(
    file: File,
    plan: Annotated[str, typer.Option(help="Plan of the key; a new file gets one that allows everything.")] = "local",
    organization: Annotated[str | None, typer.Option(help="Whose key it is.", show_default=False)] = None,
) -> None:
    """Make a key and show it, once.

    \b
    Examples:
      marketdata keys new keys.toml
      marketdata keys new keys.toml --plan pro --organization "My desk"
    """
    from marketdata.service.keys import KeyFile, create_key_file
    from marketdata.service.plans import Plan

    create_key_file(file, {plan: Plan(plan)})
    key, entry = KeyFile(file).add(plan, organization=organization)
    typer.echo(f"{entry.key_id} (plan {plan}); this is the only time the key is shown:\n{key}")


@keys.command("list")
def list_(file: File, *, as_json: Json = False) -> None:
    """List keys by id; never the keys themselves.

    \b
    Example:
      marketdata keys list keys.toml --json
    """
    from marketdata.service.keys import read_key_file

    entries, _ = read_key_file(file)
    rows = [(e.key_id, e.plan, e.organization, e.created, e.expires, "yes" if e.revoked else "no") for e in entries]
    names = ("id", "plan", "organization", "created", "expires", "revoked")
    if as_json:
        typer.echo(show.as_json([dict(zip(names, row, strict=True)) for row in rows]))
    else:
        typer.echo(show.grid(names, rows))


@keys.command()
def revoke(file: File, key_id: Annotated[str, typer.Argument(help="Id of the key, from the list.")]) -> None:
    """Make a key invalid for ever.

    A running service sees it within a second.

    \b
    Example:
      marketdata keys revoke keys.toml KEY_ID
    """
    from marketdata.service.keys import KeyFile

    KeyFile(file).revoke(key_id)
    typer.echo(f"{key_id} is revoked")
