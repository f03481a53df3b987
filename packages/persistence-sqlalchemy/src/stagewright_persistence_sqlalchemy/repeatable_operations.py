"""Migrations' operations on MariaDB, where each is committed by itself."""

from typing import Any

from alembic.operations import Operations
from sqlalchemy import PrimaryKeyConstraint, Table
from sqlalchemy.schema import Column

from stagewright_persistence_sqlalchemy.mariadb_types import TABLE_OPTIONS
from stagewright_persistence_sqlalchemy.named_operations import NamedOperations

__all__ = ["RepeatableOperations", "led_by", "remake_index"]


class RepeatableOperations(NamedOperations):
    """Operations that may have been done already, by a migration that was interrupted before it was noted."""

    def create_table(self, table_name: str, *columns: Any, **options: Any) -> Table:
        """Make a table unless it is there."""
        for constraint in columns:
            if isinstance(constraint, PrimaryKeyConstraint):
                # MariaDB has one name for all of them, and complains of another.
                constraint.name = None
        return super().create_table(table_name, *columns, if_not_exists=True, **(TABLE_OPTIONS | options))

    def create_index(self, index_name: str | None, table_name: str, *arguments: Any, **options: Any) -> None:
        """Make an index unless it is there."""
        super().create_index(index_name, table_name, *arguments, if_not_exists=True, **options)

    def drop_index(self, index_name: str, table_name: str | None = None, **options: Any) -> None:
        """Drop an index if it is there."""
        super().drop_index(index_name, table_name, if_exists=True, **options)

    def add_column(self, table_name: str, column: Column[Any], **options: Any) -> None:
        """Add a column unless it is there."""
        super().add_column(table_name, column, if_not_exists=True, **options)


def led_by(op: Operations, first: str, columns: list[Any]) -> list[Any]:
    """The columns of an index of some rows; on MariaDB, where it is one of all rows, `first` tells them apart."""
    return [first, *columns] if op.get_context().dialect.name == "mariadb" else columns


def remake_index(op: Operations, name: str, table: str, columns: list[str], **options: Any) -> None:
    """Make an index anew; on MariaDB at once, where a table that refers to another is never without one for that."""
    if op.get_context().dialect.name == "mariadb":
        # In braces, what `execute` gives the names of a store.
        index = "{prefix}" + name
        parts = f"DROP INDEX IF EXISTS {index}, ADD INDEX {index} ({', '.join(columns)})"
        op.execute(f"ALTER TABLE {{{table}}} {parts}")
        return
    op.drop_index(name, table)
    op.create_index(name, table, columns, **options)
