"""The command `stagewright db`; whatever needs SQLAlchemy is imported by the command that is called."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["db_command"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _with_names(command: Command) -> Command:
    for name, meaning in (
        ("--table-prefix", "What the names of the tables begin with, as in the URL's ?table_prefix=."),
        ("--schema", "PostgreSQL's schema that the tables are in, as in the URL's ?schema=."),
    ):
        command = click.option(name, help=meaning)(command)
    return command


@click.group("db")
def db_command() -> None:
    """Make, check and upgrade the schema in an SQLite, PostgreSQL or MariaDB database."""


@db_command.command("upgrade")
@click.argument("url")
@_with_names
def _upgrade_command(url: str, schema: str | None, table_prefix: str | None) -> None:
    """Bring the database at URL to the schema that this version needs; an empty one gets it whole."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.upgrade(url, schema=schema, table_prefix=table_prefix))


@db_command.command("check")
@click.argument("url")
@_with_names
def _check_command(url: str, schema: str | None, table_prefix: str | None) -> None:
    """Say whether this version works on the schema of the database at URL; exits with 1 if not."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.check(url, schema=schema, table_prefix=table_prefix))


@db_command.command("current")
@click.argument("url")
@_with_names
def _current_command(url: str, schema: str | None, table_prefix: str | None) -> None:
    """Print the schema's version at URL or none, the oldest build that works on it, and what this one needs."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.current(url, schema=schema, table_prefix=table_prefix))


@db_command.command("sql")
@click.argument("url")
@_with_names
def _sql_command(url: str, schema: str | None, table_prefix: str | None) -> None:
    """Print the statements that make the schema in a database of URL's kind; nothing is opened."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.sql(url, schema=schema, table_prefix=table_prefix), nl=False)
