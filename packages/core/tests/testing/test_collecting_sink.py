from datetime import UTC, datetime
from typing import Any

import pytest

from stagewright.errors import InvalidSettingError
from stagewright.events import WorkflowCancelled, WorkflowStarted
from stagewright.ports import EventSink, RetryBudget
from stagewright.testing import CollectingEventSink

MOMENT = datetime(2025, 1, 1, tzinfo=UTC)
STARTED = WorkflowStarted(timestamp=MOMENT, run_id="r1")
CANCELLED = WorkflowCancelled(timestamp=MOMENT, run_id="r2", reason="stop")


async def test_it_keeps_what_it_is_given() -> None:
    sink = CollectingEventSink()
    port: EventSink = sink
    await port.emit(STARTED)
    await port.emit(CANCELLED)
    assert sink.events == [STARTED, CANCELLED]
    assert sink.by_type("workflow:started") == [STARTED]
    assert [event.reason for event in sink.by_type(WorkflowCancelled)] == ["stop"]
    assert sink.types() == ["workflow:started", "workflow:cancelled"]
    assert sink.types("r2") == ["workflow:cancelled"]
    sink.clear()
    assert sink.events == []


async def test_it_refuses_a_number_of_times() -> None:
    sink = CollectingEventSink()
    sink.fail_with(ValueError("no"), times=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await sink.emit(STARTED)
    await sink.emit(STARTED)
    assert (sink.refused, sink.events) == ([STARTED, STARTED], [STARTED])


async def test_it_refuses_until_told_otherwise() -> None:
    sink = CollectingEventSink(max_retries=7)
    assert isinstance(sink, RetryBudget)
    assert sink.max_retries == 7
    sink.fail_with(ValueError("no"))
    for _ in range(5):
        with pytest.raises(ValueError, match="no"):
            await sink.emit(STARTED)
    sink.accept()
    await sink.emit(STARTED)
    assert sink.events == [STARTED]


async def test_what_can_not_be_raised_or_counted_is_refused() -> None:
    no_number: Any = "three"
    for number in (-1, True, no_number):
        with pytest.raises(InvalidSettingError, match=r"max_retries=.* must be a whole number"):
            CollectingEventSink(max_retries=number)
        with pytest.raises(InvalidSettingError, match=r"times=.* must be a whole number"):
            CollectingEventSink().fail_with(ValueError("no"), times=number)
    sink = CollectingEventSink()
    no_error: Any = "no"
    with pytest.raises(InvalidSettingError, match="error='no' must be an exception"):
        sink.fail_with(no_error)
    await sink.emit(STARTED)
    assert sink.events == [STARTED]
