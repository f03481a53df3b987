"""The agreed annotation keys: their names are stored data, and stay what they are."""

from typing import Any

import pytest

from stagewright.annotations import TypedKey
from stagewright.conventions import Approval, Decision, Revision, Trigger, typed_key
from stagewright.errors import DefinitionError

PINNED = {
    Trigger: {
        "SOURCE": "trigger.source",
        "PARENT_RUN_ID": "trigger.parent_run_id",
        "REASON": "trigger.reason",
        "ACTOR_KIND": "trigger.actor.kind",
        "ACTOR_ID": "trigger.actor.id",
    },
    Decision: {
        "OUTCOME": "decision.outcome",
        "RATIONALE": "decision.rationale",
        "CONFIDENCE": "decision.confidence",
        "ALTERNATIVES": "decision.alternatives",
        "USED_FALLBACK": "decision.used_fallback",
    },
    Approval: {
        "APPROVERS": "approval.approvers",
        "TIMESTAMP": "approval.timestamp",
        "POLICY_VERSION": "approval.policy.version",
    },
    Revision: {"PREVIOUS_RUN_ID": "revision.previous_run_id", "REASON": "revision.reason"},
}


@pytest.mark.guarantee("definitions.annotation-keys-are-pinned")
@pytest.mark.parametrize("group", PINNED, ids=lambda group: group.__name__)
def test_the_names_of_the_agreed_keys_are_pinned(group: Any) -> None:
    keys = {name: value for name, value in vars(group).items() if isinstance(value, TypedKey)}
    assert {name: key.name for name, key in keys.items()} == PINNED[group]
    assert all(key.description for key in keys.values())
    assert [str(key) for key in keys.values()] == list(PINNED[group].values())


def test_a_key_is_experimental_unless_it_says_otherwise() -> None:
    key: TypedKey[int] = typed_key("review.score")
    assert (key.name, key.stability, key.description) == ("review.score", "experimental", "")
    stable: TypedKey[int] = typed_key("review.score", stability="stable", description="From 0 to 5")
    assert (stable.stability, stable.description) == ("stable", "From 0 to 5")


@pytest.mark.parametrize("name", ["", "Score", "a..b", ".a", "a.", "a b", "a-b", "legacy.metadata.x"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError):
        typed_key(name)
