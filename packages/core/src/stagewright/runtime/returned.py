"""Reading what a body returned."""

from typing import Any, Final, cast
from urllib.parse import quote

from stagewright.definitions import Schema, Stage, StageResult, Suspend
from stagewright.errors import Problem, SchemaMismatchError, ValueNotSerializableError
from stagewright.json_values import Json, require_json
from stagewright.ports import BodyReturned, BodySuspended

__all__ = ["read_returned"]

_LONGEST_NAME: Final = 300


def read_returned(stage: Stage[Any, Any, Any], returned: object) -> BodyReturned | BodySuspended:
    """Turn a body's return value into stored JSON.

    Raises:
        SchemaMismatchError: If it doesn't fit the stage's schema, or the stage may not suspend.
        ValueNotSerializableError: If it fits, and has no exact JSON form.
    """
    what = f"the output of stage {stage.id!r}"
    if isinstance(returned, Suspend):
        if stage.mode != "async-batch":
            message = 'Suspend is for stages with mode="async-batch", which have a check_completion'
            raise SchemaMismatchError(what, (Problem(path="$", message=message),))
        state = stage.state_schema.dump(returned.state, what=f"the suspended state of stage {stage.id!r}")
        return BodySuspended(state=state, poll_interval=returned.poll_interval, max_wait=returned.max_wait)
    if not isinstance(returned, StageResult):
        return BodyReturned(output=stage.output_schema.dump(returned, what=what))
    return BodyReturned(
        output=stage.output_schema.dump(returned.output, what=what),
        metrics=_metrics(stage, returned),
        artifacts={name: _artifact(stage, name, value) for name, value in returned.artifacts.items()},
    )


def _metrics(stage: Stage[Any, Any, Any], returned: StageResult[Any]) -> dict[str, Json]:
    metrics = dict(returned.metrics)
    require_json(metrics, what=f"the metrics of stage {stage.id!r}")
    return metrics


def _artifact(stage: Stage[Any, Any, Any], name: str, value: object) -> Json:
    what = f"artifact {name!r} of stage {stage.id!r}"
    if not isinstance(cast(object, name), str):
        raise ValueNotSerializableError(what, "$", "an artifact's name is text")
    require_json(name, what=what)
    if len(quote(name, safe="")) > _LONGEST_NAME:
        problem = (
            f"its name takes more than {_LONGEST_NAME} characters in the blob's key; give it a shorter one"
        )
        raise ValueNotSerializableError(what, "$", problem)
    plain = value is None or isinstance(value, bool | int | float | str | list | dict)
    return Schema.of(Any if plain else type(value)).dump(value, what=what)
