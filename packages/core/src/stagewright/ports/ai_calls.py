"""Where model calls are accounted for, and what bodies get of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from stagewright.records import AICall, LoggedAICall

__all__ = ["AICallLogger", "AICallTotals", "KernelServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AICallTotals:
    """What some model calls used.

    Attributes:
        calls: How many there were.
        input_tokens: Tokens that went in, as far as they are known.
        output_tokens: Tokens that came out, as far as they are known.
        cost: In US dollars; None when the price of one of them is unknown.
        per_model: The same by `AICall.model_key`; empty in what is told of one model.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)
    per_model: Mapping[str, "AICallTotals"] = field(default_factory=dict)

    @classmethod
    def of_models(cls, per_model: Mapping[str, "AICallTotals"]) -> "AICallTotals":
        """The sum of what is told of several models, by their keys."""
        totals = per_model.values()
        costs = [one.cost for one in totals if one.cost is not None]
        return cls(
            calls=sum(one.calls for one in totals),
            input_tokens=sum(one.input_tokens for one in totals),
            output_tokens=sum(one.output_tokens for one in totals),
            cost=sum(costs, Decimal(0)) if len(costs) == len(per_model) else None,
            per_model=per_model,
        )


class AICallLogger(Protocol):
    """The log of model calls, by topic; a run's topic is `workflow.` and its id.

    A topic is below another one when it begins with that one and a dot. Topics are compared letter by letter. What
    is logged stays until it is deleted, whatever becomes of the attempt that made the call: the money is spent.
    """

    def log_call(self, call: AICall) -> None:
        """Log a call, from any thread, and return at once.

        No call of a model fails or waits for its log: text that can't be stored is kept with U+FFFD in the place of
        what can't, and a write that fails for good is reported to the process's log, with what it would have kept.
        """
        ...

    async def log_batch_results(self, batch_id: str, calls: Sequence[AICall]) -> int:
        """Log what a provider's batch gave, once: a request of a batch that is logged already is skipped.

        Args:
            batch_id: The provider's batch, of 255 characters at most.
            calls: Its results. One without a `request_id` can't be recognised, so it is logged each time.

        Returns:
            How many were logged.

        Raises:
            InvalidAICallError: If `batch_id` is empty, too long or can't be stored; nothing is logged then.
        """
        ...

    async def is_recorded(self, batch_id: str) -> bool:
        """Whether a result of that batch is logged."""
        ...

    async def list_calls(self, topic: str, *, after: int = 0, limit: int = 1000) -> list[LoggedAICall]:
        """The calls of a topic and of the topics below it, the first one first.

        Args:
            topic: The topic.
            after: Only those whose `position` is larger.
            limit: At most so many.
        """
        ...

    async def delete_calls(self, topic: str) -> None:
        """Forget the calls of a topic and of the topics below it; nothing happens if there are none."""
        ...

    async def get_stats(self, topic: str) -> AICallTotals:
        """The totals of a topic and of the topics below it, calls included that this object has yet to write."""
        ...

    async def drain(self) -> None:
        """Wait until nothing is left to write of the calls that `log_call` was given so far; never raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelServices:
    """What a kernel hands to bodies beside its ports.

    Attributes:
        ai_logger: The log of model calls, `ctx.ai_logger`; a run's totals come from it. `open_kernel` takes the
            database's own when this is None.
        ai: Makes `ctx.ai` for a topic and a logger, once for each context that asks for it.
    """

    ai_logger: AICallLogger | None = None
    ai: Callable[[str, AICallLogger | None], Any] | None = None  # Any: the helper's type is its package's own
