import json
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.definitions import (
    NotReady,
    Stage,
    StageContext,
    Workflow,
    define_stage,
    define_workflow,
    drift_between,
)


class Config(BaseModel):
    x: int = 0


async def check(state: object, ctx: StageContext[None]) -> NotReady:
    return NotReady()


def staged(id: str, *, input: object = None, output: object = None, **options: Any) -> Stage[Any, Any, Any]:
    given: Any = {"input": input, "output": output, **options}
    made: Stage[Any, Any, Any] = define_stage(id, lambda ctx: None, **given)
    return made


def built(*groups: list[Stage[Any, Any, Any]], input: object = None) -> Workflow:
    builder = define_workflow("w", input=input)
    for group in groups:
        builder = builder.parallel(*group)
    return builder.build()


def codes(pinned: Workflow, candidate: Workflow) -> list[tuple[str, str | None]]:
    stored = json.loads(json.dumps(pinned.snapshot()))
    return [(one.code, one.stage_id) for one in drift_between(stored, candidate.snapshot())]


A, B = staged("a"), staged("b")
PINNED = built([A], [B])


def test_the_same_structure_has_no_drift() -> None:
    assert codes(PINNED, built([A], [B])) == []


@pytest.mark.guarantee("definitions.drift-names-every-difference")
def test_every_kind_of_difference_is_named() -> None:
    assert codes(PINNED, built([A])) == [("STAGE_REMOVED", "b")]
    assert codes(PINNED, built([A], [B], [staged("c")])) == [("STAGE_ADDED", "c")]
    assert (
        codes(PINNED, built([A, B]))
        == [("EXECUTION_GROUP_CHANGED", "b"), ("WORKFLOW_SCHEMA_CHANGED", None)][::-1]
    )
    assert codes(PINNED, built([B], [A])) == [
        ("EXECUTION_GROUP_CHANGED", "a"),
        ("STAGE_ORDER_CHANGED", "a"),
        ("EXECUTION_GROUP_CHANGED", "b"),
        ("STAGE_ORDER_CHANGED", "b"),
    ]
    assert codes(PINNED, built([A], [staged("b", dependencies=["a"])])) == [("DEPENDENCIES_CHANGED", "b")]
    batch = staged("b", mode="async-batch", check_completion=check)
    assert codes(PINNED, built([A], [batch])) == [("STAGE_MODE_CHANGED", "b")]
    assert codes(PINNED, built([A], [staged("b", config=Config)])) == [("STAGE_SCHEMA_CHANGED", "b")]
    assert codes(PINNED, built([A], [B], input=int)) == [("WORKFLOW_SCHEMA_CHANGED", None)]


def test_a_difference_says_what_was_and_what_is() -> None:
    candidate = built([staged("a", output=int)], [staged("b", input=int), staged("c")])
    found = drift_between(PINNED.snapshot(), candidate.snapshot())
    assert [str(one) for one in found] == [
        "the workflow's output schema changed",
        "stage 'a' has another output schema",
        "stage 'b' has another input schema",
        "stage 'c' was added",
    ]
    assert (found[1].before, found[1].after) == ({"type": "null"}, {"type": "integer"})
