"""What `stagewright db` does, each on a database of its own URL, under the names that are given."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import schema as schemas
from stagewright_persistence_sqlalchemy.engine import create_engine

__all__ = ["check", "current", "sql", "upgrade"]

T = TypeVar("T")


def upgrade(url: str, *, schema: str | None = None, table_prefix: str | None = None) -> str:
    """Bring a database to the schema that this version needs, and say what was done."""
    done = _on_engine(url, schemas.upgrade, schema, table_prefix)
    if done.before == done.after:
        return f"the schema is at {done.after} already"
    if done.before is None:
        return f"the schema {done.after} was made"
    return f"the schema went from {done.before} to {done.after}"


def check(url: str, *, schema: str | None = None, table_prefix: str | None = None) -> str:
    """Say that this version works on the schema that a database has.

    Raises:
        SchemaError: If it doesn't.
    """
    found = _on_engine(url, schemas.check, schema, table_prefix)
    return found.remark or f"the schema is {schemas.HEAD}, as needed"


def current(url: str, *, schema: str | None = None, table_prefix: str | None = None) -> str:
    """The version of a database's schema, or none; the oldest build that works on it; what this one needs."""

    async def look(engine: AsyncEngine) -> tuple[str | None, str | None]:
        return await schemas.current(engine), await schemas.oldest_build(engine)

    version, oldest_build = _on_engine(url, look, schema, table_prefix)
    if version is None:
        return f"none\nthis build needs: {schemas.HEAD}"
    return f"{version}\noldest build that works on it: {oldest_build}\nthis build needs: {schemas.HEAD}"


def sql(url: str, *, schema: str | None = None, table_prefix: str | None = None) -> str:
    """The statements that make the schema in a database of that kind; nothing is opened."""
    return schemas.sql(url, schema=schema, table_prefix=table_prefix)


def _on_engine(
    url: str,
    use: Callable[[AsyncEngine], Awaitable[T]],
    schema: str | None,
    table_prefix: str | None,
) -> T:
    async def used() -> T:
        engine = create_engine(url, schema=schema, table_prefix=table_prefix)
        try:
            return await use(engine)
        finally:
            await engine.dispose()

    return asyncio.run(used())
