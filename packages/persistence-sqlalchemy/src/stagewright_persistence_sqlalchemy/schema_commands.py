"""What `stagewright db` does, each on a database of its own URL."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from stagewright_persistence_sqlalchemy import schema
from stagewright_persistence_sqlalchemy.engine import create_engine

__all__ = ["check", "current", "sql", "upgrade"]

T = TypeVar("T")


def upgrade(url: str) -> str:
    """Bring a database to the schema that this version needs, and say what was done."""
    done = _on_engine(url, schema.upgrade)
    if done.before == done.after:
        return f"the schema is at {done.after} already"
    if done.before is None:
        return f"the schema {done.after} was made"
    return f"the schema went from {done.before} to {done.after}"


def check(url: str) -> str:
    """Say that this version works on the schema that a database has.

    Raises:
        SchemaError: If it doesn't.
    """
    found = _on_engine(url, schema.check)
    return found.remark or f"the schema is {schema.HEAD}, as needed"


def current(url: str) -> str:
    """The version of a database's schema, or none; the oldest build that works on it; what this one needs."""

    async def look(engine: AsyncEngine) -> tuple[str | None, str | None]:
        return await schema.current(engine), await schema.oldest_build(engine)

    version, oldest_build = _on_engine(url, look)
    if version is None:
        return f"none\nthis build needs: {schema.HEAD}"
    return f"{version}\noldest build that works on it: {oldest_build}\nthis build needs: {schema.HEAD}"


def sql(url: str) -> str:
    """The statements that make the schema in a database of that kind; nothing is opened."""
    return schema.sql(url)


def _on_engine(url: str, use: Callable[[AsyncEngine], Awaitable[T]]) -> T:
    async def used() -> T:
        engine = create_engine(url)
        try:
            return await use(engine)
        finally:
            await engine.dispose()

    return asyncio.run(used())
