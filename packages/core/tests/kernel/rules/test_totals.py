"""Adding up what stages report: what is no number counts as nothing, and nothing breaks the sum."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.totals import Totals, totals_of_metrics

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)


@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"total_cost": JSON, "total_tokens": JSON, "x": JSON}), max_size=5
    )
)
def test_any_metrics_add_up_to_a_cost_and_tokens(metrics: list[dict[str, Any]]) -> None:
    totals = totals_of_metrics(metrics)
    assert isinstance(totals.cost, Decimal)
    assert totals.cost.is_finite()
    assert isinstance(totals.tokens, int)


@given(st.lists(st.decimals(0, 1_000, places=6), max_size=8), st.lists(st.integers(0, 10**12), max_size=8))
def test_costs_add_up_without_losing_a_cent(costs: list[Decimal], tokens: list[int]) -> None:
    metrics: list[dict[str, Any]] = [{"total_cost": str(cost)} for cost in costs]
    metrics += [{"total_tokens": count} for count in tokens]
    assert totals_of_metrics(metrics) == Totals(sum(costs, Decimal(0)), sum(tokens))


@pytest.mark.parametrize("odd", [None, True, "", "many", "NaN", "Infinity", float("inf"), [], {}, "1,5"])
def test_what_is_no_number_counts_as_nothing(odd: Any) -> None:
    assert totals_of_metrics([{"total_cost": odd, "total_tokens": odd}, {"total_cost": 1}]) == Totals(
        Decimal(1), 0
    )


@pytest.mark.parametrize("text", ["1e999999", "9e9999999999", "-1e999999"])
def test_a_number_out_of_all_proportion_does_not_stall_the_run(text: str) -> None:
    totals = totals_of_metrics(
        [{"total_cost": text, "total_tokens": text}, {"total_cost": 1, "total_tokens": 2}]
    )
    assert totals == Totals(Decimal(1), 2)


def test_nothing_adds_up_to_nothing() -> None:
    assert totals_of_metrics([]) == Totals(Decimal(0), 0)
