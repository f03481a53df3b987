from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from stagewright.definitions import (
    NotReady,
    Schema,
    Stage,
    StageContext,
    Suspend,
    Workflow,
    define_stage,
    define_workflow,
    stage,
)
from stagewright.errors import DefinitionError, StageOutputMissingError, UnknownStageError


class Order(BaseModel):
    order_id: str
    amounts: list[float]


class Priced(BaseModel):
    total: float


class Shipped(BaseModel):
    tracking: str


class Decision(BaseModel):
    reserve: bool
    score: float


@stage("price")
async def price(ctx: StageContext[Order]) -> Priced:
    return Priced(total=sum(ctx.input.amounts))


@stage("reserve")
async def reserve(ctx: StageContext[Priced]) -> bool:
    return True


@stage("score")
async def score(ctx: StageContext[Priced]) -> float:
    return 0.5


@stage("ship", dependencies=(price, "score"))
async def ship(ctx: StageContext[Decision]) -> Shipped:
    return Shipped(tracking=str(ctx.require(price).total))


def problems_of(build: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        build()
    return caught.value.problems


def simple(id: str, *, input: object = None, output: object = None, **options: Any) -> Stage[Any, Any, Any]:
    return define_stage(id, lambda ctx: None, input=input, output=output, **options)


WORKFLOW = (
    define_workflow("order-processing", input=Order, name="Order processing")
    .pipe(price)
    .parallel(reserve, score)
    .pipe(ship)
    .build()
)


def test_a_workflow_has_groups_in_order() -> None:
    assert WORKFLOW.groups == ((price,), (reserve, score), (ship,))
    assert WORKFLOW.stage_ids == ("price", "reserve", "score", "ship")
    assert (WORKFLOW.id, WORKFLOW.name, WORKFLOW.description) == ("order-processing", "Order processing", "")
    assert WORKFLOW.input_schema == Schema.of(Order)
    assert WORKFLOW.output_schema == Schema.of(Shipped)
    assert WORKFLOW.stage("score") is score


def test_an_unknown_stage_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownStageError) as caught:
        WORKFLOW.stage("scor")
    assert caught.value.known == WORKFLOW.stage_ids
    assert "'score'" in str(caught.value)


def test_a_name_defaults_to_the_id() -> None:
    workflow = define_workflow("w", input=None).pipe(simple("a")).build()
    assert (workflow.name, workflow.description) == ("w", "")
    assert workflow.input_schema.takes_nothing


@pytest.mark.guarantee("definitions.parallel-outputs-by-stage-id")
def test_the_output_after_a_parallel_group_is_a_dict_by_stage_id() -> None:
    workflow = define_workflow("w", input=Priced).parallel(reserve, score).build()
    stored = workflow.output_schema.dump({"reserve": True, "score": 0.5}, what="the output")
    assert stored == {"reserve": True, "score": 0.5}
    assert workflow.output_schema.load(stored, what="the output") == {"reserve": True, "score": 0.5}


@pytest.mark.guarantee("definitions.workflows-immutable")
def test_builders_and_workflows_are_immutable() -> None:
    start = define_workflow("w", input=Order).pipe(price)
    left = start.pipe(simple("left"))
    built = left.build()
    right = start.parallel(reserve, score)
    left.pipe(simple("more"))
    assert start.build().stage_ids == ("price",)
    assert built.stage_ids == left.build().stage_ids == ("price", "left")
    assert right.build().stage_ids == ("price", "reserve", "score")
    with pytest.raises(FrozenInstanceError):
        built.id = "other"  # type: ignore[misc]  # wrong on purpose
    assert built != left.build()


def test_one_stage_can_stand_in_several_workflows() -> None:
    first = define_workflow("first", input=Order).pipe(price).build()
    second = define_workflow("second", input=Order).pipe(price).build()
    assert first.stage("price") is second.stage("price")


