"""What the databases of all servers have in common: plain names, and URLs that name a port."""

import re
from urllib.parse import urlsplit

__all__ = ["checked_name", "port_of"]

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def port_of(url: str) -> int:
    """Where the server that a URL leads to listens on 127.0.0.1.

    Raises:
        ValueError: The URL names no port.
    """
    port = urlsplit(url).port
    if port is None:
        raise ValueError(f"{url!r} names no port")
    return port


def checked_name(name: str) -> str:
    """The name, if it is small letters, digits and underscores, at most 63, no digit first.

    Raises:
        ValueError: It would need quoting.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no plain name of a database")
    return name
