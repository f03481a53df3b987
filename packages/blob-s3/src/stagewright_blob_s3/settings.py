"""How a bucket is reached: every setting, its default, and how it is written in a URL."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Literal, Self, TypedDict, cast
from urllib.parse import urlsplit

from stagewright.bucket_urls import BucketUrl
from stagewright.errors import InvalidSettingError

__all__ = ["S3Options", "S3Settings"]

_MIB: Final = 1 << 20
_CHOICES: Final = {
    "addressing_style": ("auto", "path", "virtual"),
    "checksums": ("when_supported", "when_required"),
    "retry_mode": ("standard", "adaptive"),
}
_BOUNDS: Final = {
    "connections": (1, 1_000),
    "part_size": (5 * _MIB, 5 * 1024 * _MIB),
    "attempts": (1, 100),
    "connect_timeout": (0.001, 3_600),
    "read_timeout": (0.001, 3_600),
}


class S3Options(TypedDict, total=False):
    """The settings by name, as `S3BlobStore` takes them."""

    endpoint_url: str | None
    region: str | None
    addressing_style: Literal["auto", "path", "virtual"]
    checksums: Literal["when_supported", "when_required"]
    batch_deletes: bool
    connections: int
    part_size: int
    retry_mode: Literal["standard", "adaptive"]
    attempts: int
    connect_timeout: float
    read_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How a bucket is reached.

    Attributes:
        endpoint_url: Where the service is; None for Amazon's, or what the environment or the profile says.
        region: The bucket's region; None for what the environment or the profile says.
        addressing_style: Whether the bucket stands in the path or in the host of URLs; `auto` is the path at an
            `endpoint_url` and the host elsewhere.
        checksums: Whether CRC32 checksums go with every write and are looked at with every read (`when_supported`), or
            only where the service insists (`when_required`), for services that don't know them.
        batch_deletes: Whether up to 1,000 objects are deleted by one call; without, by one call each.
        connections: How many connections are kept and how many calls run at once.
        part_size: Bytes of a part of a large blob, in memory and on its way; 10,000 parts are the most.
        retry_mode: Botocore's: `standard`, or `adaptive`, which also slows down when it is told to.
        attempts: How often a call is tried in all.
        connect_timeout: Seconds that connecting may take.
        read_timeout: Seconds that an answer may keep silent.

    Raises:
        InvalidSettingError: If one is none of what it may be.
    """

    endpoint_url: str | None = None
    region: str | None = None
    addressing_style: str = "auto"
    checksums: str = "when_supported"
    batch_deletes: bool = True
    connections: int = 16
    part_size: int = 16 * _MIB
    retry_mode: str = "standard"
    attempts: int = 5
    connect_timeout: float = 5.0
    read_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InvalidSettingError(name, getattr(self, name), f"must be one of {', '.join(choices)}")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidSettingError(name, value, f"must be a number from {least:,} to {most:,}")
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)

    @classmethod
    def of(cls, url: BucketUrl, options: S3Options) -> Self:
        """The settings of a URL's parameters together with those that are given beside it.

        Raises:
            InvalidSettingError: If one is given twice, or is none of what it may be.
        """
        given = dict(cast("Mapping[str, object]", options))
        for name, text in url.parameters.items():
            if name in given:
                raise InvalidSettingError(
                    name, text.rpartition("@")[2], "is in the URL and beside it; give it once"
                )
            given[name] = _read(name, text)
        return cls(**given)  # type: ignore[arg-type]  # each is checked above

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What may stand after `?` in a URL."""
        return tuple(field.name for field in fields(cls))


def _read(name: str, text: str) -> object:
    reader = _READERS.get(name, str)
    try:
        return reader(text)
    except (ValueError, KeyError):
        problem = "is no number" if reader in (int, float) else "must be true or false"
        raise InvalidSettingError(name, text, problem) from None


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "batch_deletes": {"true": True, "false": False}.__getitem__,
    "connections": int,
    "part_size": int,
    "attempts": int,
    "connect_timeout": float,
    "read_timeout": float,
}


def _check_endpoint(url: str) -> None:
    before, has_user, shown = url.rpartition("@")
    if has_user:
        # Wherever it stands: a secret may have a '/', '?' or '#' in it, which ends the part that names users.
        scheme = f"{urlsplit(before).scheme}://" if "://" in before else ""
        problem = (
            "names a user, and credentials come by the vendor's own chain alone; leave out what is before '@'"
        )
        raise InvalidSettingError("endpoint_url", f"{scheme}***@{shown}", problem)
    if not _is_address(url):
        raise InvalidSettingError(
            "endpoint_url", shown, "must be a URL such as 'https://storage.example:9000'"
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