def test_a_stage_is_defined_and_added_in_one_call() -> None:
    class Local(BaseModel):
        x: int = 0

    async def body(ctx: StageContext[Order]) -> Local:
        return Local()

    async def check(state: str, ctx: StageContext[Local]) -> NotReady:
        return NotReady()

    async def batch(ctx: StageContext[Local]) -> int | Suspend:
        return 1

    workflow = (
        define_workflow("w", input=Order)
        .stage("first", body, name="First")
        .stage("second", batch, mode="async-batch", check_completion=check, timeout="5s")
        .stage("third", lambda ctx: 1, input=int, output=int)
        .build()
    )
    assert workflow.stage("first").name == "First"
    assert workflow.stage("first").output_schema == Schema.of(Local)
    assert workflow.stage("second").mode == "async-batch"


@pytest.mark.guarantee("definitions.all-problems-at-once")
def test_every_problem_of_a_build_is_listed_at_once() -> None:
    def unannotated(ctx):  # type: ignore[no-untyped-def]  # wrong on purpose
        return 1

    wrong: Any = unannotated
    problems = problems_of(
        define_workflow("bad id!", input=Order)
        .pipe(price)
        .pipe(price)
        .pipe(simple("a", dependencies=("later", "price")))
        .parallel()
        .pipe(wrong)
        .stage("b", unannotated)
        .version(" ")
        .build
    )
    text = "\n".join(problems)
    for words in (
        "workflow id 'bad id!'",
        "two stages with the id 'price'",
        "stage 'a' depends on 'later'",
        "earlier stages: 'price', 'price'",
        "a parallel group has no stage",
        ".pipe() was given unannotated, which is no Stage",
        "no return annotation",
        "the version ' ' is empty",
        "can't take the output of 'price'",
    ):
        assert words in text, words


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("latest", "the version 'latest' means whatever version a build has; give it another name"),
        ("v" * 256, "has 256 characters; at most 255 are kept"),
    ],
)
def test_a_version_that_no_run_can_be_pinned_to_is_refused(version: str, problem: str) -> None:
    (told,) = problems_of(define_workflow("w", input=Order).pipe(price).version(version).build)
    assert problem in told
    assert len(told) < 200


def test_the_longest_version_is_kept_as_it_is() -> None:
    workflow = define_workflow("w", input=Order).pipe(price).version("v" * 255).build()
    assert workflow.definition_version == "v" * 255


def test_an_empty_workflow_is_refused() -> None:
    assert "no stage" in problems_of(define_workflow("w", input=None).build)[0]


@pytest.mark.guarantee("definitions.stage-ids-unique")
def test_duplicate_ids_are_refused_everywhere() -> None:
    for builder in (
        define_workflow("w", input=None).pipe(simple("a")).pipe(simple("a")),
        define_workflow("w", input=None).parallel(simple("a"), simple("a")),
        define_workflow("w", input=None)
        .pipe(simple("a"))
        .stage("a", lambda ctx: None, input=None, output=None),
        define_workflow("w", input=None).pipe(simple("a")).parallel(simple("b"), simple("a")),
    ):
        assert problems_of(builder.build) == (
            "it has two stages with the id 'a'; give one of them another id",
        )


def test_a_sibling_is_no_earlier_stage() -> None:
    problems = problems_of(
        define_workflow("w", input=None).parallel(simple("a"), simple("b", dependencies=["a"])).build
    )
    assert "earlier stages: (none)" in problems[0]


def test_the_input_must_be_a_type() -> None:
    assert "its input" in problems_of(define_workflow("w", input=object()).pipe(simple("a")).build)[0]


@pytest.mark.parametrize("id", ["", "two words", "a/b", "ä", "a" * 101, 5])
def test_an_invalid_workflow_id_is_refused(id: Any) -> None:
    assert "workflow id" in problems_of(define_workflow(id, input=None).pipe(simple("a")).build)[0]


def test_a_type_that_never_gets_its_classes_is_refused_at_the_build() -> None:
    class Early(BaseModel):
        later: "Never"  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable]  # noqa: F821 - on purpose

    problems = problems_of(define_workflow("w", input=Early).pipe(simple("a", input=Early)).build)
    assert len(problems) == 2
    assert all("isn't defined" in problem for problem in problems)


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    total: float


class Aliased(BaseModel):
    amount: float = Field(alias="total")


class Textual(BaseModel):
    total: list[str]


class Optional(BaseModel):
    missing: str | None = None
    total: int


