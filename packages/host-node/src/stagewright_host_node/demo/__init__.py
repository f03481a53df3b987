"""`stagewright demo`: a worker is killed in the middle of a run, and another one ends it."""

from stagewright_host_node.demo.command import demo_command

__all__ = ["demo_command"]
