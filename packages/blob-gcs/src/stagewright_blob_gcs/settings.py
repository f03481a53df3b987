"""How a bucket of Cloud Storage is reached: every setting, its default, and how it is written in a URL."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, Self, TypedDict, cast
from urllib.parse import urlsplit

from stagewright.bucket_urls import BucketUrl
from stagewright.errors import InvalidSettingError

__all__ = ["GcsOptions", "GcsSettings"]

_MIB: Final = 1 << 20
_PART_UNIT: Final = 256 << 10
_BOUNDS: Final = {
    "connections": (1, 1_000),
    "part_size": (_PART_UNIT, 5 * 1024 * _MIB),
    "retry_for": (0.001, 86_400),
    "connect_timeout": (0.001, 3_600),
    "read_timeout": (0.001, 3_600),
}


class GcsOptions(TypedDict, total=False):
    """The settings by name, as `GcsBlobStore` takes them."""

    endpoint_url: str | None
    signing_account: str | None
    connections: int
    part_size: int
    retry_for: float
    connect_timeout: float
    read_timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsSettings:
    """How a bucket is reached.

    Attributes:
        endpoint_url: Where the service is; None for Google's, or what `STORAGE_EMULATOR_HOST` says.
        signing_account: The e-mail address of the service account in whose name URLs are signed; None for the one whose
            credentials are used. Whoever isn't that account itself needs the right to sign for it.
        connections: How many connections are kept and how many calls run at once.
        part_size: Bytes of a part of a large blob, in memory and on its way; a multiple of 256 KiB.
        retry_for: Seconds for which a call that fails in passing is repeated.
        connect_timeout: Seconds that connecting may take.
        read_timeout: Seconds that an answer may keep silent.

    Raises:
        InvalidSettingError: If one is none of what it may be.
    """

    endpoint_url: str | None = None
    signing_account: str | None = None
    connections: int = 16
    part_size: int = 16 * _MIB
    retry_for: float = 60.0
    connect_timeout: float = 5.0
    read_timeout: float = 30.0

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InvalidSettingError(name, value, f"must be a number from {least:,} to {most:,}")
        if self.part_size % _PART_UNIT:
            raise InvalidSettingError("part_size", self.part_size, f"must be a multiple of {_PART_UNIT}")
        if self.signing_account is not None and "@" not in self.signing_account:
            problem = "must be the e-mail address of a service account"
            raise InvalidSettingError("signing_account", self.signing_account, problem)
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)

    @classmethod
    def of(cls, url: BucketUrl, options: GcsOptions) -> Self:
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
            try:
                given[name] = _READERS.get(name, str)(text)
            except ValueError:
                raise InvalidSettingError(name, text, "is no number") from None
        return cls(**given)  # type: ignore[arg-type]  # each is checked above

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """What may stand after `?` in a URL."""
        return tuple(field.name for field in fields(cls))


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "connections": int,
    "part_size": int,
    "retry_for": float,
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
        raise InvalidSettingError("endpoint_url", shown, "must be a URL such as 'https://storage.example'")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
