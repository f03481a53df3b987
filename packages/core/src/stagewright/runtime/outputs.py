"""The outputs of earlier stages, read as their declared types when a body asks for them."""

from collections.abc import Iterator, Mapping
from typing import Any

from stagewright.definitions import StageReference, Workflow
from stagewright.errors import StageOutputMissingError
from stagewright.json_values import Json

__all__ = ["EarlierOutputs"]


class EarlierOutputs(Mapping[str, Any]):
    """Outputs by stage id; each is parsed once, when it is first asked for.

    Args:
        workflow: The workflow, which knows the types.
        stored: The outputs as JSON.
    """

    def __init__(self, workflow: Workflow, stored: Mapping[str, Json]) -> None:
        self._workflow = workflow
        self._stored = stored
        self._parsed: dict[str, Any] = {}

    def __getitem__(self, stage_id: str) -> Any:
        if stage_id not in self._parsed:
            stored = self._stored[stage_id]
            schema = self._workflow.stage(stage_id).output_schema
            self._parsed[stage_id] = schema.load(stored, what=f"the output of stage {stage_id!r}")
        return self._parsed[stage_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def require(self, stage: StageReference[Any] | str) -> Any:
        """The output of a stage.

        Raises:
            StageOutputMissingError: If it has none, naming the stages that have one.
        """
        stage_id = stage if isinstance(stage, str) else stage.id
        if stage_id not in self._stored:
            raise StageOutputMissingError(stage_id, tuple(self._stored))
        return self[stage_id]

    def optional(self, stage: StageReference[Any] | str) -> Any:
        """The output of a stage, or None when it has none."""
        return self.get(stage if isinstance(stage, str) else stage.id)
