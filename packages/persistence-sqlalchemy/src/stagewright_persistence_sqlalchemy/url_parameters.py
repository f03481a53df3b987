"""What follows `?` in a database's URL: names, libpq's words, asyncpg's for them, `pgbouncer`, MariaDB's, `mode=ro`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL

from stagewright.errors import InvalidSettingError
from stagewright.shown_urls import named_parameter, redacted
from stagewright_persistence_sqlalchemy.idle_transactions import MARIADB_LIMIT
from stagewright_persistence_sqlalchemy.names import Names, checked_names
from stagewright_persistence_sqlalchemy.pooler import UNPREPARED

__all__ = ["ConnectArguments", "checked_parameters", "names_in"]

# `host` and `port` are SQLAlchemy's way to name several servers.
_AS_THEY_ARE: Final = (
    "host",
    "port",
    "ssl",
    "passfile",
    "target_session_attrs",
    "prepared_statement_cache_size",
)
_POOLER: Final = "pgbouncer"
_NAMES: Final = ("schema", "table_prefix")
_OF_MARIADB: Final = ("connect_timeout", "ssl", "ssl_ca", "ssl_cert", "ssl_key", "unix_socket")
# Times are in UTC and nothing is cut to fit, whatever the server says; what an update sets, it sets at once. That
# something is there already, or was named in vain, is worth no note.
_MARIADB_SESSION: Final = (
    "SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,SIMULTANEOUS_ASSIGNMENT', sql_notes = 0, "
    f"{MARIADB_LIMIT}"
)
_TRANSLATED: Final = ("sslmode", "application_name", "connect_timeout", "options")


@dataclass(frozen=True, slots=True)
class ConnectArguments:
    """What a URL's parameters are to the driver.

    Attributes:
        replaced: The parameters that the driver doesn't know.
        arguments: What it is given in their place.
        server_settings: Settings of each session.
        file: What is opened in the place of the URL's file; None is that file.
        pooler: Whether a pooler lends connections for a transaction; None if the URL doesn't say.
    """

    replaced: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)  # Any: what the driver takes
    server_settings: Mapping[str, str] = field(default_factory=dict)
    file: str | None = None
    pooler: bool | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether nothing can be written to the file."""
        return self.file is not None

    def put_into(self, given: dict[str, Any], positional: list[Any] | None = None) -> None:
        """Change the arguments that SQLAlchemy has made of the URL; doing it again changes nothing."""
        if self.file is not None and positional:
            positional[0] = self.file
        for name in self.replaced:
            given.pop(name, None)
        given.update(self.arguments)
        if self.server_settings:
            given["server_settings"] = {**self.server_settings, **(given.get("server_settings") or {})}


def checked_parameters(url: URL) -> ConnectArguments:
    """Read the parameters of a URL that names its driver. psycopg hands libpq's to it, which checks them itself.

    Raises:
        InvalidSettingError: If one of them can't be used.
    """
    if url.get_backend_name() == "sqlite":
        return _of_sqlite(url)
    if url.get_backend_name() == "mariadb":
        return _of_mariadb(url)
    pooler = _pooler(url)
    unprepared = UNPREPARED[url.get_driver_name()] if pooler else {}
    if url.get_driver_name() != "asyncpg":
        return ConnectArguments((*_NAMES, _POOLER), unprepared, pooler=pooler)
    for name in url.query:
        if name not in (*_AS_THEY_ARE, *_TRANSLATED, *_NAMES, _POOLER):
            usable = ", ".join(sorted((*_AS_THEY_ARE, *_TRANSLATED, *_NAMES, _POOLER)))
            problem = (
                f"asyncpg takes {usable}; with postgresql+psycopg:// every parameter of libpq can be used"
            )
            raise _unusable(url, name, problem)
    arguments = dict(unprepared)
    settings: dict[str, str] = {}
    for name in _TRANSLATED:
        value = url.query.get(name)
        if value is None:
            continue
        text = value if isinstance(value, str) else value[-1]
        match name:
            case "sslmode":
                arguments["ssl"] = text
            case "application_name":
                settings["application_name"] = text
            case "connect_timeout":
                arguments["timeout"] = _seconds(url, text)
            case _:
                settings |= _settings(url, text)
    return ConnectArguments((*_TRANSLATED, *_NAMES, _POOLER), arguments, settings, pooler=pooler)


