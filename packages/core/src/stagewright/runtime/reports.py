"""What a body says while it runs: annotations, progress and log lines, kept until they are written."""

import logging
import math
import threading
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from pydantic_core import to_jsonable_python

from stagewright.annotations import Actor, AnnotationInput, annotation_problems
from stagewright.errors import ValueNotSerializableError
from stagewright.events import StageProgress
from stagewright.json_values import Json, require_json, shown, text_problem
from stagewright.ports import ActivityRun
from stagewright.records import LogLevel, LogRecord
from stagewright.runtime.failure import storable

__all__ = ["StageReports"]

_LEVELS: Final[Mapping[str, tuple[LogLevel, int]]] = {
    "DEBUG": ("DEBUG", logging.DEBUG),
    "INFO": ("INFO", logging.INFO),
    "WARN": ("WARN", logging.WARNING),
    "WARNING": ("WARN", logging.WARNING),
    "ERROR": ("ERROR", logging.ERROR),
    "CRITICAL": ("ERROR", logging.CRITICAL),
}
_LONGEST_LINE: Final = 16 * 1024
_log: Final = logging.getLogger("stagewright.stage")


class StageReports:
    """Collects what one invocation says; bodies call it from their own thread."""

    def __init__(self, activity: ActivityRun) -> None:
        self._activity = activity
        self._lock = threading.Lock()
        self._annotations: list[AnnotationInput] = []
        self._progress: list[StageProgress] = []
        self._logs: list[LogRecord] = []

    @property
    def annotations(self) -> tuple[AnnotationInput, ...]:
        """All annotations so far, in order."""
        return tuple(self._annotations)

    @property
    def progress(self) -> tuple[StageProgress, ...]:
        """All progress so far, in order."""
        return tuple(self._progress)

    def take_logs(self) -> tuple[LogRecord, ...]:
        """The log lines that nobody has taken yet."""
        with self._lock:
            taken, self._logs = tuple(self._logs), []
        return taken

    def put_back_logs(self, lines: tuple[LogRecord, ...]) -> None:
        """Give back lines that could not be written, so that the next one to take them tries again."""
        with self._lock:
            self._logs = [*lines, *self._logs]

    def log(self, level: str, message: str, fields: Mapping[str, object], *, id: str | None = None) -> None:
        """Add a line to the run's log, and hand it to the logger `stagewright.stage`.

        Args:
            level: debug, info, warn or error.
            message: What it says.
            fields: What it says besides.
            id: The line's id; of several lines with one id the first is kept.

        Raises:
            ValueError: If the level is none of debug, info, warn and error.
        """
        known = _LEVELS.get(str(level).upper())
        if known is None:
            raise ValueError(f"level={level!r} is not a log level; use debug, info, warn or error")
        activity, resources = self._activity, self._activity.resources
        line = LogRecord(
            id=id or resources.ids.new_id(),
            run_id=activity.run_id,
            level=known[0],
            message=storable(str(message), _LONGEST_LINE),
            created_at=resources.clock.now(),
            stage_record_id=activity.stage_record_id,
            stage_id=activity.stage.id,
            fields=_loggable_fields(fields),
        )
        with self._lock:
            self._logs.append(line)
        _log.log(known[1], "%s", line.message, extra={"run_id": line.run_id, "stage_id": line.stage_id})

    def report_progress(self, percent: float, message: str, details: Mapping[str, object]) -> None:
        """Keep a progress event for the stage's outcome.

        Raises:
            ValueError: If `percent` is no finite number.
        """
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not math.isfinite(percent):
            raise ValueError(f"percent={percent!r} must be a finite number, as 40 for 40 %")
        event = StageProgress(
            timestamp=self._activity.resources.clock.now(),
            run_id=self._activity.run_id,
            stage_id=self._activity.stage.id,
            stage_name=self._activity.stage.name,
            progress=percent,
            message=storable(str(message), _LONGEST_LINE),
            details=_loggable_fields(details) or None,
        )
        with self._lock:
            self._progress.append(event)

    def annotate(
        self,
        attributes: Mapping[Any, object],  # Any: keys are text or typed keys of any value type
        *,
        actor: Actor | None,
        payload: Json,
        emit_event: bool,
    ) -> None:
        """Keep annotations for the stage's outcome; None values are dropped.

        Raises:
            ValueNotSerializableError: If a key, a value, the payload or the actor can't be stored.
        """
        given = AnnotationInput(attributes=attributes, actor=actor, payload=payload, emit_event=emit_event)  # type: ignore[arg-type]  # values are looked at below
        for problem in annotation_problems(given):
            raise ValueNotSerializableError("an annotation", problem.path, problem.message)
        values: dict[str, Json] = {}
        for name, value in given.attributes.items():
            if value is None:
                continue
            what = f"annotation {shown(name)}"
            _refuse(text_problem(name), what)
            # A copy: the body may go on changing what it has said.
            values[name] = deepcopy(require_json(value, what=what))
        payload = deepcopy(require_json(payload, what="an annotation's payload"))
        for text in () if actor is None else (actor.kind, actor.id, actor.version):
            _refuse(None if text is None else text_problem(text), "an annotation's actor")
        if values:
            self.add_annotation(replace(given, attributes=values, payload=payload))

    def add_annotation(self, annotation: AnnotationInput) -> None:
        """Keep an annotation that can be stored as it is for the stage's outcome."""
        with self._lock:
            self._annotations.append(annotation)


def _refuse(problem: str | None, what: str) -> None:
    if problem is not None:
        raise ValueNotSerializableError(what, "$", problem)


def _loggable_fields(fields: Mapping[str, object]) -> dict[str, Json]:
    return {storable(name, 255): _loggable(value) for name, value in fields.items()}


def _loggable(value: object) -> Json:
    """A value's JSON form, or its text where it has none: a log line must never be what fails a stage."""
    try:
        return require_json(to_jsonable_python(value, fallback=repr), what="a field")
    except Exception:
        return storable(_shown(value), _LONGEST_LINE)


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that can't be shown>"
