from benchmarks.step_replay import measure_replay


async def test_steps_are_done_and_replayed(sqlite_url: str) -> None:
    costs = await measure_replay(sqlite_url, [3, 6])
    assert [cost.steps for cost in costs] == [3, 6]
    assert all(cost.first > 0 and cost.replay > 0 for cost in costs)
