"""What a run's model calls used, as its stages report it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from stagewright.json_values import Json

__all__ = ["Totals", "totals_of_metrics"]

_MOST_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Totals:
    """A run's cost in US dollars, None when unknown, and its input and output tokens."""

    cost: Decimal | None = Decimal(0)
    tokens: int = 0


def totals_of_metrics(metrics: Sequence[Mapping[str, Json]]) -> Totals:
    """Add up the `total_cost` and `total_tokens` of stages; what is no number of a sane size counts as nothing."""
    cost = Decimal(0)
    tokens = 0
    for of_stage in metrics:
        cost += _number(of_stage.get("total_cost"))
        tokens += int(_number(of_stage.get("total_tokens")))
    return Totals(cost, tokens)


def _number(value: Json) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return Decimal(0)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return Decimal(0)
    return number if number.is_finite() and number.adjusted() <= _MOST_DIGITS else Decimal(0)
