"""What this distribution adds to Stagewright: the adapters for SQLite, PostgreSQL and MariaDB, and `stagewright db`.

Every `stagewright` command loads this module, and SQLAlchemy takes longer to import than all the rest. So whatever
needs it is imported when a database is opened.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial

from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet, ConformanceTarget, hookimpl
from stagewright.plugins.hookspecs import CommandGroup

__all__ = [
    "contents",
    "empty",
    "open_database",
    "stagewright_cli",
    "stagewright_conformance_targets",
    "stagewright_register_adapters",
]


def open_database(url: str, options: AdapterOptions) -> AbstractAsyncContextManager[AdapterSet]:
    """Open an SQLite, PostgreSQL or MariaDB database as every port that it serves, over one engine.

    Unless `options.create_schema` says otherwise, the schema is made in an SQLite database without any table, and
    nowhere else.

    Raises:
        InvalidSettingError, MissingDriverError: If the URL, or a name of the options, can't be used here.
        SchemaError: If the database doesn't have the schema that this code works with.
        DatabaseUnusableError, TransientError: If the database refuses, or can't be reached.
    """
    from stagewright_persistence_sqlalchemy import opening

    return opening.open_database(url, options)


@hookimpl
def stagewright_register_adapters(registry: AdapterRegistry) -> None:
    """Open `sqlite://`, `postgresql://`, `postgres://` and `mariadb://`."""
    for scheme in ("sqlite", "postgresql", "postgres", "mariadb"):
        registry.add(scheme, open_database, takes_names=True)


@hookimpl
def stagewright_cli(group: CommandGroup) -> None:
    """Add `stagewright db`."""
    # Click comes with an extra of the core's, and only the command line calls this.
    from stagewright_persistence_sqlalchemy.cli import db_command

    group.add_command(db_command)


async def contents(url: str) -> str | None:
    """What a database holds of Stagewright's, in a few words; None for nothing. Nothing is changed."""
    from stagewright_persistence_sqlalchemy import emptying

    return await emptying.contents(url)


async def empty(url: str) -> None:
    """Delete every row of Stagewright's in a database, whose schema is made or brought up to date first."""
    from stagewright_persistence_sqlalchemy import emptying

    await emptying.empty(url)


@hookimpl
def stagewright_conformance_targets() -> Iterable[ConformanceTarget]:
    """SQLite in a file, PostgreSQL by each driver and by a pooler, and MariaDB; each kind under given names too."""
    target = partial(ConformanceTarget, holds=contents, empty=empty)
    return (
        target(
            name="SQLite",
            url="sqlite:///{folder}/conformance.db",
            lacks=("concurrent_writers",),
        ),
        target(
            name="PostgreSQL, asyncpg",
            url="postgresql+asyncpg://{server}",
            server="postgresql",
            schemes=("postgresql", "postgres"),
        ),
        target(
            name="PostgreSQL, psycopg",
            url="postgresql+psycopg://{server}",
            server="postgresql",
        ),
        target(
            name="PostgreSQL, PgBouncer",
            url="postgresql+asyncpg://{server}?pgbouncer=true",
            server="pgbouncer",
            schemes=("postgresql", "postgres", "postgresql+psycopg"),
            lacks=("wake_ups",),
        ),
        target(
            name="MariaDB, asyncmy",
            url="mariadb+asyncmy://{server}",
            server="mariadb",
        ),
        target(
            name="SQLite, prefix",
            url="sqlite:///{folder}/conformance.db?table_prefix=of_some_team_",
            lacks=("concurrent_writers",),
        ),
        target(
            name="PostgreSQL, schema and prefix",
            url="postgresql+asyncpg://{server}?schema=some_schema&table_prefix=of_some_team_",
            server="postgresql",
        ),
        target(
            name="MariaDB, prefix",
            url="mariadb+asyncmy://{server}?table_prefix=of_some_team_",
            server="mariadb",
        ),
    )
