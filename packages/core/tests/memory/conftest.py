from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryPersistence
from stagewright.records import NewEvent, NewJob, RunRecord, StoredStage
from stagewright.status import Status

START: Final = datetime(2025, 1, 1, tzinfo=UTC)


class StandingClock:
    def now(self) -> datetime:
        return START


@pytest.fixture
def start() -> datetime:
    return START


@pytest.fixture
def database() -> InMemoryDatabase:
    return InMemoryDatabase(StandingClock())


@pytest.fixture
def store(database: InMemoryDatabase) -> InMemoryPersistence:
    return InMemoryPersistence(database)


@pytest.fixture
def new_run() -> Callable[..., RunRecord]:
    def build(id: str, **fields: Any) -> RunRecord:
        values: dict[str, Any] = {
            "input": None,
            "status": Status.PENDING,
            "created_at": START,
            "updated_at": START,
            **fields,
        }
        return RunRecord(id=id, workflow_id="orders", workflow_name="Orders", **values)

    return build


@pytest.fixture
def new_stage() -> Callable[..., StoredStage]:
    def build(run_id: str, stage_id: str, **fields: Any) -> StoredStage:
        values: dict[str, Any] = {
            "id": f"{run_id}-{stage_id}",
            "created_at": START,
            "updated_at": START,
            **fields,
        }
        return StoredStage(
            run_id=run_id, stage_id=stage_id, stage_name=stage_id, stage_number=1, execution_group=1, **values
        )

    return build


@pytest.fixture
def new_event() -> Callable[[str, str], NewEvent]:
    def build(id: str, run_id: str) -> NewEvent:
        return NewEvent(
            id=id, run_id=run_id, type="workflow:started", payload={}, occurred_at=START, causation_id="cause"
        )

    return build


@pytest.fixture
def new_job() -> Callable[..., NewJob]:
    def build(id: str, **fields: Any) -> NewJob:
        values: dict[str, Any] = {"run_id": f"run-of-{id}", "stage_id": "stage", **fields}
        return NewJob(id=id, workflow_id="orders", **values)

    return build
