"""The command `stagewright conformance`; it needs the extra `cli`."""

from stagewright_conformance.cli.command_line import conformance_command

__all__ = ["conformance_command"]
