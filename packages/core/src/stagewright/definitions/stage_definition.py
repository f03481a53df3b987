"""Making a stage from a function and its annotations: `@stage` and `define_stage`."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias, overload

from typing_extensions import TypeVar

from stagewright.definitions.context import BlockingStageContext, EmptyConfig, StageContext
from stagewright.definitions.results import NotReady, Ready, StageResult, Suspend
from stagewright.definitions.retry_policy import RetryPolicy
from stagewright.definitions.signature import MISSING, locals_of_caller
from stagewright.definitions.stage import Stage, StageMode
from stagewright.definitions.stage_assembly import StageOptions, assemble_stage, refuse_bare_decorator
from stagewright.duration import Duration

__all__ = ["AnyStage", "BatchStageDecorator", "StageDecorator", "define_stage", "stage"]

In = TypeVar("In")
Config = TypeVar("Config", default=EmptyConfig)
Out = TypeVar("Out", default=Any)

AnyStage: TypeAlias = Stage[Any, Any, Any]
Dependencies: TypeAlias = Sequence["str | Stage[Any, Any, Any]"]

_Body: TypeAlias = Callable[[StageContext[In, Config]], Awaitable[Out]]
_BlockingBody: TypeAlias = Callable[[BlockingStageContext[In, Config]], Out]
_Verdict: TypeAlias = Ready[Any] | NotReady
_Check: TypeAlias = (
    Callable[[Any, StageContext[Any, Any]], Awaitable[_Verdict]]
    | Callable[[Any, BlockingStageContext[Any, Any]], _Verdict]
)


class StageDecorator(Protocol):
    """Makes a stage of the function below it."""

    @overload
    def __call__(self, function: _Body[In, Config, StageResult[Out]], /) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(self, function: _Body[In, Config, Out | StageResult[Out]], /) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(
        self, function: _BlockingBody[In, Config, StageResult[Out]], /
    ) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(
        self, function: _BlockingBody[In, Config, Out | StageResult[Out]], /
    ) -> Stage[In, Config, Out]: ...


class BatchStageDecorator(Protocol):
    """Makes a stage that may suspend of the function below it."""

    @overload
    def __call__(
        self, function: _Body[In, Config, StageResult[Out] | Suspend], /
    ) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(
        self, function: _Body[In, Config, Out | StageResult[Out] | Suspend], /
    ) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(
        self, function: _BlockingBody[In, Config, StageResult[Out] | Suspend], /
    ) -> Stage[In, Config, Out]: ...
    @overload
    def __call__(
        self, function: _BlockingBody[In, Config, Out | StageResult[Out] | Suspend], /
    ) -> Stage[In, Config, Out]: ...


@overload
def stage(
    id: str,
    *,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: Literal["sync"] | None = None,
    check_completion: None = None,
) -> StageDecorator: ...
@overload
def stage(
    id: str,
    *,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: Literal["async-batch"],
    check_completion: _Check,
) -> BatchStageDecorator: ...
def stage(
    id: str,
    *,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: StageMode | None = None,
    check_completion: _Check | None = None,
) -> Any:
    """Make a stage of the function below; its annotations say what goes in and out.

    The first parameter is annotated `StageContext[Input, Config]`, or `BlockingStageContext[Input, Config]` for
    a plain `def`, and the return annotation names the output.

    Args:
        id: Lower-case letters, digits, `_` and `-`; unique within a workflow.
        name: What people read; the id if left out.
        description: What it does; the first paragraph of the docstring if left out.
        dependencies: Earlier stages, or their ids, whose outputs the body asks for.
        retry: Budgets and pauses.
        timeout: How long one invocation of the body may take.
        mode: `"async-batch"` when the body may return `Suspend`.
        check_completion: Called as `check_completion(state, ctx)`; returns `Ready` or `NotReady`.

    Raises:
        DefinitionError: Listing all problems, with the function's name, file and line.
    """
    refuse_bare_decorator(id)
    options = StageOptions(
        id=id,
        name=name,
        description=description,
        dependencies=dependencies,
        retry=retry,
        timeout=timeout,
        mode=mode,
        check_completion=check_completion,
    )

    def decorate(function: Callable[..., Any], /) -> AnyStage:
        return assemble_stage(options, function, caller_locals=locals_of_caller(function))

    return decorate


@overload
def define_stage(
    id: str,
    execute: _Body[In, Config, Out | StageResult[Out] | Suspend],
    *,
    input: type[In],
    output: type[Out],
    config: type[Config] = ...,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: StageMode | None = None,
    check_completion: _Check | None = None,
) -> Stage[In, Config, Out]: ...
@overload
def define_stage(
    id: str,
    execute: _BlockingBody[In, Config, Out | StageResult[Out] | Suspend],
    *,
    input: type[In],
    output: type[Out],
    config: type[Config] = ...,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: StageMode | None = None,
    check_completion: _Check | None = None,
) -> Stage[In, Config, Out]: ...
@overload
def define_stage(
    id: str,
    execute: _Body[In, Config, Out | StageResult[Out] | Suspend]
    | _BlockingBody[In, Config, Out | StageResult[Out] | Suspend],
    *,
    input: object = ...,
    output: object = ...,
    config: object = ...,
    name: str | None = None,
    description: str | None = None,
    dependencies: Dependencies = (),
    retry: RetryPolicy | None = None,
    timeout: Duration | None = None,
    mode: StageMode | None = None,
    check_completion: _Check | None = None,
) -> Stage[In, Config, Out]: ...
def define_stage(
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
    check_completion: _Check | None = None,
) -> AnyStage:
    """Make a stage of a function, naming the types that its annotations don't.

    Args:
        id: Lower-case letters, digits, `_` and `-`; unique within a workflow.
        execute: The body.
        input: The type of `ctx.input`; None when it takes none.
        output: The type of the output.
        config: The type of `ctx.config`.
        name: What people read; the id if left out.
        description: What it does; the first paragraph of the docstring if left out.
        dependencies: Earlier stages, or their ids, whose outputs the body asks for.
        retry: Budgets and pauses.
        timeout: How long one invocation of the body may take.
        mode: `"async-batch"` when the body may return `Suspend`.
        check_completion: Called as `check_completion(state, ctx)`; returns `Ready` or `NotReady`.

    Raises:
        DefinitionError: Listing all problems, with the function's name, file and line.
    """
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
    return assemble_stage(options, execute, caller_locals=locals_of_caller(execute))
