"""What a database holds of the schema, and whether that will do."""

import re
from dataclasses import dataclass
from typing import Final, Self

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    String,
    column,
    func,
    inspect,
    null,
    select,
)
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

__all__ = ["OLDEST_BUILD", "VERSION_TABLE", "SchemaState", "oldest_build_column", "state_of"]

VERSION_TABLE: Final = "stagewright_schema_version"
"""The table that keeps the schema's version, apart from the application's own migrations."""

OLDEST_BUILD: Final = "oldest_build"
"""Its column for the oldest build that works on the database; builds that know no such column refuse what is newer."""

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
        noted_oldest_build: What the version table says of the oldest build that works on it; None if it says nothing.
        notes_oldest_build: Whether the version table has a place for that.
    """

    versions: tuple[str, ...] | None
    tables: frozenset[str]
    is_empty: bool
    is_unfinished: bool = False
    names: Names = PLAIN_NAMES
    noted_oldest_build: str | None = None
    notes_oldest_build: bool = False

    @classmethod
    def of_nothing(cls) -> Self:
        """The state of a file that doesn't exist."""
        return cls(None, frozenset(), True)

    @property
    def version(self) -> str | None:
        """The schema's version, whether or not it is known; None if there is none."""
        return self.versions[0] if self.versions else None

    @property
    def oldest_build(self) -> str | None:
        """The oldest build that works on it, by the version that the build needs; None if there is no schema.

        Of a database that says nothing it is the schema's own version.
        """
        return self.noted_oldest_build or self.version

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
        noted = self.noted_oldest_build
        if noted is not None and not _VERSION.fullmatch(noted):
            table = self.names.of(VERSION_TABLE)
            problem = f"its table {table} says that its oldest build is {noted!r}, which is no version"
            raise UnknownSchemaError(url, problem)
        return version

    def is_behind(self, url: str, head: str) -> bool:
        """Whether it needs an upgrade to have the schema of version `head`; one that has none does.

        Raises:
            SchemaTooNewError, UnknownSchemaError: If it can't be brought there.
        """
        version = self.known_version(url)
        if version is None:
            return True
        self._check_build(url, version, head)
        return version < head

    def check(self, url: str, head: str, oldest_database: str) -> str:
        """Make sure that a build works on it, and answer its version.

        Args:
            url: The database, for errors.
            head: The version that the build needs.
            oldest_database: The oldest version that it works on.

        Raises:
            SchemaMissingError, SchemaOutdatedError, SchemaTooNewError, UnknownSchemaError: If it doesn't.
        """
        version = self.known_version(url)
        if version is None:
            raise SchemaMissingError(url)
        self._check_build(url, version, head)
        if version < oldest_database:
            raise SchemaOutdatedError(url, version, head)
        of_then = {name for name, one in PLAIN_TABLES.by_name.items() if one.info.get("since", "") <= version}
        missing = ", ".join(sorted(map(self.names.of, of_then - self.tables)))
        if missing:
            problem = f"it says that it has the schema {version}, and tables are missing ({missing}); restore a backup"
            raise UnknownSchemaError(url, problem)
        return version

    def _check_build(self, url: str, version: str, head: str) -> None:
        oldest_build = self.oldest_build or version
        if head < oldest_build:
            raise SchemaTooNewError(url, version, head, oldest_build)


def oldest_build_column() -> Column[str]:
    """The column, to be added to the version table; it says nothing until a migration does."""
    return Column(OLDEST_BUILD, String(32))


def state_of(connection: Connection, names: Names = PLAIN_NAMES) -> SchemaState:
    """Look at a database, in which the tables have these names; what is found of them is told by the plain ones."""
    kind = kind_of(connection.dialect.name)
    wanted = (VERSION_TABLE, *PLAIN_TABLES.by_name)
    notes = False
    if kind.name == "postgresql":
        # Found as the statements will find them: in the schema, or along the search path.
        places = [func.to_regclass(names.qualified(name)).is_not(None) for name in wanted]
        found = connection.execute(select(_postgresql_notes_oldest_build(names), *places)).one()
        notes = bool(found[0])
        present = {name for name, is_there in zip(wanted, found[1:], strict=True) if is_there}
        is_empty = False
    else:
        inspector = inspect(connection)
        there = set(inspector.get_table_names())
        present = {name for name in wanted if names.of(name) in there}
        is_empty = kind.name == "sqlite" and not there
        if VERSION_TABLE in present:
            columns = inspector.get_columns(names.of(VERSION_TABLE))
            notes = any(one["name"] == OLDEST_BUILD for one in columns)
    versions, oldest_builds = None, list[str | None]()
    if VERSION_TABLE in present:
        known = table_of(
            names.of(VERSION_TABLE), column("version_num"), column(OLDEST_BUILD), schema=names.schema
        )
        oldest = known.c[OLDEST_BUILD] if notes else null()
        rows = connection.execute(select(known.c.version_num, oldest)).all()
        versions, oldest_builds = tuple(row[0] for row in rows), [row[1] for row in rows]
    return SchemaState(
        versions,
        frozenset(present & set(PLAIN_TABLES.by_name)),
        is_empty=is_empty,
        # The version's table is made first, and its row is written when everything is there.
        is_unfinished=versions == () and not kind.rolls_ddl_back,
        names=names,
        noted_oldest_build=oldest_builds[0] if oldest_builds else None,
        notes_oldest_build=notes,
    )


def _postgresql_notes_oldest_build(names: Names) -> ColumnElement[bool]:
    attributes = table_of(
        "pg_attribute", column("attrelid"), column("attname"), column("attisdropped"), schema="pg_catalog"
    )
    return (
        select(attributes.c.attrelid)
        .where(
            attributes.c.attrelid == func.to_regclass(names.qualified(VERSION_TABLE)),
            attributes.c.attname == OLDEST_BUILD,
            ~attributes.c.attisdropped,
        )
        .exists()
    )
