"""What MariaDB's and its drivers' numbers of errors mean."""

from collections.abc import Iterable
from typing import Final

__all__ = [
    "DEADLOCKS",
    "DUPLICATES",
    "LOST",
    "MISSING",
    "MISSING_SAVEPOINT",
    "READ_ONLY",
    "REFUSED",
    "TOO_LARGE",
    "UNAVAILABLE",
    "UNSENT",
    "error_number",
]

DEADLOCKS: Final = frozenset({1213, 1020})
"""A deadlock, and a row that has changed since the transaction saw it: the whole transaction is undone by them."""

DUPLICATES: Final = frozenset({1062, 1169, 1586})
MISSING: Final = frozenset({1216, 1452})
"""What a row refers to isn't there."""

MISSING_SAVEPOINT: Final = frozenset({1305})
READ_ONLY: Final = frozenset({1792})
"""A write in a transaction that only reads."""

TOO_LARGE: Final = frozenset({1153, 1406})
"""More than `max_allowed_packet`, or than a column has room for."""

LOST: Final = frozenset(
    {
        *(1053, 1152, 1184, 1927),  # a server that stops, or has ended the connection
        *(1158, 1159, 1160, 1161),  # the network
        *(0, 2002, 2003, 2006, 2012, 2013, 2014, 2045, 2055, 4031),  # the drivers' own
    }
)
UNAVAILABLE: Final = LOST | {
    *(1021, 1037, 1038, 1041, 1114),  # too little memory or space
    *(1040, 1203, 1226),  # too many connections
    *(1047, 1290, 1836),  # a server that follows another one, or doesn't yet
}

REFUSED: Final = frozenset({1205, 1412, 1317, 1969})
"""A lock that wasn't given, a table that is being changed, time limits of the server's own."""

UNSENT: Final = frozenset({0, 2006})
"""What the drivers say of a connection that nothing could be sent on any more."""


_DRIVERS: Final = ("asyncmy", "pymysql")


def error_number(errors: Iterable[BaseException]) -> int | None:
    """The number that the first of some errors has; None if none of them is one of a driver for MariaDB."""
    for error in errors:
        if type(error).__module__.startswith(_DRIVERS) and error.args and isinstance(error.args[0], int):
            return error.args[0]
    return None
