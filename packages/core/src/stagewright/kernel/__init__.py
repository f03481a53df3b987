"""The kernel; it calls ports and pure rules, and nothing else."""

from stagewright.kernel.kernel import Kernel, Middleware

__all__ = ["Kernel", "Middleware"]
