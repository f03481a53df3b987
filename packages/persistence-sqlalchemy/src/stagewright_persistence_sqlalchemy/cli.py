"""The command `stagewright db`; whatever needs SQLAlchemy is imported by the command that is called."""

import click

__all__ = ["db_command"]


@click.group("db")
def db_command() -> None:
    """Make, check and upgrade the schema in an SQLite, PostgreSQL or MariaDB database."""


@db_command.command("upgrade")
@click.argument("url")
def _upgrade_command(url: str) -> None:
    """Bring the database at URL to the schema that this version needs; an empty one gets it whole."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.upgrade(url))


@db_command.command("check")
@click.argument("url")
def _check_command(url: str) -> None:
    """Say whether this version works on the schema of the database at URL; exits with 1 if not."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.check(url))


@db_command.command("current")
@click.argument("url")
def _current_command(url: str) -> None:
    """Print the schema's version at URL or none, the oldest build that works on it, and what this one needs."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.current(url))


@db_command.command("sql")
@click.argument("url")
def _sql_command(url: str) -> None:
    """Print the statements that make the schema in a database of URL's kind; nothing is opened."""
    from stagewright_persistence_sqlalchemy import schema_commands

    click.echo(schema_commands.sql(url), nl=False)
