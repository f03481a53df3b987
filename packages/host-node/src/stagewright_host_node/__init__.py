"""The long-running worker: `NodeHost`."""

from stagewright_host_node.health import HostHealth
from stagewright_host_node.host import NodeHost
from stagewright_host_node.stats import HostStats

__all__ = ["HostHealth", "HostStats", "NodeHost"]
