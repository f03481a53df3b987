"""Commands come typed or as dicts; what is wrong with one is said field by field, and nothing is done."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stagewright import Kernel, StageContext, Status, Workflow
from stagewright.commands import (
    CancelRun,
    CancelRunResult,
    ClaimPendingRuns,
    ClaimPendingRunsResult,
    Command,
    CreateRun,
    CreateRunResult,
    ExecuteJob,
    FlushOutboxResult,
    RedriveRun,
    Start,
)
from stagewright.errors import InvalidCommandError, UnknownWorkflowError
from stagewright.memory import InMemoryPersistence

MakeKernel = Callable[..., Kernel]
CallNext = Callable[[Command[Any]], Any]


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


@pytest.fixture
def kernel(make_kernel: MakeKernel, flow_of: Callable[..., Workflow]) -> Kernel:
    return make_kernel(flow_of(echo))


async def test_a_typed_command_answers_its_own_result(kernel: Kernel) -> None:
    created = await kernel.dispatch(CreateRun("flow", {"x": 1}))
    assert type(created) is CreateRunResult
    assert created.status is Status.PENDING


@pytest.mark.guarantee("kernel.dicts-are-commands")
async def test_a_dict_does_what_the_typed_command_does(kernel: Kernel) -> None:
    created = await kernel.dispatch(
        {"type": "run.create", "workflow_id": "flow", "input": {"x": 1}, "priority": 7}
    )
    assert isinstance(created, CreateRunResult)
    run = await kernel.runs.get(created.run_id)
    assert run is not None
    assert (run.input, run.priority) == ({"x": 1}, 7)
    claimed = await kernel.dispatch({"type": "run.claimPending", "worker_id": "w"})
    assert isinstance(claimed, ClaimPendingRunsResult)
    assert isinstance(await kernel.dispatch({"type": "outbox.flush"}), FlushOutboxResult)
    assert await kernel.dispatch({"type": "run.cancel", "run_id": created.run_id}) == CancelRunResult(True)


async def test_a_dict_names_what_a_claimer_serves(kernel: Kernel, flow_of: Callable[..., Workflow]) -> None:
    await kernel.dispatch(CreateRun("flow"))
    version = flow_of(echo).definition_version
    serves = [{"workflow_id": "flow", "version": version}]
    claimed = await kernel.dispatch({"type": "run.claimPending", "worker_id": "w", "serves": serves})
    assert isinstance(claimed, ClaimPendingRunsResult)
    assert len(claimed.claimed) == 1


@pytest.mark.parametrize("given", ["run.unknown", "", "RUN.CREATE", None, 3, ["run.create"], {"a": 1}])
async def test_an_unknown_type_is_refused_naming_those_there_are(kernel: Kernel, given: object) -> None:
    with pytest.raises(InvalidCommandError) as caught:
        await kernel.dispatch({"type": given, "run_id": "r"})
    (problem,) = caught.value.problems
    assert problem.path == "$.type"
    assert "run.create" in problem.message


async def test_of_a_mistyped_type_the_nearest_is_named(kernel: Kernel) -> None:
    with pytest.raises(InvalidCommandError, match=r"did you mean 'run\.create'\?"):
        await kernel.dispatch({"type": "run.crate", "workflow_id": "flow"})


@pytest.mark.parametrize("given", [{}, {"run_id": "r"}])
async def test_a_dict_without_a_type_is_refused(kernel: Kernel, given: dict[str, object]) -> None:
    with pytest.raises(InvalidCommandError, match=r"\$\.type"):
        await kernel.dispatch(given)


@pytest.mark.parametrize("given", [None, "run.create", 7, [("type", "run.create")]])
async def test_what_is_no_command_at_all_is_refused(kernel: Kernel, given: Any) -> None:
    with pytest.raises(InvalidCommandError):
        await kernel.dispatch(given)


async def test_a_command_class_that_no_route_knows_is_refused(kernel: Kernel) -> None:
    class Unknown(Command[None]):
        type = "test.unknown"

    with pytest.raises(InvalidCommandError, match="test.unknown"):
        await kernel.dispatch(Unknown())


WRONG_FIELDS: list[tuple[dict[str, object], set[str]]] = [
    ({"type": "run.create"}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": ""}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": "x" * 256}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": 5}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": "a\x00b"}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": "a\ud800"}, {"$.workflow_id"}),
    ({"type": "run.create", "workflow_id": "flow", "priority": "5"}, {"$.priority"}),
    ({"type": "run.create", "workflow_id": "flow", "priority": 5.0}, {"$.priority"}),
    ({"type": "run.create", "workflow_id": "flow", "priority": True}, {"$.priority"}),
    ({"type": "run.create", "workflow_id": "flow", "idempotency_key": ""}, {"$.idempotency_key"}),
    ({"type": "run.create", "workflow_id": "flow", "idempotency_key": "k" * 256}, {"$.idempotency_key"}),
    ({"type": "run.create", "workflow_id": "flow", "config": [1]}, {"$.config"}),
    ({"type": "run.create", "workflow_id": "flow", "inputs": 1}, {"$.inputs"}),
    ({"type": "run.create", "workflow_id": "flow", "annotations": [{}]}, {"$.annotations[0].attributes"}),
    (
        {"type": "run.create", "priority": None, "config": None, "x": 1},
        {"$.workflow_id", "$.priority", "$.config", "$.x"},
    ),
    ({"type": "run.claimPending"}, {"$.worker_id"}),
    ({"type": "run.claimPending", "worker_id": "w", "max_claims": -1}, {"$.max_claims"}),
    ({"type": "run.claimPending", "worker_id": "w", "max_claims": "3"}, {"$.max_claims"}),
    ({"type": "job.claim", "worker_id": "", "limit": -1}, {"$.worker_id", "$.limit"}),
    ({"type": "run.transition"}, {"$.run_id"}),
    ({"type": "run.cancel", "run_id": "r", "reason": "nul\x00"}, {"$.reason"}),
    ({"type": "run.cancel", "run_id": "r", "why": "typo"}, {"$.why"}),
    ({"type": "outbox.flush", "max_events": 0}, {"$.max_events"}),
    ({"type": "job.execute"}, {"$.run_id", "$.workflow_id", "$.stage_id"}),
    (
        {"type": "job.execute", "run_id": "r", "workflow_id": "f", "stage_id": "s", "idempotency_key": ""},
        {"$.idempotency_key"},
    ),
    (
        {"type": "job.execute", "run_id": "r", "workflow_id": "f", "stage_id": "s", "job": {"job_id": "j"}},
        {"$.job.fence"},
    ),
]


@pytest.mark.guarantee("kernel.wrong-fields-are-named")
@pytest.mark.parametrize(("given", "paths"), WRONG_FIELDS)
async def test_every_wrong_field_of_a_dict_is_named_and_nothing_written(
    kernel: Kernel, contents: Callable[[], dict[str, object]], given: dict[str, object], paths: set[str]
) -> None:
    before = contents()
    with pytest.raises(InvalidCommandError) as caught:
        await kernel.dispatch(given)
    assert {problem.path for problem in caught.value.problems} == paths
    assert caught.value.command_type == given["type"]
    assert all(problem.message for problem in caught.value.problems)
    assert contents() == before


def _mistyped(kind: Callable[..., Any], *arguments: object, **fields: object) -> Any:
    return kind(*arguments, **fields)


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (_mistyped(CreateRun, 3), "$.workflow_id"),
        (_mistyped(CreateRun, "flow", idempotency_key=""), "$.idempotency_key"),
        (_mistyped(CreateRun, "flow", priority=None), "$.priority"),
        (_mistyped(CreateRun, "flow", annotations=7), "$.annotations"),
        (_mistyped(CancelRun, None), "$.run_id"),
        (_mistyped(ClaimPendingRuns, "w", serves="some"), "$.serves"),
        (_mistyped(ExecuteJob, "r", "f", "s", job="j"), "$.job"),
    ],
)
async def test_a_mistyped_command_is_refused_like_a_dict(
    kernel: Kernel, contents: Callable[[], dict[str, object]], command: Command[Any], path: str
) -> None:
    before = contents()
    with pytest.raises(InvalidCommandError) as caught:
        await kernel.dispatch(command)
    assert all(problem.path.startswith(path) for problem in caught.value.problems)
    assert contents() == before


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"type": "job.claim", "worker_id": "w", "serves": ["h"]}, "$.serves: 'h' is no ServedDefinition("),
        (
            {"type": "job.claim", "worker_id": "w", "serves": [{"workflow_id": "h"}]},
            "is no ServedDefinition(",
        ),
        (
            {"type": "job.claim", "worker_id": "w", "serves": 5},
            '$.serves: must be None, "all" or a list of Ser',
        ),
        (
            {"type": "run.reapStuck", "stuck_threshold": "soon"},
            "$.stuck_threshold: it is not a duration; write",
        ),
        ({"type": "run.redrive", "run_id": "r", "from": "start"}, "$.from: give Start()"),
        ({"type": "run.redrive", "run_id": "r", "from": "lastFailure"}, "$.from: give LastFailure()"),
        ({"type": "run.redrive", "run_id": "r", "from": 5}, "$.from: must be LastFailure(), Start() or From"),
        ({"type": "run.purge", "older_than": 30}, "$.older_than: 30 is no point in time; give an aware dat"),
    ],
)
async def test_what_is_wrong_is_said_in_the_words_of_the_commands(
    kernel: Kernel, given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidCommandError, match=re.escape(sentence)):
        await kernel.dispatch(given)


@pytest.mark.parametrize("place", [Start, "start"])
async def test_where_a_redrive_starts_is_an_object(kernel: Kernel, place: Any) -> None:
    with pytest.raises(InvalidCommandError, match=r"\$\.from_: give Start\(\)"):
        await kernel.dispatch(RedriveRun("r", from_=place))


async def test_an_abort_signal_can_not_come_in_a_dict(kernel: Kernel) -> None:
    given = {"type": "job.execute", "run_id": "r", "workflow_id": "flow", "stage_id": "s1", "abort": "now"}
    with pytest.raises(InvalidCommandError) as caught:
        await kernel.dispatch(given)
    assert [problem.path for problem in caught.value.problems] == ["$.abort"]


# Middleware


@pytest.mark.guarantee("kernel.middleware-wraps-every-dispatch")
async def test_middleware_wraps_in_order_the_first_outermost(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow]
) -> None:
    seen: list[str] = []

    def named(name: str) -> Callable[[Command[Any], CallNext], Any]:
        async def middleware(command: Command[Any], call_next: CallNext) -> Any:
            seen.append(f"{name} before {command.type}")
            result = await call_next(command)
            seen.append(f"{name} after {type(result).__name__}")
            return result

        return middleware

    kernel = make_kernel(flow_of(echo), middleware=[named("outer"), named("inner")])
    await kernel.dispatch({"type": "run.create", "workflow_id": "flow"})
    assert seen == [
        "outer before run.create",
        "inner before run.create",
        "inner after CreateRunResult",
        "outer after CreateRunResult",
    ]


async def test_middleware_may_answer_by_itself(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], contents: Callable[[], dict[str, object]]
) -> None:
    async def refuse(command: Command[Any], call_next: CallNext) -> Any:
        return CancelRunResult(False)

    kernel = make_kernel(flow_of(echo), middleware=[refuse])
    before = contents()
    assert await kernel.dispatch(CancelRun("anything")) == CancelRunResult(False)
    assert contents() == before


async def test_middleware_may_change_the_command(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow]
) -> None:
    async def urgent(command: Command[Any], call_next: CallNext) -> Any:
        return await call_next(replace(command, priority=9) if isinstance(command, CreateRun) else command)

    kernel = make_kernel(flow_of(echo), middleware=[urgent])
    run = await kernel.runs.get((await kernel.dispatch(CreateRun("flow"))).run_id)
    assert run is not None
    assert run.priority == 9


async def test_middleware_sees_the_error_and_runs_outside_the_transaction(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], persistence: InMemoryPersistence
) -> None:
    seen: list[object] = []

    async def watching(command: Command[Any], call_next: CallNext) -> Any:
        try:
            result = await call_next(command)
        except Exception as error:
            seen.append(type(error))
            raise
        seen.append(await persistence.get_run(result.run_id))
        return result

    kernel = make_kernel(flow_of(echo), middleware=[watching])
    created = await kernel.dispatch(CreateRun("flow"))
    with pytest.raises(Exception, match="nowhere"):
        await kernel.dispatch(CreateRun("nowhere"))
    assert [getattr(one, "id", one) for one in seen] == [created.run_id, UnknownWorkflowError]


async def test_a_middleware_error_reaches_the_caller_and_nothing_is_done(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow], contents: Callable[[], dict[str, object]]
) -> None:
    async def broken(command: Command[Any], call_next: CallNext) -> Any:
        raise LookupError("no tenant")

    kernel = make_kernel(flow_of(echo), middleware=[broken])
    before = contents()
    with pytest.raises(LookupError, match="no tenant"):
        await kernel.dispatch(CreateRun("flow"))
    assert contents() == before


async def test_an_invalid_command_does_not_reach_the_middleware(
    make_kernel: MakeKernel, flow_of: Callable[..., Workflow]
) -> None:
    async def never(command: Command[Any], call_next: CallNext) -> Any:
        pytest.fail("an invalid command came through")

    kernel = make_kernel(flow_of(echo), middleware=[never])
    with pytest.raises(InvalidCommandError):
        await kernel.dispatch({"type": "run.cancel"})
