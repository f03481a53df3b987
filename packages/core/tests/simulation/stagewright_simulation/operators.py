"""What people and other systems do to runs: create, signal, cancel, redrive, purge."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Final

from stagewright.commands import (
    CancelRun,
    Command,
    CreateRun,
    FromStage,
    LastFailure,
    PurgeRuns,
    RedriveRun,
    ReplayDeadLetters,
    SignalStep,
    Start,
)
from stagewright.errors import OutcomeUnknownError, StagewrightError, TransientError
from stagewright_simulation.bodies import PADDING
from stagewright_simulation.history import Answer
from stagewright_simulation.role import Role
from stagewright_simulation.scenario import Action

__all__ = ["bury", "operate"]

_TRIES: Final = 6


async def operate(role: Role) -> None:
    """Do one thing after the other; what a crash cut off is done again."""
    actions = role.world.actions_of(role)
    while role.progress < len(actions):
        action = actions[role.progress]
        await asyncio.sleep(max(0.0, action.at - role.world.loop.time()))
        await _act(role, action)
        role.progress += 1


async def bury(role: Role) -> None:
    """Purge all that has ended, until nothing is left."""
    kernel, later = role.kernel(), role.clock.now() + timedelta(days=2)
    while (await kernel.dispatch(PurgeRuns(later))).purged:
        continue
    role.is_done.set()


async def _act(role: Role, action: Action) -> None:
    world = role.world
    run_id = world.history.run_ids.get(action.run, "")
    if not run_id and action.kind not in ("create", "purge", "replay"):
        return
    token = f"signal {world.history.next('signals')}" if action.kind == "signal" else ""
    command = _command(role, action, run_id, token)
    kernel = role.kernel(world.version_of_operator)
    began = world.loop.time()
    result = await _answered(role, lambda: kernel.dispatch(command), is_safe=action.is_keyed)
    if action.kind == "create" and not isinstance(result, BaseException):
        run_id = result.run_id
        world.history.run_ids[action.run] = run_id
    told = f"{type(result).__name__}: {result}" if isinstance(result, BaseException) else str(result)
    world.history.tell(
        role.worker_id, f"{action.kind} {run_id or '-'} {action.stage} {action.step} -> {told}"
    )
    world.history.answers.append(
        Answer(action=action, run_id=run_id, result=result, token=token, began=began, ended=world.loop.time())
    )


async def _answered(role: Role, ask: Callable[[], Awaitable[Any]], *, is_safe: bool) -> Any:
    """The answer, or the error in its place. What may have taken effect is repeated only where that is safe."""
    error: BaseException | None = None
    for _ in range(_TRIES):
        try:
            return await ask()
        except (TransientError, ConnectionError) as failure:
            error = failure
        except OutcomeUnknownError as failure:
            error = failure
            if not is_safe:
                return error
        except StagewrightError as failure:
            return failure
        except Exception as failure:
            role.note(failure, "an answer to the operator")
            return failure
        await asyncio.sleep(2)
    return error


def _command(role: Role, action: Action, run_id: str, token: str) -> Command[Any]:
    name = f"action {role.progress} of {role.name}"
    key = name if action.is_keyed else None
    match action.kind:
        case "create":
            given = {"number": action.run, "pad": PADDING} if action.is_big else {"number": action.run}
            return CreateRun(action.workflow, given, idempotency_key=key, priority=action.priority)
        case "cancel":
            return CancelRun(run_id, reason=name)
        case "redrive":
            return RedriveRun(run_id, from_=LastFailure(), idempotency_key=key)
        case "redrive-start":
            return RedriveRun(run_id, from_=Start(), idempotency_key=key)
        case "redrive-latest":
            return RedriveRun(run_id, from_=Start(), definition_version="latest", idempotency_key=key)
        case "redrive-stage":
            return RedriveRun(run_id, from_=FromStage(action.stage), idempotency_key=key)
        case "signal":
            payload = {"token": token, "pad": PADDING} if action.is_big else {"token": token}
            return SignalStep(run_id, action.stage, action.step, payload=payload)
        case "purge":
            return PurgeRuns(older_than=role.clock.now() - timedelta(seconds=20))
        case "replay":
            return ReplayDeadLetters()
