"""``marketdata keys``: keys of the local service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from marketdata.cli import output
from marketdata.cli.parameters import Csv, Json

keys = typer.Typer(help="Make, list and revoke keys of the local service.", no_args_is_help=True)
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="TOML file of keys and plans; only hashes of keys are stored.")
]


@keys.command()
def new(
    file: File,
    plan: Annotated[
        str | None,
        typer.Option(help="Plan of the key: of the file, or for a new file its name.", show_default=False),
    ] = None,
    organization: Annotated[str | None, typer.Option(help="Whose key it is.", show_default=False)] = None,
) -> None:
    """Make a key and show it, once.

    A new file gets one plan that allows everything. In a file with one plan the key is of that plan; where there are
    more, name one.

    \b
    Examples:
      marketdata keys new keys.toml
      marketdata keys new keys.toml --plan pro --organization "My desk"
    """
    from marketdata.errors import ConfigError
    from marketdata.service.auth import KeyFile, create_key_file
    from marketdata.service.plans import AccessPlan

    if not file.exists():
        create_key_file(file, {plan or "local": AccessPlan(plan or "local")})
    store = KeyFile(file)
    known = sorted(store.plans)
    if plan is None and len(known) != 1:
        raise ConfigError(f"is missing; {file} has the plans {', '.join(known) or 'none'}.", argument="plan")
    key, entry = store.add(plan or known[0], organization=organization)
    typer.echo(f"{entry.key_id} (plan {entry.plan}); this is the only time the key is shown:\n{key}")


@keys.command("list")
def list_(file: File, *, as_json: Json = False, as_csv: Csv = False) -> None:
    """List keys by id; never the keys themselves.

    \b
    Example:
      marketdata keys list keys.toml --json
    """
    import polars as pl

    from marketdata.service.auth import read_key_file

    entries, _ = read_key_file(file)
    columns = {
        "id": pl.Series([e.key_id for e in entries], dtype=pl.String),
        "plan": pl.Series([e.plan for e in entries], dtype=pl.String),
        "organization": pl.Series([e.organization for e in entries], dtype=pl.String),
        "created": pl.Series([e.created for e in entries], dtype=pl.Datetime("us", "UTC")),
        "expires": pl.Series([e.expires for e in entries], dtype=pl.Datetime("us", "UTC")),
        "revoked": pl.Series([e.revoked for e in entries], dtype=pl.Boolean),
    }
    output.show(pl.DataFrame(columns), output.choose(as_json=as_json, as_csv=as_csv), max(1, len(entries)))


@keys.command()
def revoke(
    file: File, key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="Id of the key, from the list.")]
) -> None:
    """Make a key invalid for ever.

    A running service applies it within a second.

    \b
    Example:
      marketdata keys revoke keys.toml KEY_ID
    """
    from marketdata.service.auth import KeyFile

    KeyFile(file).revoke(key_id)
    typer.echo(f"{key_id} is revoked")
