"""Hints of statements that SQLite is to get as `INDEXED BY`, which SQLAlchemy leaves out."""

from typing import Any

from sqlalchemy import FromClause
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["pass_hints_on"]


class _HintingCompiler(SQLiteCompiler):
    def get_from_hint_text(self, table: FromClause, text: Any) -> Any:
        return text


def pass_hints_on(engine: AsyncEngine) -> None:
    """Have `Select.with_hint` write what it is given behind the table."""
    engine.dialect.statement_compiler = _HintingCompiler
