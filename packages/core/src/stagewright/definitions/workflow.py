"""A workflow: stages in groups, with one input and one output, fixed once it is built."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stagewright.definitions.diagram import mermaid_flowchart
from stagewright.definitions.plan import ExecutionPlan
from stagewright.definitions.run_config import complete_config, default_config
from stagewright.definitions.schema import Schema
from stagewright.definitions.snapshot import snapshot_of, structure_hash
from stagewright.definitions.stage import Stage
from stagewright.errors import UnknownStageError
from stagewright.json_values import Json

__all__ = ["Workflow"]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Workflow:
    """An immutable workflow, made by `define_workflow(...)...build()`.

    Attributes:
        id: Its id, unique within a registry.
        name: What people read.
        description: What it is for.
        groups: The groups in order; the stages of a group run concurrently.
        input_schema: The type of a run's input; `Schema.none()` when it takes none.
        declared_version: The version that was declared with `.version(...)`, if one was.
    """

    id: str
    name: str
    description: str
    groups: tuple[tuple[Stage[Any, Any, Any], ...], ...]
    input_schema: Schema[Any]
    declared_version: str | None = None

    @cached_property
    def plan(self) -> ExecutionPlan:
        """The groups by number, and what each is given."""
        return ExecutionPlan(self.groups)

    @property
    def stage_ids(self) -> tuple[str, ...]:
        """All stage ids, in definition order."""
        return self.plan.stage_ids

    @property
    def stages(self) -> tuple[Stage[Any, Any, Any], ...]:
        """All stages, in definition order."""
        return tuple(stage for group in self.groups for stage in group)

    def stage(self, stage_id: str) -> Stage[Any, Any, Any]:
        """The stage of that id.

        Raises:
            UnknownStageError: If there is none; it names those there are.
        """
        try:
            return self._stages_by_id[stage_id]
        except KeyError:
            raise UnknownStageError(self.id, stage_id, self.stage_ids) from None

    @cached_property
    def output_schema(self) -> Schema[Any]:
        """The type of a run's output: the last stage's, or a dict by stage id after a parallel group."""
        last = self.groups[-1]
        if len(last) == 1:
            return last[0].output_schema
        return Schema.of_members({stage.id: stage.output_schema for stage in last})

    def default_config(self) -> dict[str, Json]:
        """The defaults of every stage's config, by stage id."""
        return default_config(self.stages)

    def validate_config(self, config: object) -> dict[str, Json]:
        """The config of every stage, validated and with its defaults filled in, as JSON.

        Args:
            config: A mapping of stage ids to mappings or config objects; a stage that is left out gets its defaults.

        Raises:
            InvalidConfigError: Listing every problem, with paths such as `$.price.currency`.
        """
        return complete_config(self.stages, config, subject=f"workflow {self.id!r}")

    @property
    def definition_version(self) -> str:
        """The declared version, or else the structure's hash."""
        return self.declared_version if self.declared_version is not None else self.structure_hash

    def snapshot(self) -> dict[str, Json]:
        """The workflow's structure as a JSON document of the caller's own."""
        return snapshot_of(
            self.id, self.plan, input_schema=self.input_schema, output_schema=self.output_schema
        )

    @cached_property
    def structure_hash(self) -> str:
        """The hash of the snapshot; it changes exactly when the structure does."""
        return structure_hash(self.snapshot())

    def diagram(self) -> str:
        """The workflow as Mermaid flowchart text."""
        return mermaid_flowchart(self.groups)

    @cached_property
    def _stages_by_id(self) -> dict[str, Stage[Any, Any, Any]]:
        return {stage.id: stage for stage in self.stages}

    def __repr__(self) -> str:
        return f"<Workflow {self.id!r}: {' -> '.join('+'.join(stage.id for stage in group) for group in self.groups)}>"
