"""What this distribution adds to Stagewright: the host `node`, `stagewright worker` and `stagewright demo`.

Every `open_kernel` loads this module; what the command line needs is imported when it asks for commands.
"""

from stagewright.plugins import hookimpl
from stagewright.plugins.hookspecs import CommandGroup
from stagewright.plugins.hosts import HostRegistry
from stagewright_host_node.host import NodeHost

__all__ = ["stagewright_cli", "stagewright_register_hosts"]


@hookimpl
def stagewright_register_hosts(registry: HostRegistry) -> None:
    """Offer `NodeHost` as `node`."""
    registry.add("node", NodeHost)


@hookimpl
def stagewright_cli(group: CommandGroup) -> None:
    """Add `stagewright worker` and `stagewright demo`."""
    # Click comes with an extra of the core's, and only the command line calls this.
    from stagewright_host_node.demo import demo_command
    from stagewright_host_node.worker_command import worker_command

    group.add_command(worker_command)
    group.add_command(demo_command)
