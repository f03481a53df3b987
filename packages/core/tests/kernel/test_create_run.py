"""`run.create`: what is stored, what is refused, and that nothing is stored when anything is refused."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, Field

from stagewright import (
    Kernel,
    RetryPolicy,
    StageContext,
    Status,
    Workflow,
    WorkflowRegistry,
    define_workflow,
    stage,
)
from stagewright.annotations import Actor
from stagewright.commands import AnnotationInput, CreateRun
from stagewright.conventions import Trigger
from stagewright.errors import (
    DefinitionVersionConflictError,
    InvalidCommandError,
    InvalidConfigError,
    InvalidInputError,
    UnknownWorkflowError,
    ValueNotSerializableError,
)
from stagewright.json_values import Json
from stagewright.memory import InMemoryPersistence
from stagewright.records import AnnotationQuery, RunRecord
from stagewright.testing import FakeClock

MakeKernel = Callable[..., Kernel]
Contents = Callable[[], dict[str, object]]


class Order(BaseModel):
    order_id: str
    due: date
    amounts: list[float] = []


class PriceConfig(BaseModel):
    currency: str = "EUR"
    digits: int = Field(default=2, ge=0)


class ShipConfig(BaseModel):
    carrier: str


@stage("price")
async def price(ctx: StageContext[Order, PriceConfig]) -> float:
    return sum(ctx.input.amounts)


@stage("ship")
async def ship(ctx: StageContext[float, ShipConfig]) -> str:
    return ctx.config.carrier


@stage("pack", retry=RetryPolicy(max_attempts=2))
async def pack(ctx: StageContext[None]) -> int:
    return 1


ORDERS = define_workflow("orders", input=Order, name="Order processing").pipe(price).pipe(ship).build()
PACKING = define_workflow("packing", input=None).pipe(pack).build()
GIVEN: dict[str, Json] = {"order_id": "o-1", "due": "2025-02-03"}
CONFIG = {"ship": {"carrier": "DHL"}}


@pytest.fixture
def kernel(make_kernel: MakeKernel) -> Kernel:
    return make_kernel(ORDERS, PACKING)


async def created(kernel: Kernel, *arguments: Any, **fields: Any) -> RunRecord:
    result = await kernel.dispatch(CreateRun(*arguments, **fields))
    run = await kernel.runs.get(result.run_id)
    assert run is not None
    return run


async def test_a_new_run_is_pending_with_its_defaults(kernel: Kernel, clock: FakeClock) -> None:
    result = await kernel.dispatch(CreateRun("orders", GIVEN, config=CONFIG))
    run = await kernel.runs.get(result.run_id)
    assert result.status is Status.PENDING
    assert result.definition_version == ORDERS.definition_version
    assert run == RunRecord(
        id=result.run_id,
        workflow_id="orders",
        workflow_name="Order processing",
        status=Status.PENDING,
        input=GIVEN,
        config={"price": {"currency": "EUR", "digits": 2}, "ship": {"carrier": "DHL"}},
        priority=5,
        definition_version=ORDERS.definition_version,
        created_at=clock.now(),
        updated_at=clock.now(),
    )
    assert run is not None
    assert (run.version, run.redrive_count, run.started_at, run.duration) == (1, 0, None, None)


@pytest.mark.guarantee("kernel.input-is-stored-as-given")
async def test_the_input_is_stored_as_the_caller_gave_it(kernel: Kernel) -> None:
    given: dict[str, Any] = {
        "order_id": "o-1",
        "due": "2025-02-03",
        "amounts": [1, 2.5],
        "extra": {"kept": None},
    }
    run = await created(kernel, "orders", given, config=CONFIG)
    assert run.input == given
    assert isinstance(run.input, dict)
    amounts = run.input["amounts"]
    assert isinstance(amounts, list)
    assert [type(amount) for amount in amounts] == [int, float]


async def test_a_model_is_stored_in_its_json_form(kernel: Kernel) -> None:
    order = Order(order_id="o-1", due=date(2025, 2, 3), amounts=[1.5])
    run = await created(kernel, "orders", order, config=CONFIG)
    assert run.input == {"order_id": "o-1", "due": "2025-02-03", "amounts": [1.5]}


async def test_changing_the_given_values_later_changes_nothing(kernel: Kernel) -> None:
    given: dict[str, Any] = {**GIVEN, "amounts": [1.0]}
    config = {"ship": {"carrier": "DHL"}}
    run = await created(kernel, "orders", given, config=config)
    given["amounts"].append(2.0)
    config["ship"]["carrier"] = "UPS"
    again = await kernel.runs.get(run.id)
    assert again == run


@pytest.mark.parametrize("given", [None, {}])
async def test_a_workflow_without_input_takes_nothing(kernel: Kernel, given: object) -> None:
    assert (await created(kernel, "packing", given)).status is Status.PENDING


@pytest.mark.parametrize("given", [0, "", [], {"a": 1}, False])
async def test_a_workflow_without_input_refuses_any(kernel: Kernel, given: object) -> None:
    with pytest.raises(InvalidInputError):
        await kernel.dispatch(CreateRun("packing", given))


@pytest.mark.parametrize("priority", [-32_768, -1, 0, 32_767])
async def test_priorities_within_the_range_are_kept(kernel: Kernel, priority: int) -> None:
    assert (await created(kernel, "packing", priority=priority)).priority == priority


@pytest.mark.parametrize("priority", [-32_769, 32_768, 10**20])
async def test_priorities_outside_the_range_are_refused(kernel: Kernel, priority: int) -> None:
    with pytest.raises(InvalidCommandError, match=r"\$\.priority"):
        await kernel.dispatch(CreateRun("packing", priority=priority))


async def test_a_given_stage_config_is_completed_by_its_defaults(kernel: Kernel) -> None:
    run = await created(kernel, "orders", GIVEN, config={**CONFIG, "price": {"currency": "USD"}})
    assert run.config == {"price": {"currency": "USD", "digits": 2}, "ship": {"carrier": "DHL"}}


async def test_a_config_object_counts_like_a_mapping(kernel: Kernel) -> None:
    run = await created(kernel, "orders", GIVEN, config={**CONFIG, "price": PriceConfig(digits=0)})
    assert run.config["price"] == {"currency": "EUR", "digits": 0}


# Refusals


async def refused(
    kernel: Kernel, contents: Contents, kind: type[Exception], *arguments: Any, **fields: Any
) -> Any:
    before = contents()
    with pytest.raises(kind) as caught:
        await kernel.dispatch(CreateRun(*arguments, **fields))
    assert contents() == before
    return caught.value


async def test_an_unknown_workflow_is_refused_naming_those_there_are(
    kernel: Kernel, contents: Contents
) -> None:
    error = await refused(kernel, contents, UnknownWorkflowError, "order")
    assert error.known == ("orders", "packing")


async def test_a_registry_that_can_not_list_is_asked_all_the_same(
    make_kernel: MakeKernel, contents: Contents
) -> None:
    class Registry:
        def get(self, id: str, /) -> Workflow | None:
            return PACKING if id == "packing" else None

    kernel = make_kernel(registry=Registry())
    assert (await created(kernel, "packing")).workflow_id == "packing"
    error = await refused(kernel, contents, UnknownWorkflowError, "orders")
    assert error.known is None


async def test_all_that_is_wrong_with_the_input_is_said_at_once(kernel: Kernel, contents: Contents) -> None:
    given = {"due": "soon", "amounts": [1, "x"]}
    error = await refused(kernel, contents, InvalidInputError, "orders", given, config=CONFIG)
    assert {problem.path for problem in error.problems} == {"$.order_id", "$.due", "$.amounts[1]"}
    assert "orders" in str(error)


async def test_all_that_is_wrong_with_the_config_is_said_at_once(kernel: Kernel, contents: Contents) -> None:
    config = {"price": {"digits": -1}, "shop": {}, "ship": {}}
    error = await refused(kernel, contents, InvalidConfigError, "orders", GIVEN, config=config)
    assert {problem.path for problem in error.problems} == {"$.price.digits", "$.shop", "$.ship.carrier"}


@pytest.mark.parametrize(
    "config", [{"ship": None}, {"ship": 1}, {"ship": {"carrier": object()}}, {"pack": {"x": 1}}, {1: {}}]
)
async def test_odd_configs_are_refused(kernel: Kernel, contents: Contents, config: Any) -> None:
    workflow = "packing" if "pack" in config else "orders"
    given = None if workflow == "packing" else GIVEN
    with pytest.raises((InvalidConfigError, InvalidCommandError)):
        await kernel.dispatch(CreateRun(workflow, given, config=config))


# Definitions


@pytest.mark.guarantee("kernel.runs-are-pinned")
async def test_runs_share_one_stored_definition_and_are_pinned_to_it(
    kernel: Kernel, persistence: InMemoryPersistence, contents: Contents
) -> None:
    first, second = await created(kernel, "packing"), await created(kernel, "packing")
    assert first.definition_version == second.definition_version == PACKING.definition_version
    stored = await persistence.get_definition("packing", PACKING.definition_version)
    assert stored is not None
    assert (stored.structure_hash, stored.snapshot) == (PACKING.structure_hash, PACKING.snapshot())
    assert len(contents()["definitions"]) == 1  # type: ignore[arg-type]  # a table is a dict of its rows


async def test_a_declared_version_can_not_be_used_for_another_structure(
    make_kernel: MakeKernel, contents: Contents
) -> None:
    older = define_workflow("flow", input=None).pipe(pack).version("1").build()
    newer = define_workflow("flow", input=Order).pipe(price).version("1").build()
    await make_kernel(older).dispatch(CreateRun("flow"))
    error = await refused(make_kernel(newer), contents, DefinitionVersionConflictError, "flow", GIVEN)
    assert (error.workflow_id, error.version) == ("flow", "1")
    assert error.stored_structure_hash == older.structure_hash
    assert error.current_structure_hash == newer.structure_hash
    await make_kernel(older).dispatch(CreateRun("flow"))


async def test_the_registry_is_asked_anew_for_every_command(make_kernel: MakeKernel) -> None:
    workflows: dict[str, Workflow] = {}
    kernel = make_kernel(registry=workflows)
    with pytest.raises(UnknownWorkflowError):
        await kernel.dispatch(CreateRun("packing"))
    workflows["packing"] = PACKING
    assert (await created(kernel, "packing")).workflow_id == "packing"
    assert kernel.served_definitions() is None
    served = make_kernel(registry=WorkflowRegistry([PACKING])).served_definitions()
    assert served is not None
    assert [(one.workflow_id, one.version) for one in served] == [("packing", PACKING.definition_version)]


# Annotations


async def test_each_attribute_becomes_a_row_of_the_run(
    kernel: Kernel, persistence: InMemoryPersistence, clock: FakeClock
) -> None:
    actor = Actor(kind="user", id="u-1", version="2")
    given = AnnotationInput(
        attributes={"trigger.source": "api", "n": 0, "no": None}, actor=actor, payload={"p": [1]}
    )
    run = await created(kernel, "packing", annotations=[given])
    rows = await persistence.list_annotations(run.id, AnnotationQuery())
    assert [(row.key, row.value) for row in rows] == [("trigger.source", "api"), ("n", 0)]
    for row in rows:
        assert (row.scope, row.scope_id, row.stage_record_id, row.attempt) == ("run", None, None, 0)
        assert (row.actor, row.payload, row.created_at) == (actor, {"p": [1]}, clock.now())


async def test_a_typed_key_is_kept_by_its_name(kernel: Kernel, persistence: InMemoryPersistence) -> None:
    run = await created(kernel, "packing", annotations=[AnnotationInput(attributes={Trigger.SOURCE: "api"})])
    (row,) = await persistence.list_annotations(run.id, AnnotationQuery())
    assert (row.key, row.value) == ("trigger.source", "api")


@pytest.mark.guarantee("events.annotations-tell-when-asked")
async def test_annotations_tell_only_when_asked_and_after_the_run(kernel: Kernel) -> None:
    quiet = AnnotationInput(attributes={"quiet": 1})
    loud = AnnotationInput(
        attributes={"a": 1, "b": None, "c": [True]}, actor=Actor(kind="user", id="u"), emit_event=True
    )
    run = await created(kernel, "packing", annotations=[quiet, loud])
    events = await kernel.runs.events(run.id)
    assert [event.type for event in events] == [
        "workflow:created",
        "annotation:created",
        "annotation:created",
    ]
    assert [event.payload["key"] for event in events[1:]] == ["a", "c"]
    assert events[2].payload["value"] == [True]
    assert (events[1].payload["scope"], events[1].payload["actor_id"]) == ("run", "u")


async def test_a_repeated_annotation_key_is_written_and_told_once(
    kernel: Kernel, persistence: InMemoryPersistence
) -> None:
    one = AnnotationInput(attributes={"k": "first"}, idempotency_key="same", emit_event=True)
    two = AnnotationInput(attributes={"k": "second", "other": 2}, idempotency_key="same", emit_event=True)
    run = await created(kernel, "packing", annotations=[one, two])
    rows = await persistence.list_annotations(run.id, AnnotationQuery())
    assert [(row.key, row.value) for row in rows] == [("k", "first"), ("other", 2)]
    events = await kernel.runs.events(run.id)
    assert [event.payload.get("value") for event in events] == [None, "first", 2]


@pytest.mark.parametrize(
    "annotation",
    [
        AnnotationInput(attributes={"": 1}),
        AnnotationInput(attributes={"nul\x00": 1}),
        AnnotationInput(attributes={"k": float("nan")}),
        AnnotationInput(attributes={"k": "\ud800"}),
        AnnotationInput(attributes={"k": {"deep": object()}}),  # type: ignore[dict-item]  # on purpose
        AnnotationInput(attributes={3: 1}),
        AnnotationInput(attributes={"k": 1}, payload={"x": {1, 2}}),  # type: ignore[dict-item]  # on purpose
        AnnotationInput(attributes={"k": 1}, actor=Actor(kind="user", id="nul\x00")),
        AnnotationInput(attributes={"k": 1}, idempotency_key="nul\x00"),
    ],
)
async def test_an_annotation_that_can_not_be_stored_takes_the_run_along(
    kernel: Kernel, contents: Contents, annotation: AnnotationInput
) -> None:
    before = contents()
    with pytest.raises((ValueNotSerializableError, InvalidCommandError)):
        await kernel.dispatch(CreateRun("packing", annotations=[annotation]))
    assert contents() == before


@pytest.mark.parametrize(
    "annotations", [[], [AnnotationInput(attributes={})], [AnnotationInput(attributes={"k": None})]]
)
async def test_no_values_are_no_rows(
    kernel: Kernel, persistence: InMemoryPersistence, annotations: list[AnnotationInput]
) -> None:
    run = await created(kernel, "packing", annotations=annotations)
    assert await persistence.list_annotations(run.id, AnnotationQuery()) == []
