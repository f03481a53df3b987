"""Databases that can't be used as they are. Everything else that goes wrong is an error of the core's."""

from dataclasses import dataclass

from stagewright.errors import NonRetryableError, StagewrightError

__all__ = [
    "DatabaseFileMissingError",
    "DatabaseUnusableError",
    "SchemaError",
    "SchemaFeatureOffError",
    "SchemaMissingError",
    "SchemaOutdatedError",
    "SchemaTooNewError",
    "UnknownSchemaError",
    "ValueTooLargeError",
]


@dataclass(eq=False)
class DatabaseUnusableError(StagewrightError):
    """The database was reached, or its file was tried, and it refused.

    Attributes:
        url: The database, without its secrets.
        problem: What the driver said.
    """

    url: str
    problem: str

    def __str__(self) -> str:
        return f"{self.url} can't be used: {self.problem}"


@dataclass(eq=False)
class SchemaError(StagewrightError):
    """The database doesn't hold the schema that this code works with; nothing was changed in it.

    Attributes:
        url: The database, without its secrets.
    """

    url: str


@dataclass(eq=False)
class SchemaMissingError(SchemaError):
    """Nothing has made Stagewright's tables there."""

    def __str__(self) -> str:
        return f"{self.url} has no Stagewright schema yet; run `stagewright db upgrade '{self.url}'`"


class DatabaseFileMissingError(SchemaMissingError):
    """There is no such SQLite file, and none may be made."""

    def __str__(self) -> str:
        return (
            f"there is no such file as {self.url} names; check its path, or make it with "
            f"`stagewright db upgrade '{self.url}'`"
        )


@dataclass(eq=False)
class SchemaOutdatedError(SchemaError):
    """The database is older than the code.

    Attributes:
        found: The schema's version in the database.
        needed: The version that this code works with.
    """

    found: str
    needed: str

    def __str__(self) -> str:
        return (
            f"{self.url} has the Stagewright schema {self.found} and this code needs {self.needed}; "
            f"run `stagewright db upgrade '{self.url}'`"
        )


@dataclass(eq=False)
class SchemaTooNewError(SchemaError):
    """The database is newer than the code, and says that the code doesn't work on it.

    Attributes:
        found: The schema's version in the database.
        needed: The version that this code works with.
        oldest_build: The oldest build that works on it, by the version of the schema that it needs. It is above `found`
            where an upgrade has begun that older builds don't work on, and hasn't ended.
    """

    found: str
    needed: str
    oldest_build: str

    def __str__(self) -> str:
        what = f"works with builds of {self.oldest_build} or later"
        if self.oldest_build > self.found:
            what = f"is being upgraded to what {what}"
        return (
            f"{self.url} has the Stagewright schema {self.found}, which {what}, and this code knows none after "
            f"{self.needed}; upgrade stagewright-persistence-sqlalchemy"
        )


@dataclass(eq=False)
class SchemaFeatureOffError(SchemaError):
    """The code works on an older database, and was asked for what only a newer one has.

    Attributes:
        feature: What was asked for.
        found: The schema's version in the database when it was opened.
        needed: The version that has it.
    """

    feature: str
    found: str
    needed: str

    def __str__(self) -> str:
        return (
            f"{self.feature or 'this'} needs the Stagewright schema {self.needed} and {self.url} has {self.found}; run "
            f"`stagewright db upgrade '{self.url}'` and open it again"
        )


@dataclass(eq=False)
class UnknownSchemaError(SchemaError):
    """Tables have the names of Stagewright's, and its migrations didn't leave them so.

    Attributes:
        problem: What was found, and the fix.
    """

    problem: str

    def __str__(self) -> str:
        return f"{self.url} can't be used: {self.problem}"


@dataclass(eq=False)
class ValueTooLargeError(NonRetryableError):
    """A value is larger than the database takes; sending it again would change nothing.

    Attributes:
        problem: What the database said, or what it takes.
    """

    problem: str

    def __str__(self) -> str:
        return f"a value is too large for the database: {self.problem}"
