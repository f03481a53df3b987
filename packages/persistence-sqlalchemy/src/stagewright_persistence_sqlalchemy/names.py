"""What Stagewright's tables are called in a database: the schema that they are in, and what their names begin with."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from stagewright.errors import InvalidSettingError

__all__ = ["LONGEST_PREFIX", "PLAIN_NAMES", "Names", "checked_names"]

LONGEST_PREFIX: Final = 13
"""With so many characters before it, the longest name of a table, an index or a constraint is one on every database."""

_LONGEST_SCHEMA: Final = 63
_IDENTIFIER: Final = re.compile(r"[a-z_][a-z0-9_]*")
_CHANNEL: Final = "stagewright_work"
_SCHEMA_LOCK: Final = 0x5374616765777269
_OF_INDEXES: Final = ("ix_", "uq_", "pk_", "fk_")
_TOKEN: Final = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one store. Two stores of different names in one database have nothing in common.

    Attributes:
        schema: PostgreSQL's schema; None leaves it to the search path of the session.
        table_prefix: What the name of every table, index, constraint and function begins with.
    """

    schema: str | None = None
    table_prefix: str = ""

    def of(self, name: str) -> str:
        """The name of what is called so without a prefix."""
        return self.table_prefix + name

    def qualified(self, name: str) -> str:
        """The same for the text of a statement, with the schema."""
        return self.of(name) if self.schema is None else f'"{self.schema}".{self.of(name)}'

    def written(self, text: str) -> str:
        """SQL in which `{name}` is a qualified name, `{prefix}` the prefix, and `{channel}` the channel."""
        own = {"prefix": self.table_prefix, "channel": self.channel}
        return _TOKEN.sub(lambda token: own[token[1]] if token[1] in own else self.qualified(token[1]), text)

    @property
    def channel(self) -> str:
        """The channel of PostgreSQL by which waiting hosts are woken."""
        return _CHANNEL if self == PLAIN_NAMES else f"{_CHANNEL}_{self._digest(16).hex()}"

    @property
    def schema_lock(self) -> int:
        """The key of PostgreSQL's advisory lock under which one process at a time changes the tables."""
        if self == PLAIN_NAMES:
            return _SCHEMA_LOCK
        return int.from_bytes(self._digest(8), signed=True)

    def _digest(self, size: int) -> bytes:
        # A name of both would be too long for a channel; neither part can hold a full stop.
        return hashlib.blake2b(f"{self.schema or ''}.{self.table_prefix}".encode(), digest_size=size).digest()


PLAIN_NAMES: Final = Names()
"""The names of a store that was given none."""


def checked_names(database: str, *, schema: str | None, table_prefix: str | None) -> Names:
    """The names that are wanted in a kind of database.

    Args:
        database: SQLAlchemy's name of the kind: `postgresql`, `sqlite` or `mariadb`.
        schema: A lower-case identifier of up to 63 characters; None for that of the search path.
        table_prefix: A lower-case identifier of up to `LONGEST_PREFIX` characters; None or an empty text for none.

    Raises:
        InvalidSettingError: If one of them is no such name, or there are no schemas in such a database.
    """
    if schema is not None:
        if database != "postgresql":
            problem = (
                f"is for PostgreSQL, and this is a database of {database}; use table_prefix there instead"
            )
            raise InvalidSettingError("schema", schema, problem)
        _require_identifier("schema", schema, _LONGEST_SCHEMA)
        if schema.startswith("pg_") or schema == "information_schema":
            raise InvalidSettingError("schema", schema, "is a schema of PostgreSQL's own; use another name")
    if not table_prefix:
        return Names(schema)
    _require_identifier("table_prefix", table_prefix, LONGEST_PREFIX)
    if table_prefix.startswith("sqlite_"):
        problem = "begins as the names of SQLite's own tables do; use another prefix"
        raise InvalidSettingError("table_prefix", table_prefix, problem)
    if table_prefix.endswith(_OF_INDEXES):
        # A table would have the name of an index of the store whose prefix is what is before that.
        problem = "ends as names of indexes and keys begin; use another prefix"
        raise InvalidSettingError("table_prefix", table_prefix, problem)
    return Names(schema, table_prefix)


def _require_identifier(field: str, value: object, longest: int) -> None:
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        problem = "must be made of lower-case letters, digits and underscores, and begin with no digit"
        raise InvalidSettingError(field, value, problem)
    if len(value) > longest:
        problem = (
            f"has {len(value)} characters; use {longest} at the most, so that every name fits into a database"
        )
        raise InvalidSettingError(field, value, problem)
