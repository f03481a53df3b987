"""Migrations' operations under the names of one store; a migration itself says plain names."""

from typing import Any, Final

from alembic.migration import MigrationContext
from alembic.operations import MigrateOperation, Operations, ops
from sqlalchemy import Column, Constraint, ForeignKeyConstraint

from stagewright_persistence_sqlalchemy.names import PLAIN_NAMES, Names

__all__ = ["NamedOperations"]

_ON_TABLES: Final = (
    ops.AlterTableOp,  # columns are added, changed and dropped by some of them
    ops.CreateIndexOp,
    ops.CreatePrimaryKeyOp,
    ops.CreateTableOp,
    ops.CreateUniqueConstraintOp,
    ops.DropConstraintOp,
    ops.DropIndexOp,
    ops.DropTableOp,
)


class NamedOperations(Operations):
    """Operations in which plain names stand for those of a store.

    `execute` takes text: in it `{job_queue}` is the qualified name of that table, `{prefix}` what every name begins
    with, and `{channel}` the channel of notifications.

    Args:
        context: Alembic's own.
        names: The names of the store.
    """

    def __init__(self, context: MigrationContext, names: Names) -> None:
        super().__init__(context)
        self._names = names

    def invoke(self, operation: MigrateOperation) -> Any:
        """Do an operation, under the names of the store.

        Raises:
            TypeError: If it is one that can't be given them.
        """
        if isinstance(operation, ops.ExecuteSQLOp):
            if not isinstance(operation.sqltext, str):
                raise TypeError(
                    "a migration has to execute text, in which {job_queue} is the name of that table"
                )
            operation.sqltext = self._names.written(operation.sqltext)
        elif isinstance(operation, _ON_TABLES):
            self._rename(operation)
        else:
            raise TypeError(
                f"{type(operation).__name__} doesn't know the names of a store yet; teach it here"
            )
        return super().invoke(operation)

    def _rename(self, operation: Any) -> None:  # Any: Alembic's operations have no common type with a table
        operation.table_name = self._named(operation.table_name)
        operation.schema = self._names.schema
        for attribute in ("index_name", "constraint_name", "new_table_name"):
            if hasattr(operation, attribute):
                setattr(operation, attribute, self._named(getattr(operation, attribute)))
        if isinstance(operation, ops.CreateTableOp):
            operation.columns = [self._renamed_part(part) for part in operation.columns]
        elif isinstance(operation, ops.AddColumnOp):
            self._renamed_part(operation.column)

    def _renamed_part(self, part: Any) -> Any:
        """A part of a table: columns stay, and constraints get the store's names."""
        if self._names == PLAIN_NAMES:
            return part
        if isinstance(part, Column) and part.foreign_keys:
            raise TypeError(f"{part.name}: a migration has to refer to tables by a ForeignKeyConstraint")
        if isinstance(part, ForeignKeyConstraint):
            return ForeignKeyConstraint(
                part.column_keys,
                [self._referred(element.target_fullname) for element in part.elements],
                name=self._named(part.name),
                ondelete=part.ondelete,
                onupdate=part.onupdate,
            )
        if isinstance(part, Constraint):
            part.name = self._named(part.name)
        return part

    def _referred(self, column: str) -> str:
        named = self._names.of(column)
        return named if self._names.schema is None else f"{self._names.schema}.{named}"

    def _named(self, name: Any) -> str | None:
        return None if name is None else self._names.of(str(name))
