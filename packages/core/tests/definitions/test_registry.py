from typing import Any, cast

import pytest

from stagewright.definitions import StageIds, Workflow, WorkflowRegistry, define_stage, define_workflow
from stagewright.errors import DefinitionError, UnknownStageError


def workflow(id: str, *stage_ids: str) -> Workflow:
    builder = define_workflow(id, input=None)
    for stage_id in stage_ids or ("only",):
        builder = builder.pipe(define_stage(stage_id, lambda ctx: None, input=None, output=None))
    return builder.build()


def test_a_registry_finds_and_lists_workflows() -> None:
    first, second = workflow("first"), workflow("second")
    registry = WorkflowRegistry([first, second, first])
    assert registry.get("first") is first
    assert registry.get("third") is None
    assert registry.list() == [first, second]
    registry.list().clear()
    assert len(registry.list()) == 2
    assert WorkflowRegistry().list() == []


@pytest.mark.guarantee("definitions.workflow-ids-unique")
def test_two_workflows_of_one_id_are_refused() -> None:
    with pytest.raises(DefinitionError, match="'first'"):
        WorkflowRegistry([workflow("first"), workflow("first")])


def test_a_builder_is_no_workflow() -> None:
    builder = cast("Any", define_workflow("w", input=None))
    with pytest.raises(DefinitionError, match="build"):
        WorkflowRegistry([builder])


@pytest.mark.guarantee("definitions.stage-ids-as-attributes")
def test_stage_ids_are_attributes() -> None:
    ids = StageIds(workflow("w", "price", "score-fraud", "ship_it"))
    assert (ids.price, ids.score_fraud, ids.SCORE_FRAUD, ids.ship_it) == (
        "price",
        "score-fraud",
        "score-fraud",
        "ship_it",
    )
    assert list(ids) == ["price", "score-fraud", "ship_it"]
    assert len(ids) == 3
    assert "score-fraud" in ids
    assert "score_fraud" not in ids
    assert "SCORE_FRAUD" in dir(ids)


def test_stage_ids_can_be_listed_by_hand() -> None:
    ids = StageIds("a", "b-c")
    assert ids.b_c == "b-c"
    assert repr(ids) == "StageIds('a', 'b-c')"


def test_an_unknown_id_is_refused_with_those_there_are() -> None:
    ids = StageIds("price", "ship")
    assert ids.check("ship") == "ship"
    with pytest.raises(UnknownStageError, match="'price', 'ship'"):
        ids.check("shop")
    with pytest.raises(AttributeError, match="'shop'"):
        _ = ids.shop


def test_stage_ids_must_be_ids_and_stay_apart() -> None:
    with pytest.raises(DefinitionError, match="'NOT'"):
        StageIds("NOT")
    with pytest.raises(DefinitionError, match="one attribute name"):
        StageIds("a-b", "a_b")
    with pytest.raises(DefinitionError, match="stage id"):
        StageIds(cast("Any", 5))


def test_stage_ids_are_fixed() -> None:
    ids = StageIds("a")
    with pytest.raises(AttributeError):
        cast("Any", ids).a = "b"
