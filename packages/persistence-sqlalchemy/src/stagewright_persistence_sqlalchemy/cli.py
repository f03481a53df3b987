"""The command `stagewright db`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import schema
from stagewright_persistence_sqlalchemy.engine import create_engine

__all__ = ["db_command"]

T = TypeVar("T")


@click.group("db")
def db_command() -> None:
    """Make, check and upgrade the schema in an SQLite or PostgreSQL database."""


@db_command.command("upgrade")
@click.argument("url")
def _upgrade_command(url: str) -> None:
    """Bring the database at URL to the schema that this version needs; an empty one gets it whole."""
    done = _on_engine(url, schema.upgrade)
    if done.before == done.after:
        click.echo(f"the schema is at {done.after} already")
    elif done.before is None:
        click.echo(f"the schema {done.after} was made")
    else:
        click.echo(f"the schema went from {done.before} to {done.after}")


@db_command.command("check")
@click.argument("url")
def _check_command(url: str) -> None:
    """Say whether the database at URL has the schema that this version needs; exits with 1 if not."""
    _on_engine(url, schema.check)
    click.echo(f"the schema is {schema.HEAD}, as needed")


@db_command.command("current")
@click.argument("url")
def _current_command(url: str) -> None:
    """Print the version of the schema that the database at URL has, or none."""
    click.echo(_on_engine(url, schema.current) or "none")


@db_command.command("sql")
@click.argument("url")
def _sql_command(url: str) -> None:
    """Print the statements that make the schema in a database of URL's kind; nothing is opened."""
    click.echo(schema.sql(url), nl=False)


def _on_engine(url: str, use: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    async def used() -> T:
        engine = create_engine(url)
        try:
            return await use(engine)
        finally:
            await engine.dispose()

    return asyncio.run(used())
