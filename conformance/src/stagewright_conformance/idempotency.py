"""Idempotency keys: taken by one, answered to the others."""

import asyncio
from datetime import datetime, timedelta

import pytest

from stagewright.json_values import Json
from stagewright.ports import Persistence
from stagewright.records import IdempotencyAnswer, KeyAcquired, KeyCompleted, KeyInProgress
from stagewright_conformance.samples import MOMENT, ODD_JSON, a_run, exactly
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["IdempotencySuite"]

_MINUTE = timedelta(minutes=1)


async def _acquire(
    persistence: Persistence,
    key: str = "k",
    *,
    fingerprint: str = "f",
    command: str = "run.create",
    now: datetime = MOMENT,
    stale_after: timedelta | None = None,
) -> IdempotencyAnswer:
    return await persistence.acquire_idempotency_key(
        key, command, fingerprint=fingerprint, now=now, stale_after=stale_after
    )


class IdempotencySuite(PersistenceSuite):
    """`IdempotencyStore`.

    Fixtures: those of `PersistenceSuite`; `competitor` asks for the same key.
    """

    async def test_a_key_is_taken_once(self, persistence: Persistence) -> None:
        """`acquire_idempotency_key`: take a key, or learn that somebody else holds it, and with what."""
        assert await _acquire(persistence, fingerprint="first") == KeyAcquired()
        assert await _acquire(persistence, fingerprint="second") == KeyInProgress("first")

    async def test_key_and_command_type_are_compared_together_and_letter_by_letter(
        self, persistence: Persistence
    ) -> None:
        """`IdempotencyStore`: (key, command type) is unique."""
        for key, command in [
            ("k", "run.create"),
            ("k", "run.cancel"),
            ("K", "run.create"),
            ("k ", "run.create"),
        ]:
            assert await _acquire(persistence, key, command=command) == KeyAcquired()

    @pytest.mark.parametrize("result", [None, ODD_JSON, [], "", 0, False, 1.0])
    async def test_a_completed_key_answers_its_result(self, persistence: Persistence, result: Json) -> None:
        """`complete_idempotency_key`: stores what the command answered; JSON null is a result."""
        await _acquire(persistence, fingerprint="first")
        await persistence.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result=result)
        answer = await _acquire(persistence, fingerprint="second")
        assert isinstance(answer, KeyCompleted)
        assert answer.fingerprint == "first"
        assert exactly(answer.result) == exactly(result)

    async def test_a_result_is_the_callers_own(self, persistence: Persistence) -> None:
        """`Persistence`: values that go in or come out are the caller's own."""
        result: list[Json] = [1]
        await _acquire(persistence)
        await persistence.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result=result)
        result.append(2)
        answer = await _acquire(persistence)
        assert isinstance(answer, KeyCompleted)
        assert isinstance(answer.result, list)
        answer.result.append(3)
        assert await _acquire(persistence) == KeyCompleted("f", [1])

    async def test_a_released_key_is_free(self, persistence: Persistence) -> None:
        """`release_idempotency_key`: forgets a key that has no result, of that command type alone."""
        await _acquire(persistence)
        await persistence.release_idempotency_key("k", "run.cancel", taken_at=MOMENT)
        assert await _acquire(persistence) == KeyInProgress("f")
        await persistence.release_idempotency_key("k", "run.create", taken_at=MOMENT)
        assert await _acquire(persistence) == KeyAcquired()

    async def test_a_completed_key_is_not_released(self, persistence: Persistence) -> None:
        """`release_idempotency_key`: a completed one stays; an unknown one is no error."""
        await _acquire(persistence)
        await persistence.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result="done")
        await persistence.release_idempotency_key("k", "run.create", taken_at=MOMENT)
        await persistence.release_idempotency_key("unknown", "run.create", taken_at=MOMENT)
        assert await _acquire(persistence) == KeyCompleted("f", "done")

    async def test_a_stale_key_is_taken_over_and_its_time_starts_anew(self, persistence: Persistence) -> None:
        """`acquire_idempotency_key`: a key that was taken `stale_after` ago or earlier is taken over."""
        await _acquire(persistence, fingerprint="first")
        just_before = MOMENT + _MINUTE - timedelta(microseconds=1)
        taken = await _acquire(persistence, now=just_before, stale_after=_MINUTE)
        assert taken == KeyInProgress("first")
        again = MOMENT + _MINUTE
        assert (
            await _acquire(persistence, fingerprint="second", now=again, stale_after=_MINUTE) == KeyAcquired()
        )
        later = again + _MINUTE / 2
        assert await _acquire(persistence, now=later, stale_after=_MINUTE) == KeyInProgress("second")

    async def test_who_has_lost_a_key_neither_gives_it_up_nor_completes_it(
        self, persistence: Persistence
    ) -> None:
        """`complete_idempotency_key`, `release_idempotency_key`: one that was taken over since is its new holder's."""
        await _acquire(persistence, fingerprint="first")
        later = MOMENT + _MINUTE
        await _acquire(persistence, fingerprint="second", now=later, stale_after=_MINUTE)
        await persistence.release_idempotency_key("k", "run.create", taken_at=MOMENT)
        assert await _acquire(persistence) == KeyInProgress("second")
        await persistence.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result="first's")
        assert await _acquire(persistence) == KeyInProgress("second")
        await persistence.complete_idempotency_key("k", "run.create", taken_at=later, result="second's")
        assert await _acquire(persistence) == KeyCompleted("second", "second's")

    async def test_without_a_threshold_no_key_is_ever_stale(self, persistence: Persistence) -> None:
        """`acquire_idempotency_key`: with None it never is taken over."""
        await _acquire(persistence)
        assert await _acquire(persistence, now=MOMENT + timedelta(days=3_000)) == KeyInProgress("f")

    async def test_a_completed_key_is_never_stale(self, persistence: Persistence) -> None:
        """`acquire_idempotency_key`: a completed key is never taken over."""
        await _acquire(persistence)
        await persistence.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result=None)
        answer = await _acquire(persistence, now=MOMENT + timedelta(days=3_000), stale_after=timedelta(0))
        assert answer == KeyCompleted("f", None)

    @pytest.mark.guarantee("stores.idempotency-one-holder")
    @pytest.mark.parametrize("stale", [False, True])
    async def test_of_many_callers_one_gets_the_key(
        self, persistence: Persistence, competitor: Persistence, scale: Scale, stale: bool
    ) -> None:
        """`acquire_idempotency_key`: a key is taken, or taken over, by exactly one of several callers."""
        if stale:
            await _acquire(persistence, fingerprint="first")
        stores = [persistence if n % 2 else competitor for n in range(scale.contenders)]
        calls = [
            _acquire(store, fingerprint=f"f{n}", now=MOMENT + 2 * _MINUTE, stale_after=_MINUTE)
            for n, store in enumerate(stores)
        ]
        answers = await scale.soon(asyncio.gather(*calls))
        assert answers.count(KeyAcquired()) == 1
        holder = KeyInProgress(f"f{answers.index(KeyAcquired())}")
        assert all(answer in (KeyAcquired(), holder) for answer in answers)

    @pytest.mark.parametrize(
        ("ending", "expected"),
        [
            ("result", KeyCompleted("f", "done")),
            ("no result", KeyInProgress("f")),
            ("rollback", KeyAcquired()),
        ],
    )
    @pytest.mark.guarantee("stores.idempotency-waits-for-the-holder")
    async def test_who_asks_for_a_key_of_an_open_transaction_waits_for_its_end(
        self,
        persistence: Persistence,
        competitor: Persistence,
        background: Background,
        scale: Scale,
        ending: str,
        expected: IdempotencyAnswer,
    ) -> None:
        """`acquire_idempotency_key`: another transaction waits, and no answer spoils it."""
        run = a_run()

        async def ask() -> IdempotencyAnswer:
            async with competitor.transaction() as tx:
                answer = await _acquire(tx, fingerprint="second")
                await tx.create_run(run)
                return answer

        asking: list[asyncio.Task[IdempotencyAnswer]] = []

        async def hold() -> None:
            async with persistence.transaction() as tx:
                assert await _acquire(tx) == KeyAcquired()
                asking.append(background.start(ask()))
                assert await scale.still_waits(asking[0])
                if ending == "result":
                    await tx.complete_idempotency_key("k", "run.create", taken_at=MOMENT, result="done")
                elif ending == "rollback":
                    raise LookupError

        if ending == "rollback":
            with pytest.raises(LookupError):
                await hold()
        else:
            await hold()
        assert await scale.soon(asking[0]) == expected
        assert await persistence.get_run(run.id) is not None
