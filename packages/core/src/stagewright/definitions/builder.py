"""Joining stages into a workflow, one group after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Final, cast

from stagewright.definitions.identifiers import workflow_id_problem
from stagewright.definitions.json_kinds import provable_mismatch
from stagewright.definitions.retry_policy import RetryPolicy
from stagewright.definitions.schema import Schema
from stagewright.definitions.signature import MISSING, locals_of_caller
from stagewright.definitions.stage import Stage, StageMode
from stagewright.definitions.stage_assembly import StageOptions, assemble_stage
from stagewright.definitions.stage_definition import Dependencies
from stagewright.definitions.workflow import Workflow
from stagewright.duration import Duration
from stagewright.errors import DefinitionError
from stagewright.json_values import shown

__all__ = ["WorkflowBuilder", "define_workflow"]

_LONGEST_VERSION: Final = 255
_Group = tuple[Stage[Any, Any, Any], ...]


@dataclass(frozen=True, slots=True)
class WorkflowBuilder:
    """A workflow in the making. Every call gives a new builder, so a common beginning can be shared."""

    _id: str
    _input: object
    _name: str | None
    _description: str
    _groups: tuple[_Group, ...] = ()
    _version: str | None = None
    _problems: tuple[str, ...] = ()

    def pipe(self, stage: Stage[Any, Any, Any]) -> "WorkflowBuilder":
        """Add a group of one stage."""
        return self._with_group((stage,), call=".pipe()")

    def parallel(self, *stages: Stage[Any, Any, Any]) -> "WorkflowBuilder":
        """Add a group of stages that run concurrently; the next stage gets a dict of their outputs by id."""
        if not stages:
            return self._with_problem("a parallel group has no stage; give .parallel() at least one")
        return self._with_group(stages, call=".parallel()")

    def stage(
        self,
        id: str,
        execute: Callable[..., Any],
        *,
        input: object = MISSING,
        output: object = MISSING,
        config: object = MISSING,
        name: str | None = None,
        description: str | None = None,
        dependencies: Dependencies = (),
        retry: RetryPolicy | None = None,
        timeout: Duration | None = None,
        mode: StageMode | None = None,
        check_completion: Callable[..., Any] | None = None,
    ) -> "WorkflowBuilder":
        """Define a stage and add it as a group of one; takes what `define_stage` takes."""
        options = StageOptions(
            id=id,
            name=name,
            description=description,
            dependencies=dependencies,
            retry=retry,
            timeout=timeout,
            mode=mode,
            check_completion=check_completion,
            input=input,
            output=output,
            config=config,
        )
        try:
            made = assemble_stage(options, execute, caller_locals=locals_of_caller(execute))
        except DefinitionError as error:
            return replace(
                self, _problems=(*self._problems, *(f"{error.subject}: {text}" for text in error.problems))
            )
        return self._with_group((made,), call=".stage()")

    def version(self, version: str) -> "WorkflowBuilder":
        """Declare the version of this structure, in the place of the derived one."""
        if not isinstance(cast(object, version), str):
            fix = 'such as .version("2")'
            return self._with_problem(
                f"the version {shown(version)} must be text, {fix}, or leave .version() out"
            )
        if not version.strip():
            return self._with_problem(f"the version {version!r} is empty; give text, or leave .version() out")
        if version == "latest":
            return self._with_problem(
                "the version 'latest' means whatever version a build has; give it another name"
            )
        if len(version) > _LONGEST_VERSION:
            return self._with_problem(
                f"the version {shown(version)} has {len(version)} characters; at most {_LONGEST_VERSION} are kept"
            )
        return replace(self, _version=version)

    def build(self) -> Workflow:
        """The finished workflow.

        Raises:
            DefinitionError: Listing everything that is wrong.
        """
        problems = [*self._problems]
        id_problem = workflow_id_problem(self._id)
        problems.extend([id_problem] if id_problem else [])
        for role, given in (("name", self._name), ("description", self._description)):
            if given is not None and not isinstance(cast(object, given), str):
                problems.append(f"{role}={shown(given)} must be text")
        if not self._groups and not self._problems:
            problems.append("it has no stage; add one with .pipe(stage)")
        problems.extend(self._order_problems())
        schema: Schema[Any] | None = None
        try:
            schema = Schema.none() if self._input in (None, NoneType) else Schema.of(self._input)
            schema.codec  # noqa: B018 - a type that names missing classes must fail here, not in a run
        except DefinitionError as error:
            problems.extend(f"its input, {error.subject}: {text}" for text in error.problems)
        if schema is not None:
            problems.extend(self._schema_problems(schema))
        if problems or schema is None:
            raise DefinitionError(f"workflow {self._id!r}", tuple(problems))
        return Workflow(
            id=self._id,
            name=self._id if self._name is None else self._name,
            description=self._description,
            groups=self._groups,
            input_schema=schema,
            declared_version=self._version,
        )

    def _with_group(self, stages: tuple[object, ...], *, call: str) -> "WorkflowBuilder":
        for one in stages:
            if not isinstance(one, Stage):
                shown = getattr(one, "__name__", None) or repr(one)
                fix = "make one with @stage or define_stage"
                return self._with_problem(f"{call} was given {shown}, which is no Stage; {fix}")
        return replace(self, _groups=(*self._groups, cast(_Group, stages)))

    def _with_problem(self, problem: str) -> "WorkflowBuilder":
        return replace(self, _problems=(*self._problems, problem))

    def _order_problems(self) -> list[str]:
        problems: list[str] = []
        earlier: list[str] = []
        seen: set[str] = set()
        for group in self._groups:
            for stage in group:
                if stage.id in seen:
                    problems.append(
                        f"it has two stages with the id {stage.id!r}; give one of them another id"
                    )
                seen.add(stage.id)
                missing = [name for name in stage.dependencies if name not in earlier]
                if missing:
                    there = ", ".join(map(repr, earlier)) or "(none)"
                    names = ", ".join(map(repr, missing))
                    problems.append(
                        f"stage {stage.id!r} depends on {names}, not earlier in the workflow; "
                        f"earlier stages: {there}"
                    )
            earlier.extend(stage.id for stage in group)
        return problems

    def _schema_problems(self, run_input: Schema[Any]) -> list[str]:
        problems: list[str] = []
        produced: Schema[Any] | dict[str, Schema[Any]] = run_input
        source = "the run's input"
        for position, group in enumerate(self._groups):
            for stage in group:
                for role in ("input", "output", "config"):
                    problems.extend(_incomplete(stage, role))
                reason = provable_mismatch(produced, stage.input_schema, may_have_more=position == 0)
                if reason is not None:
                    problems.append(f"stage {stage.id!r} can't take {source}: {reason}")
            produced = (
                group[0].output_schema
                if len(group) == 1
                else {stage.id: stage.output_schema for stage in group}
            )
            source = " and ".join(f"the output of {stage.id!r}" for stage in group)
        return problems


def _incomplete(stage: Stage[Any, Any, Any], role: str) -> list[str]:
    schema: Schema[Any] = getattr(stage, f"{role}_schema")
    try:
        schema.codec  # noqa: B018 - a type that names missing classes must fail here, not in a run
    except DefinitionError as error:
        return [f"stage {stage.id!r}: the {role} type, {error.subject}: {text}" for text in error.problems]
    return []


def define_workflow(
    id: str, *, input: object, name: str | None = None, description: str = ""
) -> WorkflowBuilder:
    """Begin a workflow.

    Args:
        id: Letters, digits, `.`, `_`, `:` and `-`; unique within a registry.
        input: The type of a run's input: any that pydantic knows, or None when a run takes none.
        name: What people read; the id if left out.
        description: What it is for.
    """
    return WorkflowBuilder(id, input, name, description)
