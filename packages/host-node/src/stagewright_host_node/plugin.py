"""What this distribution adds to Stagewright: the host `node`, `stagewright worker` and `stagewright demo`."""

from stagewright.plugins import hookimpl
from stagewright.plugins.hookspecs import CommandGroup
from stagewright.plugins.hosts import HostRegistry
from stagewright_host_node.demo import demo_command
from stagewright_host_node.host import NodeHost
from stagewright_host_node.worker_command import worker_command

__all__ = ["stagewright_cli", "stagewright_register_hosts"]


@hookimpl
def stagewright_register_hosts(registry: HostRegistry) -> None:
    """Offer `NodeHost` as `node`."""
    registry.add("node", NodeHost)


@hookimpl
def stagewright_cli(group: CommandGroup) -> None:
    """Add `stagewright worker` and `stagewright demo`."""
    group.add_command(worker_command)
    group.add_command(demo_command)
