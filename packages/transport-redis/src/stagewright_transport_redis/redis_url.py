"""What a URL says: where the server is, how to connect, and what the transport is to do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn
from urllib.parse import parse_qsl, unquote

from stagewright.duration import Duration, parse_duration
from stagewright.errors import InvalidSettingError, StagewrightError
from stagewright.plugins.adapters import redacted
from stagewright_transport_redis.naming import DEFAULT_NAMESPACE, prefix_of

__all__ = ["SCHEMES", "RedisAddress", "RedisOptions", "address_of", "checked_keep"]

Kind = Literal["server", "socket", "sentinel", "cluster"]

SCHEMES: Final = ("redis", "rediss", "unix", "valkey", "valkeys")
"""Each of the network may be followed by `+sentinel` or `+cluster`."""

_URL: Final = re.compile(r"([a-z]+)(?:\+([a-z]+))?://([^/?#]*)([^?#]*)(?:\?([^#]*))?", re.IGNORECASE)
_CUT_SHORT: Final = re.compile(rf"(?:{'|'.join(SCHEMES)})(?:\+[a-z]+)?://.*#", re.IGNORECASE | re.DOTALL)
_ENCODE: Final = (
    "has a '#', or an '@' behind a '/' or '?'; "
    "percent-encode '/', '?', '#' and '@' in a password and in parameters"
)
_HOST: Final = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(?::(\d{1,5}))?")
_PORTS: Final[Mapping[Kind, int]] = {"server": 6379, "cluster": 6379, "sentinel": 26379}
_LEAST_KEEP: Final = timedelta(minutes=10)
_TLS: Final = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_OF_SENTINELS: Final = frozenset({"sentinel_username", "sentinel_password"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisOptions:
    """What a transport does; the only place of these defaults.

    Attributes:
        namespace: What its keys begin with; transports with one namespace on one server have the same jobs.
        keep_ended: How long a job that has ended is kept for people to look at, ten minutes at least.
        connect_timeout: How long connecting may take.
        socket_timeout: How long an answer may take.
        max_connections: How many connections commands share.
        client_name: What connections are called in the server's lists.
    """

    namespace: str = DEFAULT_NAMESPACE
    keep_ended: timedelta = timedelta(hours=1)
    connect_timeout: timedelta = timedelta(seconds=5)
    socket_timeout: timedelta = timedelta(seconds=5)
    max_connections: int = 20
    client_name: str = "stagewright"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisAddress:
    """Where to connect.

    Attributes:
        kind: What is at the address.
        shown: The address without secrets and parameters.
        hosts: Hosts and ports; empty for a socket.
        path: The socket's.
        service: What the sentinels call their master.
        db: The database's number.
        is_tls: Whether connections are encrypted.
        options: What the transport does.
    """

    kind: Kind
    shown: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    is_tls: bool = False
    options: RedisOptions = RedisOptions()
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)


def address_of(url: str, *, namespace: str | None = None) -> RedisAddress:
    """Read a URL.

    Args:
        url: `redis://`, `rediss://`, `valkey://`, `valkeys://` or `unix://`; the first four with `+sentinel` or
            `+cluster`.
        namespace: Counts for more than the URL's parameter of that name.

    Raises:
        InvalidSettingError: If something in it can't be understood; passwords are not shown.
    """
    return _Reader(url, namespace).address()


def checked_keep(given: Duration) -> timedelta:
    """How long jobs that have ended are kept.

    Raises:
        InvalidSettingError: If that is too short for those who look after failed jobs.
    """
    keep = parse_duration(given, field="keep_ended")
    if keep < _LEAST_KEEP:
        problem = "must be 10m or longer; a stage learns from its failed job why it failed"
        raise InvalidSettingError("keep_ended", given, problem)
    return keep


class _Reader:
    def __init__(self, url: str, namespace: str | None) -> None:
        self._url = url
        match = _URL.fullmatch(url) if isinstance(url, str) else None
        if match is None and isinstance(url, str) and _CUT_SHORT.match(url):
            self._refuse(_ENCODE)
        if match is None or match[1].lower() not in SCHEMES:
            self._refuse(f"must begin with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
        scheme, variant, netloc, path, query = (part or "" for part in match.groups())
        self._scheme = scheme.lower()
        if "@" in query or ("@" in path and netloc):
            self._refuse(_ENCODE)
        self._kind: Kind = self._kind_of(variant.lower())
        credentials, _, hosts = netloc.rpartition("@")
        username, _, password = credentials.partition(":")
        self._username, self._password = unquote(username) or None, unquote(password) or None
        self._netloc = hosts
        self._path = unquote(path)
        self._parameters = self._read_parameters(query)
        if namespace is not None:
            self._parameters["namespace"] = namespace

    def address(self) -> RedisAddress:
        service, db = self._service_and_db()
        tls = {name: value for name, value in self._parameters.items() if name in _TLS}
        return RedisAddress(
            kind=self._kind,
            shown=redacted(self._url).partition("?")[0],
            hosts=self._hosts(),
            path=self._path if self._kind == "socket" else "",
            service=service,
            db=db,
            is_tls=self._scheme in ("rediss", "valkeys"),
            options=self._options(),
            username=self._username,
            password=self._password,
            tls=self._tls(tls),
            sentinel_username=self._parameters.get("sentinel_username"),
            sentinel_password=self._parameters.get("sentinel_password"),
        )

    def _kind_of(self, variant: str) -> Kind:
        if self._scheme == "unix" and not variant:
            return "socket"
        kinds: Mapping[str, Kind] = {"": "server", "sentinel": "sentinel", "cluster": "cluster"}
        if self._scheme == "unix" or variant not in kinds:
            self._refuse(
                "may have '+sentinel' or '+cluster' after redis, rediss, valkey or valkeys, and nothing else"
            )
        return kinds[variant]

    def _read_parameters(self, query: str) -> dict[str, str]:
        options = set(RedisOptions.__dataclass_fields__)
        known = {
            "server": options | _TLS,
            "socket": options | {"db"},
            "sentinel": options | _TLS | _OF_SENTINELS,
            "cluster": options | _TLS,
        }[self._kind]
        if self._scheme not in ("rediss", "valkeys"):
            known -= _TLS
        given = dict[str, str]()
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                self._refuse(f"has the parameter {name!r}; here it can have {', '.join(sorted(known))}")
            if name in given:
                self._refuse(f"has the parameter {name!r} more than once")
            given[name] = value
        return given

    def _service_and_db(self) -> tuple[str, int]:
        if self._kind == "socket":
            if self._netloc or not self._path.startswith("/"):
                self._refuse("must have the path of a socket after its '://', such as unix:///run/redis.sock")
            return "", self._number_of_db(self._parameters.get("db", ""))
        first, _, second = self._path.removeprefix("/").partition("/")
        if self._kind == "sentinel":
            if not first:
                self._refuse("must name the sentinels' master, such as redis+sentinel://host:26379/mymaster")
            return first, self._number_of_db(second)
        db = self._number_of_db(self._path.removeprefix("/"))
        if self._kind == "cluster" and db:
            self._refuse("names a database; a cluster has number 0 alone, so leave it out")
        return "", db

    def _number_of_db(self, text: str) -> int:
        if text and not (text.isascii() and text.isdigit() and len(text) < 6):
            self._refuse("must have the number of a database, or nothing, at the end of its path")
        return int(text or 0)

    def _hosts(self) -> tuple[tuple[str, int], ...]:
        if self._kind == "socket":
            return ()
        texts = self._netloc.split(",")
        if self._kind == "server" and len(texts) > 1:
            self._refuse("names several hosts; write redis+sentinel:// or redis+cluster:// for those")
        hosts = list[tuple[str, int]]()
        for text in texts:
            match = _HOST.fullmatch(text)
            port = 0 if match is None else int(match[2] or _PORTS[self._kind])
            if match is None or not 0 < port < 65_536:
                self._refuse("must have a host, perhaps with ':' and a port up to 65535, after its '://'")
            hosts.append((match[1].strip("[]") or "localhost", port))
        return tuple(hosts)

    def _options(self) -> RedisOptions:
        given = {
            name: self._parameters[name]
            for name in RedisOptions.__dataclass_fields__
            if name in self._parameters
        }
        prefix_of(given.get("namespace", DEFAULT_NAMESPACE))
        values: dict[str, Any] = dict(given)
        if "keep_ended" in given:
            values["keep_ended"] = self._duration("keep_ended", given["keep_ended"])
        for name in ("connect_timeout", "socket_timeout"):
            if name in given:
                values[name] = self._duration(name, given[name])
                if not values[name]:
                    self._refuse(f"has {name}={given[name]!r}, which is no time at all")
        if "max_connections" in given:
            text = given["max_connections"]
            if not (text.isascii() and text.isdigit() and 0 < int(text) < 100_000):
                self._refuse(f"has max_connections={text!r}; it must be a whole number from 1 to 99999")
            values["max_connections"] = int(text)
        return RedisOptions(**values)

    def _duration(self, name: str, text: str) -> timedelta:
        try:
            return checked_keep(text) if name == "keep_ended" else parse_duration(text, field=name)
        except StagewrightError as error:
            self._refuse(f"can't be understood: {error}")

    def _tls(self, given: Mapping[str, str]) -> dict[str, Any]:
        values: dict[str, Any] = dict(given)
        if "ssl_check_hostname" in given:
            texts = {"true": True, "false": False}
            if given["ssl_check_hostname"] not in texts:
                self._refuse("has ssl_check_hostname that is neither true nor false")
            values["ssl_check_hostname"] = texts[given["ssl_check_hostname"]]
        if given.get("ssl_cert_reqs", "required") not in ("required", "optional", "none"):
            self._refuse("has ssl_cert_reqs that is none of required, optional and none")
        if given.get("ssl_cert_reqs") == "none":
            # One follows from the other, and the client refuses to have it otherwise.
            values["ssl_check_hostname"] = False
        return values

    def _refuse(self, problem: str) -> NoReturn:
        shown = redacted(self._url) if isinstance(self._url, str) else type(self._url).__name__
        raise InvalidSettingError("url", shown, problem)
