from pathlib import Path

import pytest
from benchmarks.dramatiq_jobs import is_dramatiq_here
from benchmarks.redis_contenders import DramatiqContender, SlotContender
from benchmarks.redis_jobs import RedisSettings, measure_redis_jobs
from benchmarks.redis_queues import StagewrightJobs, WrongJobsError
from benchmarks.redis_report import as_json, as_markdown
from benchmarks.redis_rounds import JobEntry, run_job_rounds

TINY = RedisSettings(jobs=20, hand_overs=2, rounds=1, slots=4)


class Forgetful(StagewrightJobs):
    """Takes jobs, and ends none of them."""

    async def end(self, job: object) -> None:
        return None


async def test_every_contender_ends_every_job_and_hands_jobs_over(valkey_url: str, tmp_path: Path) -> None:
    told: list[str] = []
    report = await measure_redis_jobs(valkey_url, tmp_path, TINY, told.append)
    names = [(drain.entry.name, drain.entry.takes) for drain in report.drains]
    assert names[:4] == [
        ("redis-py's stream", "one by one"),
        ("Stagewright", "one by one"),
        ("redis-py's stream", "for all free slots"),
        ("Stagewright", "for all free slots"),
    ]
    assert len(names) == (6 if is_dramatiq_here() else 4)
    assert all(one.jobs == 20 and one.seconds > 0 for drain in report.drains for one in drain.rounds)
    assert [len(report.ratios_to_floor(drain)) for drain in report.drains[:4]] == [0, 1, 0, 1]
    assert all(len(figures) == 2 for one in report.hand_overs for figures in one.rounds)
    assert all(one.p50 > 0 for one in report.hand_overs)
    page = as_markdown(report)
    assert "| Stagewright | for all free slots |" in page
    assert "- server: valkey 9." in page
    assert "- redis: " in page
    assert len(as_json(report)["drains"]) == len(names)


async def test_who_leaves_jobs_behind_is_not_measured(valkey_url: str) -> None:
    entry = JobEntry("Forgetful", "one by one", SlotContender(Forgetful.open, slots=2, batched=False))
    with pytest.raises(WrongJobsError, match="5 are left"):
        await run_job_rounds([entry], valkey_url, jobs=50, rounds=1, tell=lambda _: None)


@pytest.mark.skipif(not is_dramatiq_here(), reason="Dramatiq is installed by its benchmark's session alone")
async def test_dramatiq_ends_every_job(valkey_url: str) -> None:
    entry = JobEntry("Dramatiq", "ahead", DramatiqContender(slots=2))
    (result,) = await run_job_rounds([entry], valkey_url, jobs=20, rounds=1, tell=lambda _: None)
    assert [one.jobs for one in result.rounds] == [20]
