"""Log lines: added once, kept exactly."""

from dataclasses import replace

import pytest

from stagewright.errors import RecordNotFoundError
from stagewright.ports import Persistence, RunReader
from stagewright.records import LogLevel, LogRecord
from stagewright_conformance.samples import LATER, ODD_JSON, ODD_TEXTS, a_log_line, a_run, a_stage, exactly
from stagewright_conformance.suite import PersistenceSuite

__all__ = ["LogSuite"]


class LogSuite(PersistenceSuite):
    """`LogStore`.

    Fixtures: those of `PersistenceSuite`; lines are read through `reader`.
    """

    async def _lines(self, reader: RunReader, run_id: str) -> tuple[LogRecord, ...]:
        return (await reader.list_logs(run_id, level=None, limit=100, cursor=None)).items

    async def test_a_line_comes_back_as_it_was_appended(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_logs`: every field is kept exactly."""
        run = a_run()
        await persistence.create_run(run)
        stage = a_stage(run.id)
        await persistence.create_stage(stage)
        bare = a_log_line(run.id)
        full = replace(
            a_log_line(run.id, level="ERROR", fields={"odd": ODD_JSON}, created_at=LATER),
            stage_record_id=stage.id,
            stage_id="price",
        )
        await persistence.append_logs([bare, full])
        lines = await self._lines(reader, run.id)
        assert lines == (bare, full)
        assert exactly(lines[1].fields) == exactly({"odd": ODD_JSON})

    @pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARN", "ERROR"])
    async def test_a_level_comes_back(
        self, persistence: Persistence, reader: RunReader, level: LogLevel
    ) -> None:
        """`LogRecord.level`: one of four."""
        run = a_run()
        await persistence.create_run(run)
        await persistence.append_logs([a_log_line(run.id, level=level)])
        assert [line.level for line in await self._lines(reader, run.id)] == [level]

    async def test_odd_text_comes_back_exactly(self, persistence: Persistence, reader: RunReader) -> None:
        """`LogRecord.message`: any text that every database can hold."""
        run = a_run()
        await persistence.create_run(run)
        lines = [a_log_line(run.id, id=f"{n}-{run.id}", message=text) for n, text in enumerate(ODD_TEXTS)]
        await persistence.append_logs(lines)
        assert {line.id: line.message for line in await self._lines(reader, run.id)} == {
            line.id: line.message for line in lines
        }

    async def test_a_line_whose_id_exists_is_skipped(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`append_logs`: a line whose id exists already is skipped, and the others are written."""
        run = a_run()
        await persistence.create_run(run)
        line, other = a_log_line(run.id), a_log_line(run.id, created_at=LATER)
        await persistence.append_logs([line])
        await persistence.append_logs(
            [replace(line, message="again"), other, replace(other, message="again")]
        )
        assert await self._lines(reader, run.id) == (line, other)

    async def test_nothing_is_appended_for_nothing(self, persistence: Persistence) -> None:
        """`append_logs`: no lines are no error."""
        await persistence.append_logs([])

    async def test_one_line_is_appended_as_one_of_many(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`create_log`: what `append_logs` does with that line alone; one whose id exists is skipped."""
        run = a_run()
        await persistence.create_run(run)
        line = a_log_line(run.id, level="WARN", fields={"odd": ODD_JSON})
        await persistence.create_log(line)
        await persistence.create_log(replace(line, message="another"))
        assert await self._lines(reader, run.id) == (line,)
        with pytest.raises(RecordNotFoundError):
            await persistence.create_log(a_log_line("no such run"))

    @pytest.mark.guarantee("stores.transactions-all-or-nothing")
    async def test_one_line_is_undone_with_its_transaction(
        self, persistence: Persistence, reader: RunReader
    ) -> None:
        """`create_log`: a line is part of its transaction."""
        run = a_run()
        await persistence.create_run(run)

        async def fail() -> None:
            async with persistence.transaction() as tx:
                await tx.create_log(a_log_line(run.id))
                raise LookupError

        with pytest.raises(LookupError):
            await fail()
        assert await self._lines(reader, run.id) == ()
