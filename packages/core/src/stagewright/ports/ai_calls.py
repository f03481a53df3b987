"""Where model calls are accounted for, and what bodies get of it."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

__all__ = ["AICallLogger", "AICallTotals", "KernelServices"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AICallTotals:
    """What some model calls used.

    Attributes:
        calls: How many there were.
        input_tokens: Tokens that went in.
        output_tokens: Tokens that came out.
        cost: In US dollars; None when the price of one of them is unknown.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)


class AICallLogger(Protocol):
    """The log of model calls, by topic; a run's topic is `workflow.` and its id."""

    async def delete_calls(self, topic: str) -> None:
        """Forget the calls of a topic and of the topics below it; nothing happens if there are none."""
        ...

    async def get_stats(self, topic: str) -> AICallTotals:
        """The totals of a topic and of the topics below it, calls whose write is still under way included."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelServices:
    """What a kernel hands to bodies beside its ports.

    Attributes:
        ai_logger: The log of model calls, `ctx.ai_logger`; a run's totals come from it.
        ai: Makes `ctx.ai` for a topic and a logger, once for each context that asks for it.
    """

    ai_logger: AICallLogger | None = None
    ai: Callable[[str, AICallLogger | None], Any] | None = None  # Any: the helper's type is its package's own
