"""What a database holds of the schema, and whether that will do."""

import re
from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy import Connection, column, func, inspect, select
from sqlalchemy import table as table_of

from stagewright_persistence_sqlalchemy.dialect import kind_of
from stagewright_persistence_sqlalchemy.errors import (
    SchemaMissingError,
    SchemaOutdatedError,
    SchemaTooNewError,
    UnknownSchemaError,
)
from stagewright_persistence_sqlalchemy.names import PLAIN_NAMES, Names
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES

__all__ = ["VERSION_TABLE", "SchemaState", "state_of"]

VERSION_TABLE: Final = "stagewright_schema_version"
"""The table that keeps the schema's version, apart from the application's own migrations."""

_VERSION: Final = re.compile(r"(?!0000)\d{4}")


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What a database holds.

    Attributes:
        versions: What the version table says; None if there is no such table.
        tables: Those of Stagewright's tables that are there.
        is_empty: Whether there is no table at all; always false on a server, which others may share.
        is_unfinished: Whether its making has begun and was interrupted, where that isn't undone by itself.
        names: What the tables are called there; elsewhere here they have their plain names.
    """

    versions: tuple[str, ...] | None
    tables: frozenset[str]
    is_empty: bool
    is_unfinished: bool = False
    names: Names = PLAIN_NAMES

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
                named = ", ".join(sorted(map(self.names.of, self.tables)))
                problem = (
                    f"Stagewright's migrations didn't make its tables {named}; use another database or schema"
                )
                raise UnknownSchemaError(url, problem)
            return None
        found = self.versions or ()
        if len(found) > 1 or not _VERSION.fullmatch(version):
            said = ", ".join(sorted(found))
            table = self.names.of(VERSION_TABLE)
            problem = f"its table {table} says {said!r}, which is no version of Stagewright's schema"
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
        missing = ", ".join(sorted(map(self.names.of, set(PLAIN_TABLES.by_name) - self.tables)))
        if missing:
            problem = f"it says that it has the schema {version}, and tables are missing ({missing}); restore a backup"
            raise UnknownSchemaError(url, problem)


def state_of(connection: Connection, names: Names = PLAIN_NAMES) -> SchemaState:
    """Look at a database, in which the tables have these names; what is found of them is told by the plain ones."""
    kind = kind_of(connection.dialect.name)
    wanted = (VERSION_TABLE, *PLAIN_TABLES.by_name)
    if kind.name == "postgresql":
        # Found as the statements will find them: in the schema, or along the search path.
        places = (func.to_regclass(names.qualified(name)).is_not(None) for name in wanted)
        found = connection.execute(select(*places)).one()
        present = {name for name, is_there in zip(wanted, found, strict=True) if is_there}
        is_empty = False
    else:
        there = set(inspect(connection).get_table_names())
        present = {name for name in wanted if names.of(name) in there}
        is_empty = kind.name == "sqlite" and not there
    versions = None
    if VERSION_TABLE in present:
        known = table_of(names.of(VERSION_TABLE), column("version_num"), schema=names.schema)
        versions = tuple(connection.execute(select(known.c.version_num)).scalars())
    return SchemaState(
        versions,
        frozenset(present & set(PLAIN_TABLES.by_name)),
        is_empty=is_empty,
        # The version's table is made first, and its row is written when everything is there.
        is_unfinished=versions == () and not kind.rolls_ddl_back,
        names=names,
    )
