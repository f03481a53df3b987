"""Annotation keys with an agreed meaning, for triggers, decisions, approvals and revisions."""

from typing import Final

from stagewright.annotations import TypedKey, typed_key
from stagewright.json_values import Json

__all__ = ["Approval", "Decision", "Revision", "Trigger", "TypedKey", "typed_key"]


class Trigger:
    """What started a run."""

    SOURCE: Final[TypedKey[str]] = typed_key(
        "trigger.source", stability="stable", description="What kind of thing started it"
    )
    PARENT_RUN_ID: Final[TypedKey[str]] = typed_key(
        "trigger.parent_run_id", stability="stable", description="The run that started it"
    )
    REASON: Final[TypedKey[str]] = typed_key(
        "trigger.reason", stability="stable", description="Why it was started"
    )
    ACTOR_KIND: Final[TypedKey[str]] = typed_key(
        "trigger.actor.kind", stability="stable", description="What kind of actor started it"
    )
    ACTOR_ID: Final[TypedKey[str]] = typed_key(
        "trigger.actor.id", stability="stable", description="Which actor started it"
    )


class Decision:
    """What was decided, and how surely."""

    OUTCOME: Final[TypedKey[Json]] = typed_key(
        "decision.outcome", stability="stable", description="What was decided"
    )
    RATIONALE: Final[TypedKey[str]] = typed_key("decision.rationale", stability="stable", description="Why")
    CONFIDENCE: Final[TypedKey[float]] = typed_key(
        "decision.confidence", stability="stable", description="From 0 to 1"
    )
    ALTERNATIVES: Final[TypedKey[list[Json]]] = typed_key(
        "decision.alternatives", stability="stable", description="What else was possible"
    )
    USED_FALLBACK: Final[TypedKey[bool]] = typed_key(
        "decision.used_fallback", description="Whether a fallback decided"
    )


class Approval:
    """Who approved, when, under which policy."""

    APPROVERS: Final[TypedKey[list[str]]] = typed_key(
        "approval.approvers", stability="stable", description="Always a list"
    )
    TIMESTAMP: Final[TypedKey[str]] = typed_key(
        "approval.timestamp", stability="stable", description="ISO 8601, with its offset"
    )
    POLICY_VERSION: Final[TypedKey[str]] = typed_key(
        "approval.policy.version", description="The policy it was approved under"
    )


class Revision:
    """Which run this one replaces."""

    PREVIOUS_RUN_ID: Final[TypedKey[str]] = typed_key(
        "revision.previous_run_id", stability="stable", description="The run that is replaced"
    )
    REASON: Final[TypedKey[str]] = typed_key(
        "revision.reason", stability="stable", description="Why it is replaced"
    )
