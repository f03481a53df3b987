"""The order in which a workflow's stages run, and what each group is given. Pure: no run, no store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stagewright.definitions.stage import Stage
from stagewright.errors import StageOutputMissingError
from stagewright.json_values import Json

__all__ = ["ExecutionPlan"]


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """Groups of stages, numbered from 1; the stages of a group run concurrently.

    Attributes:
        groups: The groups in order.
    """

    groups: tuple[tuple[Stage[Any, Any, Any], ...], ...]
    _places: Mapping[str, tuple[int, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places: dict[str, tuple[int, int]] = {}
        for number, group in enumerate(self.groups, start=1):
            for stage in group:
                places[stage.id] = (number, len(places) + 1)
        object.__setattr__(self, "_places", places)

    @property
    def stage_ids(self) -> tuple[str, ...]:
        """All stage ids, in definition order."""
        return tuple(self._places)

    def group_of(self, stage_id: str) -> int:
        """The number of the group that a stage belongs to; KeyError for an unknown id."""
        return self._places[stage_id][0]

    def stage_number(self, stage_id: str) -> int:
        """A stage's place in definition order, from 1; KeyError for an unknown id."""
        return self._places[stage_id][1]

    def stages_in(self, group: int) -> tuple[Stage[Any, Any, Any], ...]:
        """The stages of a group; empty for a number that no group has."""
        return self.groups[group - 1] if 1 <= group <= len(self.groups) else ()

    def next_group(self, group: int) -> int | None:
        """The number of the group after this one, or None after the last; 0 stands before the first."""
        return group + 1 if 0 <= group < len(self.groups) else None

    def previous_group(self, group: int) -> int | None:
        """The number of the group before this one, or None before the second."""
        return group - 1 if 2 <= group <= len(self.groups) else None

    def previous_stage_ids(self, stage_id: str) -> tuple[str, ...]:
        """The stages whose outputs a stage's input is made of; none for a stage of the first group."""
        return tuple(stage.id for stage in self.stages_in(self.group_of(stage_id) - 1))

    def stage_input(self, stage_id: str, *, run_input: Json, outputs: Mapping[str, Json]) -> Json:
        """What a stage is given: the run's input in the first group, else what the group before gave.

        Raises:
            StageOutputMissingError: If a stage of the group before has no output.
        """
        before = self.previous_group(self.group_of(stage_id))
        return run_input if before is None else self.group_output(before, outputs)

    def group_output(self, group: int, outputs: Mapping[str, Json]) -> Json:
        """What a group gives: its one stage's output, or a dict by stage id when it has several.

        Raises:
            StageOutputMissingError: If a stage of the group has no output.
        """
        stages = self.stages_in(group)
        for stage in stages:
            if stage.id not in outputs:
                raise StageOutputMissingError(stage.id, tuple(outputs))
        if len(stages) == 1:
            return outputs[stages[0].id]
        return {stage.id: outputs[stage.id] for stage in stages}

    def workflow_output(self, outputs: Mapping[str, Json]) -> Json:
        """What the run gives: the output of the last group.

        Raises:
            StageOutputMissingError: If a stage of the last group has no output.
        """
        return self.group_output(len(self.groups), outputs)
