from datetime import UTC, datetime, timedelta

import pytest

from stagewright.records import StageRecord, StepRecord
from stagewright.status import Status
from stagewright_host_node.demo.shown_story import show_story, timeline
from stagewright_host_node.demo.story import Story

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def step(step_id: str, *, created: float, recorded: float, attempt: int = 1) -> StepRecord:
    return StepRecord(
        id=f"id of {step_id}",
        stage_record_id="words-record",
        step_id=step_id,
        seq=1,
        kind="run",
        status="completed",
        created_at=at(created),
        updated_at=at(recorded),
        attempt=attempt,
        external_key=f"key-of-{step_id}",
    )


OLD = step("old", created=1, recorded=2)
CUT_OFF = step("cut-off", created=3, recorded=8, attempt=2)
NEW = step("new", created=8, recorded=9)


def story(*steps: StepRecord) -> Story:
    stage = StageRecord(
        id="words-record",
        run_id="run",
        stage_id="words",
        stage_name="Words",
        stage_number=1,
        execution_group=1,
        status=Status.COMPLETED,
        started_at=at(6),
        completed_at=at(9),
    )
    return Story(
        began_at=at(0),
        killed_at=at(4),
        taken_over_at=at(5),
        ended_at=at(10),
        first="worker-1",
        second="worker-2",
        before={OLD.id: OLD},
        stages=[stage],
        steps={stage.id: list(steps)},
    )


def test_each_step_is_told_with_its_worker() -> None:
    told = story(OLD, CUT_OFF, NEW).told()
    assert [(one.record.step_id, one.worker, one.was_cut_off) for one in told] == [
        ("old", "worker-1", False),
        ("cut-off", "worker-2", True),
        ("new", "worker-2", False),
    ]


def test_a_finished_step_that_ran_again_is_found() -> None:
    assert story(OLD, CUT_OFF, NEW).run_again() == []
    again = story(step("old", created=1, recorded=7, attempt=2), NEW).run_again()
    assert [one.record.step_id for one in again] == ["old"]


def test_the_timeline_has_the_kill_the_takeover_and_each_step() -> None:
    head, first, second, words = timeline(story(OLD, CUT_OFF, NEW))
    assert head.rstrip().endswith("10.0 s")
    assert first.endswith("✗ SIGKILL")
    assert second.startswith("worker-2 ")
    assert first.index("✗") < second.index("━")
    assert words.count("▪") == 3
    assert words.index("▪") < first.index("✗") < words.rindex("▪")


def test_what_was_under_way_is_shown_with_its_external_key(capsys: pytest.CaptureFixture[str]) -> None:
    show_story(story(OLD, CUT_OFF))
    printed = capsys.readouterr().out
    assert "key-of-cut-off" in printed
    assert "finished before the kill, and not run again" in printed