@pytest.mark.guarantee("definitions.provable-mismatch-refused")
@pytest.mark.parametrize(
    ("output", "input", "reason"),
    [
        (Priced, Shipped, "'tracking' is required and never given"),
        (Priced, Textual, "'total' takes a JSON array, and is given a JSON number"),
        (Priced, str, "takes a JSON string, and is given a JSON object"),
        (Priced, int, "is given a JSON object"),
        (int, Priced, "takes a JSON object, and is given a JSON number"),
        (list[int], Priced, "is given a JSON array"),
        (str, list[str], "takes a JSON array, and is given a JSON string"),
        (None, Priced, "is given a JSON null"),
    ],
)
def test_an_input_that_can_never_be_given_is_refused(output: object, input: object, reason: str) -> None:
    first, second = simple("first", output=output), simple("second", input=input)
    problems = problems_of(define_workflow("w", input=None).pipe(first).pipe(second).build)
    assert len(problems) == 1
    assert "stage 'second' can't take the output of 'first'" in problems[0]
    assert reason in problems[0]


@pytest.mark.parametrize(
    ("output", "input"),
    [
        (Priced, Priced),
        (Priced, Forbidding),
        (Priced, Aliased),
        (Priced, Optional),
        (Priced, dict[str, Any]),
        (Priced, Any),
        (Priced, None),
        (Priced, Priced | None),
        (Priced | None, Priced),
        (dict[str, Any], Priced),
        (Any, Priced),
        (int, float),
        (str, int),
        (int, int | str),
    ],
)
def test_an_input_that_may_be_given_is_left_to_the_run(output: object, input: object) -> None:
    first, second = simple("first", output=output), simple("second", input=input)
    assert define_workflow("w", input=None).pipe(first).pipe(second).build().stage_ids == ("first", "second")


def test_a_parallel_group_gives_its_ids() -> None:
    problems = problems_of(
        define_workflow("w", input=Priced).parallel(reserve, simple("other")).pipe(ship).build
    )
    assert any("'score' is required and never given" in problem for problem in problems)
    textual = simple("textual", input=str)
    problems = problems_of(define_workflow("w", input=Priced).parallel(reserve, score).pipe(textual).build)
    assert "can't take the output of 'reserve' and the output of 'score'" in problems[0]


def test_a_callers_json_may_hold_more_than_the_workflow_names() -> None:
    assert define_workflow("w", input=Priced).pipe(simple("a", input=Order)).build().stage_ids == ("a",)
    assert problems_of(define_workflow("w", input=Priced).pipe(simple("a", input=str)).build)


def test_the_plan_numbers_from_one() -> None:
    plan = WORKFLOW.plan
    assert [plan.group_of(id) for id in WORKFLOW.stage_ids] == [1, 2, 2, 3]
    assert [plan.stage_number(id) for id in WORKFLOW.stage_ids] == [1, 2, 3, 4]
    assert [plan.next_group(number) for number in (0, 1, 2, 3, 4)] == [1, 2, 3, None, None]
    assert [plan.previous_group(number) for number in (1, 2, 3, 4)] == [None, 1, 2, None]
    assert plan.stages_in(2) == (reserve, score)
    assert plan.stages_in(9) == plan.stages_in(0) == ()
    assert plan.previous_stage_ids("price") == ()
    assert plan.previous_stage_ids("ship") == ("reserve", "score")


def test_the_plan_forms_inputs_and_the_output() -> None:
    plan = WORKFLOW.plan
    outputs: dict[str, Any] = {"price": {"total": 1}, "reserve": False, "score": 0, "ship": {"tracking": ""}}
    assert plan.stage_input("price", run_input={"order_id": "1"}, outputs={}) == {"order_id": "1"}
    assert plan.stage_input("score", run_input=None, outputs=outputs) == {"total": 1}
    assert plan.stage_input("ship", run_input=None, outputs=outputs) == {"reserve": False, "score": 0}
    assert plan.workflow_output(outputs) == {"tracking": ""}
    with pytest.raises(StageOutputMissingError) as caught:
        plan.stage_input("ship", run_input=None, outputs={"reserve": None})
    assert caught.value.stage_id == "score"
    assert caught.value.available == ("reserve",)


def test_a_workflow_shows_its_shape() -> None:
    assert repr(WORKFLOW) == "<Workflow 'order-processing': price -> reserve+score -> ship>"
    assert isinstance(WORKFLOW, Workflow)