def names_in(url: URL, *, schema: str | None = None, table_prefix: str | None = None) -> Names:
    """The names that a URL's parameters `schema` and `table_prefix` give, or else the arguments.

    Raises:
        InvalidSettingError: If one of them can't be used, or both ways give different ones.
    """
    chosen = {}
    for name, given in zip(_NAMES, (schema, table_prefix), strict=True):
        value = url.query.get(name)
        written = value if value is None or isinstance(value, str) else value[-1]
        if written is not None and given is not None and given != written:
            raise InvalidSettingError(
                name, given, f"is {written!r} in the URL; say it in one of the two places"
            )
        chosen[name] = given if written is None else written
    return checked_names(url.get_backend_name(), **chosen)


def _pooler(url: URL) -> bool | None:
    value = url.query.get(_POOLER)
    if value not in (None, "true", "false"):
        raise _unusable(url, _POOLER, "it has to be true or false")
    return None if value is None else value == "true"


def _of_sqlite(url: URL) -> ConnectArguments:
    for name, value in url.query.items():
        if name not in _NAMES and (name, value) != ("mode", "ro"):
            problem = "SQLite takes mode=ro, which opens a file for reading, and table_prefix, and no other"
            raise _unusable(url, name, problem)
    if "mode" not in url.query:
        return ConnectArguments()
    if url.database in (None, "", ":memory:"):
        raise _unusable(url, "mode", "there is nothing to read in a new database in memory")
    file = f"{Path(str(url.database)).absolute().as_uri()}?mode=ro"
    return ConnectArguments(arguments={"uri": True}, file=file)


def _of_mariadb(url: URL) -> ConnectArguments:
    for name in url.query:
        if name not in (*_OF_MARIADB, *_NAMES):
            raise _unusable(url, name, f"MariaDB takes {', '.join((*_OF_MARIADB, 'table_prefix'))}")
    arguments: dict[str, Any] = {
        "init_command": _MARIADB_SESSION,
        "binary_prefix": True,
        "charset": "utf8mb4",
    }
    given = {name: value if isinstance(value, str) else value[-1] for name, value in url.query.items()}
    if "connect_timeout" in given:
        arguments["connect_timeout"] = _seconds(url, given["connect_timeout"])
    files = {
        name.removeprefix("ssl_"): given[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in given
    }
    if given.get("ssl", "true") not in ("true", "false"):
        raise _unusable(url, "ssl", "it has to be true or false")
    if given.get("ssl") == "true" or files:
        arguments["ssl"] = files or True
    replaced = tuple(name for name in given if name != "unix_socket")
    return ConnectArguments(replaced, arguments)


def _seconds(url: URL, text: str) -> float:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise _unusable(url, "connect_timeout", "it has to be a whole number of seconds")
    return float(text)


def _settings(url: URL, text: str) -> dict[str, str]:
    """Settings out of `-c name=value -c …`, as `options` has them."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        if word == "-c" and words:
            word += words.pop(0)
        name, equals, value = word.removeprefix("--" if word.startswith("--") else "-c").partition("=")
        if not word.startswith(("-c", "--")) or not equals:
            raise _unusable(url, "options", "write it as -c name=value, percent-encoded")
        found[name.replace("-", "_")] = value
    return found


def _unusable(url: URL, name: str, problem: str) -> InvalidSettingError:
    text = redacted(url.render_as_string(hide_password=True))
    return InvalidSettingError("url", text, f"has {named_parameter(name)}, which can't be used: {problem}")
