"""The settings of fairness, and the group that a job is of."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from stagewright.errors import InvalidSettingError
from stagewright.json_values import Json
from stagewright.records import Fairness, NewJob, group_of

FAIRNESS = Fairness(max_concurrent_per_group=2, group_by="config.tenantId")


def group(fairness: Fairness | None = FAIRNESS, *, key: str | None = None, **payload: Json) -> str | None:
    job = NewJob(id="j", run_id="r", workflow_id="w", stage_id="s", payload=payload, group_key=key)
    return group_of(job, fairness)


@pytest.mark.parametrize("cap", [0, -1, 1.0, 2.5, "2", True, None, 10**9 + 1, 10**30])
def test_a_cap_that_is_none_is_refused(cap: Any) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        Fairness(max_concurrent_per_group=cap)
    assert (refused.value.setting, refused.value.value) == ("max_concurrent_per_group", cap)
    assert str(refused.value).startswith(f"max_concurrent_per_group={cap!r} must be a whole number of jobs")


@pytest.mark.parametrize("path", ["", ".", "a.", ".a", "a..b", 7, ["a"]])
def test_a_path_with_an_empty_name_is_refused(path: Any) -> None:
    with pytest.raises(InvalidSettingError) as refused:
        Fairness(max_concurrent_per_group=1, group_by=path)
    assert (refused.value.setting, refused.value.value) == ("group_by", path)
    assert "'config.tenantId'" in str(refused.value)


def test_there_is_no_cap_by_default_and_nothing_can_be_changed() -> None:
    with pytest.raises(TypeError, match="max_concurrent_per_group"):
        Fairness()  # type: ignore[call-arg] # what is shown here
    with pytest.raises(FrozenInstanceError):
        FAIRNESS.group_by = "x"  # type: ignore[misc] # what is shown here
    assert Fairness(max_concurrent_per_group=1).group_by is None


def test_a_group_is_a_text_that_every_store_keeps() -> None:
    values: list[Json] = ["a", "", 7, 1.5, True, [1, "ä"], {"b": 1, "a": None}]
    assert [group(config={"tenantId": value}) for value in values] == [
        "a",
        '""',
        "7",
        "1.5",
        "true",
        '[1, "ä"]',
        '{"a": null, "b": 1}',
    ]
    odd_values: list[Json] = ["x" * 201, "\0", "\udcff", ["x" * 200]]
    for odd in odd_values:
        found = group(config={"tenantId": odd})
        assert found is not None
        assert found.startswith("sha256:")
        assert group(key=found) == found
    assert group(config={"tenantId": "x" * 200}) == "x" * 200


def test_a_key_counts_also_without_fairness_and_a_payload_only_with_it() -> None:
    assert group(None, key="k", config={"tenantId": "a"}) == "k"
    assert group(None, config={"tenantId": "a"}) is None
    assert group(key="k", config={"tenantId": "a"}) == "k"
    assert group(config={"tenantId": None}) is group(config=["tenantId"]) is group() is None
