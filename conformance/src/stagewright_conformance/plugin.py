"""What this distribution adds to Stagewright: `stagewright conformance`.

Every `stagewright` command loads this module; pytest and the suites are imported when the command is called.
"""

from stagewright.plugins import hookimpl
from stagewright.plugins.hookspecs import CommandGroup

__all__ = ["stagewright_cli"]


@hookimpl
def stagewright_cli(group: CommandGroup) -> None:
    """Add `stagewright conformance`."""
    # Click comes with an extra of the core's, and only the command line calls this.
    from stagewright_conformance.cli import conformance_command

    group.add_command(conformance_command)
