from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from stagewright.errors import InvalidAICallError
from stagewright.json_values import Json, text_problem

__all__ = ["AICall", "LoggedAICall"]

_LONGEST_NAME: Final = 255
_OPTIONAL_NAMES: Final = ("request_id", "served_by")
_LONGEST_TOPIC: Final = 700
_MOST_TOPIC_BYTES: Final = 2_600
"""Of UTF-8; an index of PostgreSQL has room for little more."""

# Millions of them still add up in 64 bits.
_MOST_TOKENS: Final = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class AICall:
    """One model call, as it is accounted for. What is unknown is None, never zero.

    Attributes:
        topic: Whose call it is, in segments with dots between, of 700 characters and 2,600 bytes of UTF-8 at most: of
            a stage, `workflow.<run id>.stage.<stage id>`.
        call_type: What was asked for, such as `text`, `object`, `embed`, `stream` or `batch`.
        model_key: What the application calls the model.
        model_id: What its provider calls it.
        prompt: What was sent, as text.
        response: What came back, as text; empty when the call failed.
        input_tokens: Tokens that went in.
        output_tokens: Tokens that came out.
        cost: In US dollars.
        metadata: What else is worth keeping.
        request_id: Which request of its provider's batch it answers.
        estimated_cost: What the price list says that it costs, in US dollars.
        reported_cost: What the provider said that it costs, in US dollars.
        cost_source: Which of the two `cost` is.
        served_by: Who answered for the provider.
        cached_input_tokens: How many of the input tokens the provider had already.
        reasoning_tokens: How many of the output tokens nobody saw.

    Raises:
        InvalidAICallError: If a name is empty, too long (255 characters, but for the topic) or can't be stored, a
            number is negative, not finite, or a count of more than 10**12, or something is of another type, such as a
            float for a cost.
    """

    topic: str
    call_type: str
    model_key: str
    model_id: str
    prompt: str = ""
    response: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)
    request_id: str | None = None
    estimated_cost: Decimal | None = None
    reported_cost: Decimal | None = None
    cost_source: Literal["reported", "estimated"] | None = None
    served_by: str | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("topic", "call_type", "model_key", "model_id", "request_id", "served_by"):
            _check_name(name, getattr(self, name))
        for name in ("prompt", "response"):
            if not isinstance(getattr(self, name), str):
                raise InvalidAICallError(name, getattr(self, name), "give text")
        for name in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"):
            tokens = getattr(self, name)
            if tokens is not None and not (_is_count(tokens) and 0 <= tokens <= _MOST_TOKENS):
                raise InvalidAICallError(
                    name, tokens, "give a count from 0 to 10**12, or None where it is unknown"
                )
        for name in ("cost", "estimated_cost", "reported_cost"):
            cost = getattr(self, name)
            if cost is not None and not (isinstance(cost, Decimal) and cost.is_finite() and cost >= 0):
                raise InvalidAICallError(
                    name, cost, "give a Decimal of 0 or more, or None where it is unknown"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAICall:
    """A model call as it is in the log.

    Attributes:
        position: Its place in the log; later ones have larger numbers.
        call: The call.
        batch_id: The provider's batch that it was part of.
        created_at: When it was logged, in UTC.
    """

    position: int
    call: AICall
    batch_id: str | None
    created_at: datetime


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_name(name: str, value: object) -> None:
    if value is None and name in _OPTIONAL_NAMES:
        return
    if not isinstance(value, str):
        raise InvalidAICallError(name, value, "give text")
    problem = text_problem(value)
    if not value:
        problem = "it is empty"
    longest = _LONGEST_TOPIC if name == "topic" else _LONGEST_NAME
    if len(value) > longest:
        problem = f"it has {len(value)} characters, and {longest} is the most"
    size = 0 if problem else len(value.encode())
    if size > _MOST_TOPIC_BYTES:
        problem = f"it has {size} bytes of UTF-8, and {_MOST_TOPIC_BYTES} is the most"
    if problem is not None:
        raise InvalidAICallError(name, value, problem)
