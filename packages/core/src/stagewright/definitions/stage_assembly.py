"""Checks a function and its options together, and makes the stage of them or lists every problem."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, Final, cast

from stagewright.definitions.context import EmptyConfig
from stagewright.definitions.identifiers import stage_id_problem
from stagewright.definitions.json_kinds import accepts_objects
from stagewright.definitions.retry_policy import RetryPolicy
from stagewright.definitions.schema import Schema
from stagewright.definitions.signature import (
    MISSING,
    AnnotationProblem,
    FunctionReader,
    context_types,
    output_type,
    ready_type,
)
from stagewright.definitions.stage import Stage, StageMode
from stagewright.duration import parse_duration
from stagewright.errors import DefinitionError, InvalidDurationError
from stagewright.json_values import shown

__all__ = ["StageOptions", "assemble_stage", "refuse_bare_decorator"]

_MODES: Final = ("sync", "async-batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOptions:
    """What a stage is defined with, unchecked; `MISSING` types are read from annotations."""

    id: object
    name: object = None
    description: object = None
    dependencies: object = ()
    retry: object = None
    timeout: object = None
    mode: object = None
    check_completion: object = None
    input: object = MISSING
    output: object = MISSING
    config: object = MISSING


def assemble_stage(
    options: StageOptions, function: object, *, caller_locals: Mapping[str, object]
) -> Stage[Any, Any, Any]:
    """Make a stage.

    Raises:
        DefinitionError: Listing everything that is wrong, with the function's name, file and line.
    """
    if not callable(function) or isinstance(function, type):
        found = f"the class {function.__name__}" if isinstance(function, type) else type(function).__name__
        raise DefinitionError(f"stage {options.id!r}", (f"its body must be a function, not {found}",))
    return _Assembly(options, function, caller_locals).stage()


def refuse_bare_decorator(id: object) -> None:
    """Refuse a function in the place of an id.

    Raises:
        DefinitionError: If `@stage` stands above a function without parentheses.
    """
    if not callable(id):
        return
    reader = FunctionReader(id, {})
    name = str(getattr(id, "__name__", ""))
    example = name if stage_id_problem(name) is None else "my-stage"
    problem = f'@stage stands above it without an id; write @stage("{example}")'
    raise DefinitionError(f"stage function {reader.name} ({reader.place})", (problem,))


class _Assembly:
    def __init__(
        self, options: StageOptions, function: Callable[..., object], caller_locals: Mapping[str, object]
    ) -> None:
        self._options = options
        self._function = function
        self._locals = caller_locals
        self._reader = FunctionReader(function, caller_locals)
        self._problems: list[str] = []
        self._is_batch = options.mode == "async-batch"

    def stage(self) -> Stage[Any, Any, Any]:
        options, reader = self._options, self._reader
        id_problem = stage_id_problem(options.id)
        self._problems.extend([id_problem] if id_problem else [])
        if reader.is_generator:
            self._problems.append(
                "a body returns its output and can't yield; collect what it makes and return that"
            )
        self._require_texts()
        dependencies = self._dependencies()
        retry, timeout = self._retry(), self._timeout()
        mode = self._mode()
        check = self._check_reader()
        given, config = self._context_types()
        output = MISSING if reader.is_generator else self._output(check)
        schemas = {
            "input": Schema.none() if given in (None, NoneType) else self._schema(given, "input"),
            "config": self._schema(config, "config"),
            "output": self._schema(output, "output"),
            "state": self._schema(self._state(check), "state"),
        }
        self._require_object_config(schemas["config"])
        if self._problems:
            raise DefinitionError(f"stage function {reader.name} ({reader.place})", tuple(self._problems))
        complete = cast("dict[str, Schema[Any]]", schemas)
        return Stage(
            id=str(options.id),
            name=str(options.id) if options.name is None else str(options.name),
            description=self._description(),
            dependencies=dependencies,
            execute=self._function,
            input_schema=complete["input"],
            config_schema=complete["config"],
            output_schema=complete["output"],
            state_schema=complete["state"],
            retry=retry,
            timeout=timeout,
            mode=mode,
            check_completion=cast("Callable[..., Any] | None", options.check_completion),
            is_blocking=reader.is_blocking,
            check_is_blocking=check is not None and check.is_blocking,
        )

    def _require_texts(self) -> None:
        for role, given in (("name", self._options.name), ("description", self._options.description)):
            if given is not None and not isinstance(given, str):
                self._problems.append(f"{role}={shown(given)} must be text; leave it out for the default")

    def _description(self) -> str:
        if self._options.description is not None:
            return str(self._options.description)
        text = inspect.getdoc(self._function) if inspect.isroutine(self._function) else None
        return (text or "").split("\n\n", 1)[0].replace("\n", " ")

    def _dependencies(self) -> tuple[str, ...]:
        given = self._options.dependencies
        if isinstance(given, str | Stage) or not isinstance(given, Sequence):
            self._problems.append(
                "dependencies must be a sequence of stages or stage ids, such as (load, 'clean')"
            )
            return ()
        ids: list[str] = []
        for one in cast("Sequence[object]", given):
            name = one.id if isinstance(one, Stage) else one
            problem = stage_id_problem(name)
            if problem is not None:
                self._problems.append(f"in dependencies, {problem}")
            elif name not in ids:
                ids.append(cast(str, name))
        return tuple(ids)

    def _retry(self) -> RetryPolicy | None:
        retry = self._options.retry
        if retry is None or isinstance(retry, RetryPolicy):
            return retry
        self._problems.append(f"retry={retry!r} must be a RetryPolicy, such as RetryPolicy(max_attempts=5)")
        return None

    def _timeout(self) -> timedelta | None:
        if self._options.timeout is None:
            return None
        try:
            timeout = parse_duration(cast(Any, self._options.timeout), field="timeout")
        except InvalidDurationError as error:
            self._problems.append(str(error))
            return None
        if timeout <= timedelta(0):
            self._problems.append("timeout must be longer than nothing; leave it out for no time-out")
        return timeout

    def _mode(self) -> StageMode:
        mode, check = self._options.mode, self._options.check_completion
        if mode not in (None, *_MODES):
            self._problems.append(f'mode={mode!r} must be "sync" or "async-batch"')
        elif mode == "async-batch" and check is None:
            self._problems.append(
                'mode="async-batch" needs check_completion=, which asks whether the batch is done'
            )
        elif mode != "async-batch" and check is not None:
            self._problems.append(
                'check_completion is for mode="async-batch" only; give that mode, or leave it out'
            )
        return "async-batch" if mode == "async-batch" else "sync"

    def _check_reader(self) -> FunctionReader | None:
        check = self._options.check_completion
        if check is None:
            return None
        if not callable(check) or isinstance(check, type):
            found = f"the class {check.__name__}" if isinstance(check, type) else type(check).__name__
            self._problems.append(f"check_completion must be a function (state, ctx), not {found}")
            return None
        return FunctionReader(check, self._locals)

    def _context_types(self) -> tuple[object, object]:
        options = self._options
        given, config = options.input, options.config
        try:
            parameters = self._reader.parameters(1)
            annotation = self._reader.annotation_of(parameters[0].name) if parameters else MISSING
            if given is not MISSING and annotation is MISSING:
                return given, EmptyConfig if config is MISSING else config
            found = context_types(annotation, blocking=self._reader.is_blocking)
        except AnnotationProblem as problem:
            self._problems.append(str(problem))
            return MISSING, MISSING
        return found[0] if given is MISSING else given, found[1] if config is MISSING else config

    def _output(self, check: FunctionReader | None) -> object:
        if self._options.output is not MISSING:
            return self._options.output
        try:
            output = output_type(self._reader.annotation_of("return"), may_suspend=self._is_batch)
            if output is MISSING and check is not None:
                output = ready_type(check.annotation_of("return"))
        except AnnotationProblem as problem:
            self._problems.append(str(problem))
            return MISSING
        if output is MISSING:
            self._problems.append(
                "its annotations name no output type; annotate check_completion with -> Ready[Output] | NotReady"
            )
        return output

    def _state(self, check: FunctionReader | None) -> object:
        if check is None:
            return object
        try:
            parameters = check.parameters(2)
            if len(parameters) < 2:
                return object
            annotation = check.annotation_of(parameters[0].name)
            context = check.annotation_of(parameters[1].name)
            if context is not MISSING:
                context_types(context, blocking=check.is_blocking)
        except AnnotationProblem as problem:
            self._problems.append(f"check_completion {check.name} ({check.place}): {problem}")
            return MISSING
        return object if annotation is MISSING else annotation

    def _schema(self, annotation: object, role: str) -> Schema[Any] | None:
        if annotation is MISSING:
            return None
        try:
            return Schema.of(annotation)
        except DefinitionError as error:
            self._problems.extend(
                f"the {role} type: {error.subject}: {problem}" for problem in error.problems
            )
            return None

    def _require_object_config(self, schema: Schema[Any] | None) -> None:
        if schema is not None and accepts_objects(schema) is False:
            self._problems.append(
                f"the config type {schema.annotation!r} can't be a JSON object; declare a model, or leave it out"
            )
