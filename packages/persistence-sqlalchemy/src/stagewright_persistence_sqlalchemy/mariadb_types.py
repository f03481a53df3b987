"""What columns are on MariaDB, which has no text without a length that it can keep in order.

Its own collations hold texts to be one that differ in case or in spaces at their end; `utf8mb4_nopad_bin` compares code
points, as SQLite and PostgreSQL do. A time without its six digits would be cut to whole seconds.
"""

from typing import Any, Final

from sqlalchemy.dialects import mysql

__all__ = ["BLOB_KEY", "LONG_BYTES", "LONG_TEXT", "MOMENT", "NAME", "TABLE_OPTIONS", "TOPIC"]

_COLLATION: Final = "utf8mb4_nopad_bin"

NAME: Final = mysql.VARCHAR(255, collation=_COLLATION)
"""Names, ids and keys have at most 255 characters; three of them fit into one index."""

TOPIC: Final = mysql.VARCHAR(700, collation=_COLLATION)
"""A topic has at most 700 characters; an index has room for one of them and a number."""

BLOB_KEY: Final = mysql.VARBINARY(3072)
"""A text's UTF-8, which is in the order of its code points: an index has room for more of that than of characters."""

LONG_TEXT: Final = mysql.LONGTEXT(collation=_COLLATION)
LONG_BYTES: Final = mysql.LONGBLOB()
MOMENT: Final = mysql.DATETIME(fsp=6)

TABLE_OPTIONS: Final[dict[str, Any]] = {
    "mariadb_engine": "InnoDB",
    "mariadb_row_format": "DYNAMIC",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": _COLLATION,
}
