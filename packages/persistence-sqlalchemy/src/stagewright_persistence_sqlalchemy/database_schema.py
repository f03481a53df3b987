"""The schema that a database was found to have when it was opened, for code that is newer or older than it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from stagewright_persistence_sqlalchemy.errors import SchemaFeatureOffError

__all__ = ["DatabaseSchema"]


@dataclass(frozen=True, slots=True)
class DatabaseSchema:
    """What code may rely on, looked at once, when the database is opened.

    Without arguments it is the schema that this build needs, which is what a `Database` that is built by hand has.

    Attributes:
        url: The database, without its secrets.
        version: The schema's version in the database; "" if nobody looked.
        needed: The version that this build needs; "" if nobody looked.
        off: The versions that this build knows and the database hasn't, each with what is off for want of it; "" if
            nothing is.
    """

    url: str = ""
    version: str = ""
    needed: str = ""
    off: Mapping[str, str] = field(default_factory=dict)

    def has(self, version: str) -> bool:
        """Whether the database has been brought to that version; to be asked once, not for each statement."""
        return version not in self.off

    def require(self, version: str) -> None:
        """Refuse what needs a version that the database hasn't been brought to.

        Raises:
            SchemaFeatureOffError: If it hasn't, naming what is off.
        """
        if not self.has(version):
            raise SchemaFeatureOffError(self.url, self.off[version], self.version, version)

    @property
    def remark(self) -> str | None:
        """One sentence about a database that is older or newer than the build, or None if it is neither."""
        if self.version == self.needed:
            return None
        if self.version > self.needed:
            return f"the schema is {self.version}; this build needs {self.needed} and works on it"
        features = ", ".join(feature for feature in self.off.values() if feature)
        without = f", without {features}," if features else ""
        return (
            f"the schema is {self.version}; this build needs {self.needed} and works on it{without} until it is "
            f"opened after `stagewright db upgrade '{self.url}'`"
        )
