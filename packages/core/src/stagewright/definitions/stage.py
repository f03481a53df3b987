"""A stage: a named, typed body, with what it needs and how often it may fail."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, TypeAlias, overload

from typing_extensions import TypeVar

from stagewright.definitions.context import BlockingStageContext, EmptyConfig, StageContext
from stagewright.definitions.retry_policy import RetryPolicy
from stagewright.definitions.schema import Schema
from stagewright.json_values import Json

__all__ = ["Stage", "StageMode"]

In = TypeVar("In")
Config = TypeVar("Config", default=EmptyConfig)
Out = TypeVar("Out", covariant=True, default=Any)

StageMode: TypeAlias = Literal["sync", "async-batch"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(Generic[In, Config, Out]):
    """One stage, made by `@stage` or `define_stage`; it can stand in several workflows.

    It is still callable as the plain function: `await price(ctx)`, or `price(ctx)` for a plain `def`.

    Attributes:
        id: Its id, unique within a workflow.
        name: What people read.
        description: What it does.
        dependencies: Ids of earlier stages whose outputs it asks for.
        execute: The function as it was given.
        input_schema: The type of `ctx.input`; `Schema.none()` when it takes none.
        config_schema: The type of `ctx.config`.
        output_schema: The type of its output.
        state_schema: The type of the state that a `Suspend` carries and `check_completion` gets.
        retry: Its budgets and pauses; None means the engine's defaults.
        timeout: How long one invocation of the body may take.
        mode: `sync`, or `async-batch` when the body may return `Suspend`.
        check_completion: Asks whether a suspended batch is done; for `async-batch` only.
        is_blocking: Whether the body is a plain `def`, which runs in a thread.
        check_is_blocking: Whether `check_completion` is a plain `def`.
    """

    id: str
    name: str
    description: str
    dependencies: tuple[str, ...]
    execute: Callable[..., Any] = field(repr=False)
    input_schema: Schema[In]
    config_schema: Schema[Config]
    output_schema: Schema[Out]
    state_schema: Schema[Any] = field(repr=False)
    retry: RetryPolicy | None
    timeout: timedelta | None
    mode: StageMode
    check_completion: Callable[..., Any] | None = field(repr=False)
    is_blocking: bool
    check_is_blocking: bool

    @property
    def takes_input(self) -> bool:
        """Whether the body has an input; without one, what the group before gave is ignored."""
        return not self.input_schema.takes_nothing

    @property
    def __name__(self) -> str:
        """The function's name."""
        return str(getattr(self.execute, "__name__", self.id))

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function itself, for tools that look through decorators."""
        return self.execute

    @overload
    def __call__(self, ctx: StageContext[In, Config], /) -> Awaitable[Out]: ...
    @overload
    def __call__(self, ctx: BlockingStageContext[In, Config], /) -> Out: ...
    def __call__(
        self, ctx: StageContext[In, Config] | BlockingStageContext[In, Config], /
    ) -> Awaitable[Out] | Out:
        """Call the plain function, without anything that the engine does around it."""
        result: Awaitable[Out] | Out = self.execute(ctx)
        return result

    def parse_input(self, stored: Json, *, what: str | None = None) -> In:
        """Read stored JSON as this stage's input.

        Raises:
            SchemaMismatchError: If it doesn't fit.
        """
        return self.input_schema.load(stored, what=what or f"the input of stage {self.id!r}")

    def parse_config(self, stored: Json, *, what: str | None = None) -> Config:
        """Read stored JSON as this stage's config.

        Raises:
            SchemaMismatchError: If it doesn't fit.
        """
        return self.config_schema.load(stored, what=what or f"the config of stage {self.id!r}")
