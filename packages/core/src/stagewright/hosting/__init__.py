"""Running a kernel: opening one from URLs, driving runs, and the face for code without an event loop."""

from stagewright.hosting.assembly import open_kernel
from stagewright.hosting.drive import drive_run
from stagewright.hosting.job_runner import run_job
from stagewright.hosting.sync_kernel import SyncKernel

__all__ = ["SyncKernel", "drive_run", "open_kernel", "run_job"]
