"""What a body sees of its run. Only the shape stands here; the run time fills it."""

from collections.abc import Mapping
from typing import Any, Protocol, overload

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from stagewright.annotations import Actor, TypedKey
from stagewright.definitions.abort import AbortSignal
from stagewright.definitions.schema import Schema
from stagewright.definitions.steps import BlockingStageSteps, StageSteps
from stagewright.json_values import Json

__all__ = [
    "BlockingStageContext",
    "BlockingStageStorage",
    "EmptyConfig",
    "StageContext",
    "StageFacts",
    "StageReference",
    "StageStorage",
]


class EmptyConfig(BaseModel):
    """The config of a stage that declares none; it has no field and refuses any."""

    model_config = ConfigDict(extra="forbid", frozen=True)


V = TypeVar("V")
In_co = TypeVar("In_co", covariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Config_co = TypeVar("Config_co", covariant=True, default=EmptyConfig)


class StageReference(Protocol[Out_co]):
    """What names a stage and knows the type of its output; every `Stage` does."""

    @property
    def id(self) -> str:
        """The stage's id."""
        ...

    @property
    def output_schema(self) -> Schema[Out_co]:
        """The type of the stage's output."""
        ...


class StageStorage(Protocol):
    """Blobs of this stage; every key stands under the stage's own prefix."""

    async def save(self, key: str, value: object) -> None:
        """Store a JSON value, or a value whose type has a JSON form."""
        ...

    @overload
    async def load(self, key: str, type: type[V]) -> V: ...
    @overload
    async def load(self, key: str, type: None = None) -> Json: ...
    async def load(self, key: str, type: type[V] | None = None) -> V | Json:
        """Read a value back, as plain JSON or as the given type; `BlobNotFoundError` if there is none."""
        ...

    async def save_bytes(self, key: str, data: bytes) -> None:
        """Store bytes."""
        ...

    async def load_bytes(self, key: str) -> bytes:
        """Read bytes back; `BlobNotFoundError` if there are none."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        ...

    async def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        ...

    async def keys(self, prefix: str = "") -> list[str]:
        """The keys that start with the prefix, sorted."""
        ...


class BlockingStageStorage(Protocol):
    """`StageStorage` for a plain `def` body: each call blocks its thread."""

    def save(self, key: str, value: object) -> None:
        """Store a JSON value, or a value whose type has a JSON form."""
        ...

    @overload
    def load(self, key: str, type: type[V]) -> V: ...
    @overload
    def load(self, key: str, type: None = None) -> Json: ...
    def load(self, key: str, type: type[V] | None = None) -> V | Json:
        """Read a value back, as plain JSON or as the given type; `BlobNotFoundError` if there is none."""
        ...

    def save_bytes(self, key: str, data: bytes) -> None:
        """Store bytes."""
        ...

    def load_bytes(self, key: str) -> bytes:
        """Read bytes back; `BlobNotFoundError` if there are none."""
        ...

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""
        ...

    def delete(self, key: str) -> None:
        """Remove what is stored under the key, if anything is."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that start with the prefix, sorted."""
        ...


class StageFacts(Protocol[In_co, Config_co]):
    """What both kinds of context share: where the body runs, what it was given, and how it reports."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def workflow_id(self) -> str:
        """The run's workflow."""
        ...

    @property
    def stage_id(self) -> str:
        """This stage, as the workflow names it."""
        ...

    @property
    def stage_record_id(self) -> str:
        """This stage's record in this run."""
        ...

    @property
    def stage_name(self) -> str:
        """This stage, as people read it."""
        ...

    @property
    def stage_number(self) -> int:
        """This stage's place in the definition, from 1."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1; it only ever rises within a run."""
        ...

    @property
    def definition_version(self) -> str:
        """The version of the workflow that the run is pinned to."""
        ...

    @property
    def input(self) -> In_co:
        """The output of the group before, or the run's input in the first group."""
        ...

    @property
    def config(self) -> Config_co:
        """This stage's part of the run's config."""
        ...

    @property
    def workflow_input(self) -> Any:
        """The run's input, as the workflow's input type."""
        ...

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The outputs of earlier stages, by stage id."""
        ...

    @property
    def resume_state(self) -> Any:
        """The state of the last `Suspend` of this stage, or None."""
        ...

    @property
    def abort(self) -> AbortSignal:
        """Tells the body to stop."""
        ...

    @property
    def ai(self) -> Any:
        """Model calls, of the package `stagewright-ai`; `AIServicesNotConfiguredError` without them."""
        ...

    @property
    def ai_logger(self) -> Any:
        """The log of model calls, of the package `stagewright-ai`."""
        ...

    @overload
    def require(self, stage: StageReference[V], /) -> V: ...
    @overload
    def require(self, stage: str, /) -> Any: ...
    def require(self, stage: StageReference[V] | str, /) -> V | Any:
        """The output of an earlier stage; `StageOutputMissingError` when it has none."""
        ...

    @overload
    def optional(self, stage: StageReference[V], /) -> V | None: ...
    @overload
    def optional(self, stage: str, /) -> Any: ...
    def optional(self, stage: StageReference[V] | str, /) -> V | Any:
        """The output of an earlier stage, or None when it has none."""
        ...

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """Add a line to the run's log: `ctx.log("info", "priced", total=12)`."""
        ...

    def progress(self, percent: float, message: str = "", /, **details: object) -> None:
        """Emit `stage:progress`, with the stage's outcome."""
        ...

    @overload
    def annotate(
        self,
        key: TypedKey[V],
        value: V | None,
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None: ...
    @overload
    def annotate(
        self,
        key: str,
        value: Json,
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None: ...
    def annotate(
        self,
        key: TypedKey[V] | str,
        value: object,
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None:
        """Annotate the run with one value; None is dropped. Written with the stage's outcome.

        Args:
            key: A `TypedKey`, or text of 1 to 255 characters.
            value: A JSON document.
            actor: Who says so.
            payload: A JSON document that belongs to it.
            emit_event: Whether it also emits `annotation:created`.

        Raises:
            ValueNotSerializableError: Naming what can't be stored; uncaught, it fails the stage for good.
        """
        ...

    def annotate_many(
        self,
        attributes: Mapping[str, Json] | Mapping[TypedKey[Any], Any],
        /,
        *,
        actor: Actor | None = None,
        payload: Json = None,
        emit_event: bool = False,
    ) -> None:
        """Annotate the run with several values that share actor and payload."""
        ...


class StageContext(StageFacts[In_co, Config_co], Protocol[In_co, Config_co]):
    """What an `async def` body gets: `StageContext[In, Config]`, or `StageContext[In]` without config."""

    @property
    def storage(self) -> StageStorage:
        """Blobs of this stage."""
        ...

    @property
    def step(self) -> StageSteps:
        """Durable steps: what is done once, however often the body is invoked."""
        ...


class BlockingStageContext(StageFacts[In_co, Config_co], Protocol[In_co, Config_co]):
    """What a plain `def` body gets, in a thread of its own; its calls block instead of being awaited."""

    @property
    def storage(self) -> BlockingStageStorage:
        """Blobs of this stage."""
        ...

    @property
    def step(self) -> BlockingStageSteps:
        """Durable steps: what is done once, however often the body is invoked."""
        ...
