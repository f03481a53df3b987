"""Durable steps in an SQL database."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Delete, Executable, Select, Text, bindparam, delete, select

from stagewright.errors import DuplicateRecordError
from stagewright.records import StepExpectation, StepOwner, StepPatch, StepRecord, set_fields
from stagewright_persistence_sqlalchemy.connection import Connection
from stagewright_persistence_sqlalchemy.rows import Row, column_values, step_of
from stagewright_persistence_sqlalchemy.statements.paths import of_met_rows
from stagewright_persistence_sqlalchemy.statements.reads import numbered
from stagewright_persistence_sqlalchemy.statements.writes_at_once import insert_step
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables
from stagewright_persistence_sqlalchemy.taking import Taking, taking_matching
from stagewright_persistence_sqlalchemy.transaction import Transaction

__all__ = ["SqlAlchemyStepLedger"]

_TRIES: Final = 3


class SqlAlchemyStepLedger(Connection):
    """A `StepLedger`, which takes part in transactions of a persistence over the same database."""

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        """The step, or None."""
        found = await self._fetch(
            _one(self._tables), {"stage_record_id": stage_record_id, "step_id": step_id}
        )
        return step_of(found[0]) if found else None

    async def list(self, stage_record_id: str) -> list[StepRecord]:
        """All steps of a stage record, by `seq`, then by id."""
        return [
            step_of(row)
            for row in await self._fetch(_all(self._tables), {"stage_record_id": stage_record_id})
        ]

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        """Insert a step if its stage record has none of that id."""
        values = _columns({name: getattr(record, name) for name in record.__dataclass_fields__})
        key = {"stage_record_id": record.stage_record_id, "step_id": record.step_id}
        async with self._writing() as tx:
            for _ in range(_TRIES):
                if await self._insert(tx, values):
                    return True, record
                standing = await tx.fetch(_one(self._tables), key)
                if standing:
                    return False, step_of(standing[0])
                # Somebody has deleted between the two what stood in the way.
        raise DuplicateRecordError("step", record.id)

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        """Change a step if it is as expected, atomically."""
        changes = _columns(set_fields(patch))
        taking = _taking(self._tables, tuple(changes), of_attempt=expectation.attempt is not None)
        parameters = {f"new_{name}": value for name, value in changes.items()}
        parameters |= {"of_id": record_id, "of_status": expectation.status, "of_attempt": expectation.attempt}
        async with self._writing() as tx:
            if self._database.kind.returns_changes:
                changed = await self._write(tx, taking.at_once, parameters)
            else:
                changed = await tx.take(taking, parameters)
            if changed:
                return True, step_of(changed[0])
            current = await tx.fetch(_by_id(self._tables), {"id": record_id})
            return False, step_of(current[0]) if current else None

    async def clear(self, stage_record_id: str) -> None:
        """Delete all steps of a stage record."""
        await self.clear_except(stage_record_id, ())

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        """Delete the steps of a stage record but for those in `keep`."""
        kept: dict[str, Any] = {f"item_{number}": step_id for number, step_id in enumerate(sorted(set(keep)))}
        named = kept | {"stage_record_id": stage_record_id}
        async with self._writing() as tx:
            if not self._database.kind.locks_entries:
                await tx.execute(_clear_except(self._tables, len(kept)), named)
                return
            # One by one by their ids, so that nothing beside them is locked.
            for row in await tx.fetch(_ids_except(self._tables, len(kept)), named):
                await tx.execute(_delete(self._tables), {"of_id": row["id"]})

    async def _insert(self, tx: Transaction, values: Mapping[str, Any]) -> bool:
        statement = insert_step(self._tables, self._database.kind)
        if self._database.kind.returns_changes:
            return bool(await self._write(tx, statement, values))
        return bool(await tx.execute(statement, values))

    async def _write(
        self, tx: Transaction, statement: Executable, parameters: Mapping[str, Any]
    ) -> Sequence[Row]:
        """Send what changes one row, or nothing: alone in a transaction of its own, where it isn't inside another."""
        if self._transaction is None:
            return await tx.finish_with(statement, parameters)
        return await tx.fetch(statement, parameters)


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:  # Any: a record's fields have many types
    columns = column_values(values)
    if "owner" in columns:
        owner: StepOwner | None = columns.pop("owner")
        columns["owner_job_id"] = None if owner is None else owner.job_id
        columns["owner_deliveries"] = None if owner is None else owner.deliveries
    return columns


@for_tables(maxsize=1)
def _one(tables: Tables) -> Select[Any]:
    steps = tables.steps.c
    return select(tables.steps).where(
        steps.stage_record_id == bindparam("stage_record_id", type_=Text()),
        steps.step_id == bindparam("step_id", type_=Text()),
    )


@for_tables(maxsize=64)
def _taking(tables: Tables, names: tuple[str, ...], *, of_attempt: bool) -> Taking:
    """Changing these columns of a step that is as expected."""
    steps = tables.steps.c
    expected = ("id", "status", "attempt") if of_attempt else ("id", "status")
    wanted = [steps[name] == bindparam(f"of_{name}", type_=steps[name].type) for name in expected]
    changes = [(steps[name], bindparam(f"new_{name}", type_=steps[name].type)) for name in names]
    return taking_matching(wanted, steps.id, changes, list(steps))


@for_tables(maxsize=1)
def _by_id(tables: Tables) -> Select[Any]:
    return of_met_rows(select(tables.steps).where(tables.steps.c.id == bindparam("id", type_=Text())))


@for_tables(maxsize=1)
def _all(tables: Tables) -> Select[Any]:
    steps = tables.steps.c
    return (
        select(tables.steps)
        .where(steps.stage_record_id == bindparam("stage_record_id", type_=Text()))
        .order_by(steps.seq, steps.id)
    )


@for_tables(maxsize=64)
def _clear_except(tables: Tables, count: int) -> Delete:
    return delete(tables.steps).where(*_except(tables, count))


@for_tables(maxsize=64)
def _ids_except(tables: Tables, count: int) -> Select[Any]:
    return select(tables.steps.c.id).where(*_except(tables, count))


def _except(tables: Tables, count: int) -> Sequence[ColumnElement[bool]]:
    steps = tables.steps.c
    of_stage = steps.stage_record_id == bindparam("stage_record_id", type_=Text())
    return (of_stage, steps.step_id.not_in(numbered(count))) if count else (of_stage,)


@for_tables(maxsize=1)
def _delete(tables: Tables) -> Delete:
    return delete(tables.steps).where(tables.steps.c.id == bindparam("of_id", type_=Text()))
