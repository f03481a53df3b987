"""The numbers that hold when nobody says otherwise."""

import dataclasses
import inspect
from datetime import timedelta
from typing import Any

import pytest

from stagewright import Kernel, RetryPolicy, Suspend
from stagewright.commands import (
    ClaimJobs,
    ClaimPendingRuns,
    CreateRun,
    ExecuteJob,
    FlushOutbox,
    LastFailure,
    ListVersions,
    PurgeRuns,
    RedriveRun,
    ReplayDeadLetters,
)
from stagewright.kernel.context import DEFAULT_MAX_RETRIES, KernelSettings
from stagewright.kernel.rules.delivery import retry_delay
from stagewright.records import AnnotationQuery, NewJob
from stagewright.status import ACTIVE_STAGE_STATUSES, TERMINAL_RUN_STATUSES, Status
from stagewright.testing import FakeClock


@pytest.mark.guarantee("kernel.defaults-are-pinned")
def test_the_defaults_of_commands() -> None:
    create = CreateRun("flow")
    assert (create.input, create.config, create.priority) == (None, {}, 5)
    assert (create.idempotency_key, create.annotations) == (None, ())
    claim = ClaimPendingRuns("w")
    assert (claim.max_claims, claim.serves) == (10, None)
    jobs = ClaimJobs("w")
    assert (jobs.limit, jobs.serves) == (1, None)
    execute = ExecuteJob("r", "f", "s")
    assert (execute.job, execute.idempotency_key, execute.abort) == (None, None, None)
    assert FlushOutbox().max_events == ReplayDeadLetters().max_events == 100
    assert (ListVersions().workflow_id, ListVersions().definition_version) == (None, None)
    redrive = RedriveRun("r")
    assert (redrive.from_, redrive.definition_version, redrive.idempotency_key) == (LastFailure(), None, None)
    purge = PurgeRuns(FakeClock().now())
    assert purge.limit == 100
    assert frozenset(purge.statuses) == TERMINAL_RUN_STATUSES


def test_the_defaults_of_a_kernel() -> None:
    parameters = inspect.signature(Kernel.__init__).parameters
    assert parameters["spill_threshold_bytes"].default == 65_536
    assert parameters["idempotency_stale_after"].default == "10m"
    assert parameters["middleware"].default == ()
    settings = KernelSettings()
    assert settings.spill_threshold_bytes == 65_536
    assert settings.idempotency_stale_after == timedelta(minutes=10)
    assert settings.max_retries == DEFAULT_MAX_RETRIES == 3
    assert settings.delivery_timeout == timedelta(seconds=30)


def test_the_defaults_of_jobs_and_retries() -> None:
    job = NewJob(id="j", run_id="r", workflow_id="f", stage_id="s")
    assert (job.priority, job.max_attempts, job.max_worker_losses, job.due_at) == (5, 3, 3, None)
    policy = RetryPolicy()
    assert (policy.max_attempts, policy.max_worker_losses, policy.factor) == (3, 3, 2.0)
    assert [policy.delay_before(failures).total_seconds() for failures in (1, 2, 3)] == [2, 4, 8]
    assert policy.delay_before(5_000) == timedelta(hours=1)


def test_the_defaults_of_waiting_and_reading() -> None:
    suspended = Suspend(None)
    assert (suspended.poll_interval, suspended.max_wait) == (timedelta(seconds=30), timedelta(hours=24))
    assert AnnotationQuery().limit == 1_000
    assert [retry_delay(refusals).total_seconds() for refusals in (1, 2, 3, 9, 10, 10_000)] == [
        1,
        2,
        4,
        256,
        300,
        300,
    ]


@pytest.mark.parametrize("kind", [CreateRun, ClaimPendingRuns, ClaimJobs, ExecuteJob, FlushOutbox])
def test_commands_are_frozen(kind: type[Any]) -> None:
    arguments = {"CreateRun": 1, "ClaimPendingRuns": 1, "ClaimJobs": 1, "ExecuteJob": 3, "FlushOutbox": 0}
    command = kind(*["x"] * arguments[kind.__name__])
    first, *_ = dataclasses.fields(command)
    with pytest.raises(AttributeError):
        setattr(command, first.name, "changed")


def test_which_statuses_end_a_run_and_which_hold_it_open() -> None:
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == TERMINAL_RUN_STATUSES
    assert {Status.PENDING, Status.RUNNING, Status.SUSPENDED} == ACTIVE_STAGE_STATUSES
