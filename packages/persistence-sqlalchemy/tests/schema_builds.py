"""Builds that know other migrations than this one: earlier ones without the last, later ones with a test's own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from unittest import mock

from alembic.script import ScriptDirectory

from stagewright_persistence_sqlalchemy import migrating, schema

__all__ = ["ADDS", "NEXT", "Build", "version_after"]

_MIGRATIONS: Final = Path(schema.__file__).parent / "migrations"

ADDS: Final = """
    op.add_column("job_queue", sa.Column("colour", sa.String(40)))
    op.create_table("colours", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("name", sa.String(40)))
    op.create_index("ix_job_queue_colour", "job_queue", ["colour"])
    op.execute("UPDATE job_queue SET colour = 'red'")
"""
"""A migration that code which doesn't know of it has nothing to do with."""


def version_after(version: str) -> str:
    """The version that comes next."""
    return f"{int(version) + 1:04}"


NEXT: Final = version_after(schema.HEAD)


@dataclass(frozen=True, slots=True)
class Build:
    """A build by the migrations that it knows.

    Attributes:
        folder: Where they are.
        head: The version of the schema that it needs.
    """

    folder: Path
    head: str

    @classmethod
    def of_version(cls, version: str, folder: Path) -> Self:
        """A build that knows the real migrations up to a version."""

        def later(_folder: str, names: list[str]) -> list[str]:
            return [name for name in names if name[:4].isdigit() and name[:4] > version]

        shutil.copytree(_MIGRATIONS, folder, ignore=later)
        return cls(folder, version)

    @classmethod
    def with_next(cls, folder: Path, *migrations: str, declarations: str = "") -> Self:
        """A build that knows migrations after the last real one, each given by the body of its `upgrade`."""
        shutil.copytree(_MIGRATIONS, folder)
        head = schema.HEAD
        for body in migrations:
            before, head = head, version_after(head)
            source = f'import sqlalchemy as sa\n\nrevision = "{head}"\ndown_revision = "{before}"\n'
            source += f"{declarations}\n\ndef upgrade(op):\n{body}"
            (folder / "versions" / f"{head}_made_by_a_test.py").write_text(source, encoding="utf-8")
        return cls(folder, head)

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Within it `schema` is that of this build."""
        scripts = ScriptDirectory(str(self.folder))
        with mock.patch.object(migrating, "SCRIPTS", scripts), mock.patch.object(schema, "HEAD", self.head):
            yield
