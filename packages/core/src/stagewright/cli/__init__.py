"""The command `stagewright`; it needs the extra `cli` of stagewright-core."""

from stagewright.cli.entry import main

__all__ = ["main"]
