"""What each migration says about the builds before it and the databases before it.

A migration is a module with, besides `revision`, `down_revision` and `upgrade`:

- `oldest_build`: the oldest build, by the version of the schema that it needs, that works on a database which this
  migration, and all before it, have run on. Its own version by default.
- `works_before`: whether builds that need this migration work on a database which lacks it. False by default.
- `off_before`: what they do without there, such as "fair claiming by groups". Nothing by default.
"""

from alembic.script import Script, ScriptDirectory

__all__ = ["oldest_build_of", "oldest_database", "switched_off"]


def oldest_build_of(migration: Script) -> str:
    """The oldest build that works on a database which this migration has run on."""
    return str(getattr(migration.module, "oldest_build", migration.revision))


def oldest_database(scripts: ScriptDirectory, head: str) -> str:
    """The oldest version of a database that a build which needs `head` works on."""
    migration = scripts.get_revision(head)
    while getattr(migration.module, "works_before", False) is True and migration.down_revision is not None:
        migration = scripts.get_revision(str(migration.down_revision))
    return str(migration.revision)


def switched_off(scripts: ScriptDirectory, version: str, head: str) -> dict[str, str]:
    """What a build that needs `head` does without on a database of that version, by the versions that it lacks."""
    lacking = [one for one in scripts.walk_revisions(head=head) if version < one.revision]
    return {one.revision: str(getattr(one.module, "off_before", "")) for one in reversed(lacking)}
