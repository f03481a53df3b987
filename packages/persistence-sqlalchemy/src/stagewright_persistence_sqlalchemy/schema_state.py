"""What a database holds of the schema, and whether that will do."""

import re
from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy import Column, Connection, MetaData, Table, Text, func, inspect, select

from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.errors import (
    SchemaMissingError,
    SchemaOutdatedError,
    SchemaTooNewError,
    UnknownSchemaError,
)
from stagewright_persistence_sqlalchemy.tables import metadata

__all__ = ["VERSION_TABLE", "SchemaState", "state_of"]

VERSION_TABLE: Final = "stagewright_schema_version"
"""The table that keeps the schema's version, apart from the application's own migrations."""

_versions: Final = Table(VERSION_TABLE, MetaData(), Column("version_num", Text))
_VERSION: Final = re.compile(r"(?!0000)\d{4}")


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds.

    Attributes:
        versions: What the version table says; None if there is no such table.
        tables: Those of Stagewright's tables that are there.
        is_empty: Whether there is no table at all; always false on a server, which others may share.
        is_unfinished: Whether its making has begun and was interrupted, where that isn't undone by itself.
    """

    versions: tuple[str, ...] | None
    tables: frozenset[str]
    is_empty: bool
    is_unfinished: bool = False

    @classmethod
    def of_nothing(cls) -> Self:
        """The state of a file that doesn't exist."""
        return cls(None, frozenset(), True)

    @property
    def version(self) -> str | None:
        """The schema's version, whether or not it is known; None if there is none."""
        return self.versions[0] if self.versions else None

    def known_version(self, url: str) -> str | None:
        """The schema's version; None if there is no schema.

        Raises:
            UnknownSchemaError: If what is there isn't of Stagewright's making.
        """
        version = self.version
        if version is None:
            if self.tables and not self.is_unfinished:
                named = ", ".join(sorted(self.tables))
                problem = (
                    f"Stagewright's migrations didn't make its tables {named}; use another database or schema"
                )
                raise UnknownSchemaError(url, problem)
            return None
        found = self.versions or ()
        if len(found) > 1 or not _VERSION.fullmatch(version):
            said = ", ".join(sorted(found))
            problem = f"its table {VERSION_TABLE} says {said!r}, which is no version of Stagewright's schema"
            raise UnknownSchemaError(url, problem)
        return version

    def check(self, url: str, head: str) -> None:
        """Make sure that it is the schema of that version.

        Args:
            url: The database, for errors.
            head: The version that is needed.

        Raises:
            SchemaMissingError, SchemaOutdatedError, SchemaTooNewError, UnknownSchemaError: If it isn't.
        """
        version = self.known_version(url)
        if version is None:
            raise SchemaMissingError(url)
        if version < head:
            raise SchemaOutdatedError(url, version, head)
        if version > head:
            raise SchemaTooNewError(url, version, head)
        missing = ", ".join(sorted(set(metadata.tables) - self.tables))
        if missing:
            problem = f"it says that it has the schema {version}, and tables are missing ({missing}); restore a backup"
            raise UnknownSchemaError(url, problem)


def state_of(connection: Connection) -> SchemaState:
    """Look at a database."""
    kind = kind_of(connection.dialect.name)
    if kind.name == "postgresql":
        names = (VERSION_TABLE, *metadata.tables)
        # Found as the statements will find them: along the search path.
        found = connection.execute(select(*(func.to_regclass(name).is_not(None) for name in names))).one()
        present = {name for name, is_there in zip(names, found, strict=True) if is_there}
    else:
        present = set(inspect(connection).get_table_names())
    versions = None
    if VERSION_TABLE in present:
        versions = tuple(connection.execute(select(_versions.c.version_num)).scalars())
    return SchemaState(
        versions,
        frozenset(present & set(metadata.tables)),
        is_empty=kind.name == "sqlite" and not present,
        # The version's table is made first, and its row is written when everything is there.
        is_unfinished=versions == () and not kind.rolls_ddl_back,
    )
