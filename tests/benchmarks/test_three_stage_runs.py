import json
from pathlib import Path

import pytest
from benchmarks.contender import Contender
from benchmarks.draining import WrongRowsError, drain
from benchmarks.stagewright_runs import StagewrightRuns, open_stagewright
from benchmarks.three_stages import main

TINY = ["--runs=6", "--sqlite-runs=3", "--rounds=2", "--slots=2"]


# The fixture isn't used for its server, which isn't durable, but for what a missing one means.
@pytest.mark.usefixtures("postgres_url")
def test_the_benchmark_measures_every_entry_and_tells_it_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*TINY, f"--json={tmp_path / 'made' / 'figures.json'}"])
    table = capsys.readouterr().out
    told = json.loads((tmp_path / "made" / "figures.json").read_text(encoding="utf-8"))
    assert [result["batched"] for result in told["results"]] == [False] * 3 + [True] * 3
    for result in told["results"]:
        assert f"| {result['name']} |" in table
        assert [one["runs"] for one in result["rounds"]] == [3 if "SQLite" in result["name"] else 6] * 2
        assert result["runs_per_second"] > 0
        assert result["client_cpu_ms_per_stage"] > 0
        assert 0 < result["commits_per_run"] <= result["statements_per_run"]
    held = [result for result in told["results"] if result["floor"]]
    assert [len(result["ratios"]) for result in held] == [2, 2]
    assert all(result["ratio_to_floor"] > 0 for result in held)
    assert told["settings"] == {"runs": 6, "sqlite_runs": 3, "rounds": 2, "slots": 2}
    assert {"processors", "postgresql", "sqlalchemy"} <= told["machine"].keys()
    assert "- postgresql: " in table


async def test_a_contender_that_leaves_rows_out_is_no_measure_of_anything(tmp_path: Path) -> None:
    class Forgetful(StagewrightRuns):
        async def execute(self, job: object) -> bool:
            ended = await super().execute(job)
            self.ended = getattr(self, "ended", 0) + ended
            if self.ended == 2:
                await self.tables.clear()
            return ended

    async with open_stagewright(f"sqlite:///{tmp_path / 'engine.db'}") as engine:
        sound: Contender = engine
        assert (await drain(sound, runs=2, slots=2, batched=False)).runs == 2
        forgetful = Forgetful(engine.kernel, engine.tables)
        with pytest.raises(WrongRowsError, match="instead of"):
            await drain(forgetful, runs=2, slots=1, batched=True)
