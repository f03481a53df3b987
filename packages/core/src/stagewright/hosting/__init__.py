"""Running a kernel: opening one from URLs, executing jobs, the upkeep of runs, and code without an event loop."""

from stagewright.hosting.assembly import open_kernel
from stagewright.hosting.bound_sync_kernel import BoundSyncKernel
from stagewright.hosting.drive import drive_run
from stagewright.hosting.event_sink_monitor import EventSinkMonitor, EventSinkReport
from stagewright.hosting.job_heartbeat import execute_job_with_heartbeat
from stagewright.hosting.job_runner import run_job
from stagewright.hosting.maintenance import TickReport, run_maintenance_tick
from stagewright.hosting.memory_adapters import built_in_targets, installed_adapters
from stagewright.hosting.orphans import OrphanBlob, OrphanReport, sweep_orphans
from stagewright.hosting.payloads import unpack_payload
from stagewright.hosting.retention import Retention
from stagewright.hosting.run_waiting import wait_for_run
from stagewright.hosting.settings import HOST_DEFAULTS, HostSettings
from stagewright.hosting.sync_kernel import SyncKernel

__all__ = [
    "HOST_DEFAULTS",
    "BoundSyncKernel",
    "EventSinkMonitor",
    "EventSinkReport",
    "HostSettings",
    "OrphanBlob",
    "OrphanReport",
    "Retention",
    "SyncKernel",
    "TickReport",
    "built_in_targets",
    "drive_run",
    "execute_job_with_heartbeat",
    "installed_adapters",
    "open_kernel",
    "run_job",
    "run_maintenance_tick",
    "sweep_orphans",
    "unpack_payload",
    "wait_for_run",
]
