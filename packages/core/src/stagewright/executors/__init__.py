"""Executors: who runs bodies."""

from stagewright.executors.routing import RoutingExecutor
from stagewright.runtime.local_executor import LocalExecutor

__all__ = ["LocalExecutor", "RoutingExecutor"]
