"""On which databases a test that isn't of a conformance suite runs, and in which session.

Each such test names all databases and drivers that it is written for. It sees SQLite and PostgreSQL by asyncpg in the
session of the tests; others are left to the wide session, unless what the test is about differs there: how a dialect
spells or keeps something, how a server locks, how a driver fails. The conformance suites run on all of them in CI.
"""

from collections.abc import Collection
from typing import Any

import pytest

__all__ = ["stores"]

_ALWAYS = frozenset({"memory", "sqlite", "asyncpg", "postgres", "postgresql"})


def stores(*names: str, differ: Collection[str] = ()) -> list[Any]:  # Any: pytest keeps the type to itself
    """The parameters of a test or a fixture, one for each database or driver.

    Args:
        names: `memory`, `sqlite`, `asyncpg`, `psycopg`, `mariadb`, `postgres` or `postgresql` where the driver is the
            default one; with what else there is to say of it after a space, as in `asyncpg through pgbouncer`.
        differ: Those of them that the test runs on in every session, because it is about what is theirs.
    """
    unknown = set(differ) - set(names)
    if unknown:
        raise ValueError(f"the test doesn't run on {', '.join(sorted(unknown))}")
    return [
        pytest.param(name)
        if name in _ALWAYS or name in differ
        else pytest.param(name, marks=pytest.mark.wide)
        for name in names
    ]
