"""Annotations, progress and log lines: what is kept, what is refused, and that logging never fails a stage."""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from stagewright import StageContext
from stagewright.annotations import Actor, AnnotationInput, TypedKey, typed_key
from stagewright.errors import ValueNotSerializableError
from stagewright.ports import ActivityRun
from stagewright.runtime.reports import StageReports
from stagewright.testing import FakeClock

COUNT: TypedKey[int] = typed_key("c")


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


async def body(ctx: StageContext[Any]) -> Any:
    return None


@pytest.fixture
def reports(make_activity: Callable[..., ActivityRun]) -> StageReports:
    return StageReports(make_activity(body))


def annotate(reports: StageReports, attributes: Any, **fields: Any) -> None:
    given: dict[str, Any] = {"actor": None, "payload": None, "emit_event": False} | fields
    reports.annotate(attributes, **given)


# Log lines


@pytest.mark.parametrize(
    ("given", "kept", "forwarded"),
    [
        ("debug", "DEBUG", logging.DEBUG),
        ("Info", "INFO", logging.INFO),
        ("WARN", "WARN", logging.WARNING),
        ("warning", "WARN", logging.WARNING),
        ("error", "ERROR", logging.ERROR),
        ("critical", "ERROR", logging.CRITICAL),
    ],
)
def test_a_line_is_kept_and_forwarded(
    reports: StageReports,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    given: str,
    kept: str,
    forwarded: int,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="stagewright.stage"):
        reports.log(given, "hello %s", {"n": 1})
    (line,) = reports.take_logs()
    assert (line.level, line.message, line.fields) == (kept, "hello %s", {"n": 1})
    assert (line.run_id, line.stage_id, line.stage_record_id) == ("run", "s", "record")
    assert line.created_at == clock.now()
    (record,) = caplog.records
    assert (record.name, record.levelno, record.getMessage()) == ("stagewright.stage", forwarded, "hello %s")
    assert (record.__dict__["run_id"], record.__dict__["stage_id"]) == ("run", "s")


@pytest.mark.parametrize("level", ["trace", "", None, 20])
def test_an_unknown_level_is_refused(reports: StageReports, level: Any) -> None:
    with pytest.raises(ValueError, match="level"):
        reports.log(level, "x", {})


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z"),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ("nul\x00", "'nul\\x00'"),
        (None, None),
    ],
)
def test_a_field_is_kept_in_its_json_form(reports: StageReports, value: object, kept: object) -> None:
    reports.log("info", "x", {"field": value})
    (line,) = reports.take_logs()
    assert line.fields == {"field": kept}


@pytest.mark.parametrize(
    "value", [object(), Unshowable(), float("nan"), "\ud800", [10**5_000], {1: Unshowable()}, {object()}]
)
def test_whatever_is_logged_a_line_comes_of_it(reports: StageReports, value: object) -> None:
    reports.log("info", "x", {"field": value, "nul\x00key": 1})
    (line,) = reports.take_logs()
    assert list(line.fields) == ["field", "nul\\x00key"]


def test_a_message_is_made_storable(reports: StageReports) -> None:
    reports.log("info", "nul\x00 \ud800", {})
    reports.log("info", "x" * 100_000, {})
    odd, long = reports.take_logs()
    assert odd.message == "nul\\x00 \\ud800"
    assert len(long.message.encode()) <= 16 * 1024


def test_lines_are_taken_once_and_can_be_given_back(reports: StageReports) -> None:
    for number in range(3):
        reports.log("info", str(number), {})
    taken = reports.take_logs()
    assert reports.take_logs() == ()
    reports.log("info", "3", {})
    reports.put_back_logs(taken)
    assert [line.message for line in reports.take_logs()] == ["0", "1", "2", "3"]


def test_many_threads_may_report_at_once(reports: StageReports) -> None:
    def talk() -> None:
        for number in range(200):
            reports.log("debug", "x", {})
            reports.report_progress(number, "", {})
            annotate(reports, {"k": number})

    threads = [threading.Thread(target=talk) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = reports.take_logs()
    assert len(lines) == len({line.id for line in lines}) == 1_600
    assert (len(reports.progress), len(reports.annotations)) == (1_600, 1_600)


# Progress


def test_progress_becomes_an_event(reports: StageReports, clock: FakeClock) -> None:
    reports.report_progress(40, "reading", {"rows": 3, "odd": {1}})
    reports.report_progress(150.5, "", {})
    reports.report_progress(99, "nul\x00", {"nul\x00": 1})
    first, second, third = reports.progress
    assert (third.message, third.details) == ("nul\\x00", {"nul\\x00": 1})
    assert (first.progress, first.message, first.details) == (40, "reading", {"rows": 3, "odd": [1]})
    assert (first.run_id, first.stage_id, first.stage_name, first.timestamp) == (
        "run",
        "s",
        "The stage",
        clock.now(),
    )
    assert (second.progress, second.details) == (150.5, None)


@pytest.mark.parametrize("percent", [float("nan"), float("inf"), "40", None, True])
def test_progress_that_is_no_number_is_refused(reports: StageReports, percent: Any) -> None:
    with pytest.raises(ValueError, match="percent"):
        reports.report_progress(percent, "", {})
    assert reports.progress == ()


# Annotations


def test_annotations_are_kept_in_order_and_without_none(reports: StageReports) -> None:
    actor = Actor(kind="user", id="u")
    annotate(reports, {"a": 1, "b": None, COUNT: 2}, actor=actor, payload={"p": 1}, emit_event=True)
    annotate(reports, {"nothing": None})
    annotate(reports, {})
    annotate(reports, {"a": False})
    assert reports.annotations == (
        AnnotationInput(attributes={"a": 1, "c": 2}, actor=actor, payload={"p": 1}, emit_event=True),
        AnnotationInput(attributes={"a": False}),
    )


@pytest.mark.parametrize(
    ("attributes", "fields"),
    [
        ({"k": object()}, {}),
        ({"k": float("nan")}, {}),
        ({"k": (1,)}, {}),
        ({"k": "nul\x00"}, {}),
        ({"": 1}, {}),
        ({"nul\x00": 1}, {}),
        ({3: 1}, {}),
        ({"k": 1}, {"payload": {1: 1}}),
        ({"fine": 1, "k": object()}, {}),
        ({"k": 1}, {"actor": Actor(kind="user", id="nul\x00")}),
    ],
)
def test_an_annotation_that_can_not_be_stored_is_refused_where_it_is_made(
    reports: StageReports, attributes: Any, fields: dict[str, Any]
) -> None:
    with pytest.raises(ValueNotSerializableError):
        annotate(reports, attributes, **fields)
    assert reports.annotations == ()


def test_a_value_that_the_body_changes_later_stays_as_it_was_said(reports: StageReports) -> None:
    value: list[Any] = [1]
    annotate(reports, {"k": value})
    value.append(object())
    assert reports.annotations[0].attributes == {"k": [1]}
