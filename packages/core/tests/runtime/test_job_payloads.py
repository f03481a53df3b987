"""Payloads as they go through queues: what is a claim check and what is not."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stagewright.memory import InMemoryBlobStore
from stagewright.records import NewJob
from stagewright.runtime.claim_check import encoded, put_spilled
from stagewright.runtime.job_payloads import claim_in, load_payload, payload_key, with_claim
from stagewright.runtime.keys import payloads_prefix, run_prefix, stage_prefix

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(TEXT | st.sampled_from(["spilled_payload", "key", "size"]), children, max_size=3)
    ),
    max_leaves=8,
)
IDS = st.text(min_size=1, max_size=20)


def a_job(config: Any, *, workflow_id: str = "flow", run_id: str = "run", stage_id: str = "s1") -> NewJob:
    payload = {"config": config}
    return NewJob(id="j", run_id=run_id, workflow_id=workflow_id, stage_id=stage_id, payload=payload)


@given(ANYTHING)
async def test_nothing_that_stands_below_the_engines_key_is_a_claim_check(config: Any) -> None:
    job = a_job(config)
    assert claim_in(job.payload) is None
    assert await load_payload(InMemoryBlobStore(), job.payload) is job.payload


@given(ANYTHING, IDS, IDS)
async def test_a_payload_comes_back_from_where_its_claim_check_says(
    config: Any, workflow_id: str, run_id: str
) -> None:
    blob_store = InMemoryBlobStore()
    job = a_job(config, workflow_id=workflow_id, run_id=run_id)
    data = encoded(job.payload)
    claim = await put_spilled(blob_store, payload_key(job, data), data)
    assert claim_in(with_claim(claim)) == claim
    assert await load_payload(blob_store, with_claim(claim)) == job.payload


@given(ANYTHING, ANYTHING)
def test_the_key_follows_from_the_content(first: Any, second: Any) -> None:
    data = [encoded(a_job(config).payload) for config in (first, second)]
    keys = [payload_key(a_job(config), bytes_) for config, bytes_ in zip((first, second), data, strict=True)]
    assert (keys[0] == keys[1]) is (data[0] == data[1])


@given(IDS, IDS, st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True))
def test_payloads_belong_to_their_run_and_to_the_prefix_of_no_stage(
    workflow_id: str, run_id: str, stage_id: str
) -> None:
    prefix = payloads_prefix(workflow_id, run_id)
    assert prefix.startswith(run_prefix(workflow_id, run_id))
    assert not prefix.startswith(stage_prefix(workflow_id, run_id, stage_id))
