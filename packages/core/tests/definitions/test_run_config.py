from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from stagewright.definitions import Stage, define_stage, define_workflow
from stagewright.errors import InvalidConfigError


class PriceConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    currency: str = "EUR"
    digits: int = Field(default=2, ge=0)


class ShipConfig(BaseModel):
    carrier: str
    fast: bool = False
    since: datetime | None = None


def staged(id: str, config: Any = None) -> Stage[Any, Any, Any]:
    options = {} if config is None else {"config": config}
    return define_stage(id, lambda ctx: None, input=None, output=None, **options)


WORKFLOW = (
    define_workflow("orders", input=None)
    .pipe(staged("price", PriceConfig))
    .pipe(staged("score-fraud"))
    .pipe(staged("ship", ShipConfig))
    .build()
)


@pytest.mark.guarantee("definitions.config-complete")
def test_a_config_is_validated_and_filled_with_defaults() -> None:
    assert WORKFLOW.validate_config({"ship": {"carrier": "dhl"}, "price": {"digits": "3"}}) == {
        "price": {"currency": "EUR", "digits": 3},
        "score-fraud": {},
        "ship": {"carrier": "dhl", "fast": False, "since": None},
    }


def test_a_config_may_be_given_as_objects() -> None:
    moment = datetime.fromisoformat("2026-03-01T12:00:00+00:00")
    given = {"ship": ShipConfig(carrier="dhl", since=moment), "price": PriceConfig(digits=0)}
    assert WORKFLOW.validate_config(given)["ship"] == {
        "carrier": "dhl",
        "fast": False,
        "since": "2026-03-01T12:00:00Z",
    }


def test_a_filled_config_stays_as_it_is() -> None:
    filled = WORKFLOW.validate_config({"ship": {"carrier": "dhl"}})
    assert WORKFLOW.validate_config(filled) == filled


@pytest.mark.guarantee("definitions.all-problems-at-once")
def test_every_problem_of_every_stage_is_listed_with_its_path() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        WORKFLOW.validate_config(
            {
                "price": {"currency": 5, "digits": -1, "more": 1},
                "score-fraud": {"x": 1},
                "prise": {},
                "ship": {"fast": "perhaps", "since": [datetime.now]},
            }
        )
    paths = [problem.path for problem in caught.value.problems]
    assert paths[0] == "$.prise"
    assert set(paths) == {
        "$.prise",
        "$.price.currency",
        "$.price.digits",
        "$.price.more",
        "$['score-fraud'].x",
        "$.ship.since[0]",
    }
    assert "'price'" in caught.value.problems[0].message


@pytest.mark.parametrize("config", [None, [], "price", 5, {"ship": None}, {"ship": []}, {5: {}}])
def test_what_is_no_config_is_refused(config: object) -> None:
    with pytest.raises(InvalidConfigError):
        WORKFLOW.validate_config(config)


def test_the_defaults_are_shown_as_far_as_there_are_any() -> None:
    assert WORKFLOW.default_config() == {
        "price": {"currency": "EUR", "digits": 2},
        "score-fraud": {},
        "ship": {"fast": False, "since": None},
    }


def test_one_exotic_default_does_not_break_the_others() -> None:
    def broken() -> int:
        raise RuntimeError("no default today")

    class Exotic(BaseModel):
        needed: int
        odd: Any = object()
        made: int = Field(default_factory=broken)

    workflow = (
        define_workflow("w", input=None)
        .pipe(staged("exotic", Exotic))
        .pipe(staged("price", PriceConfig))
        .build()
    )
    assert workflow.default_config() == {"exotic": {}, "price": {"currency": "EUR", "digits": 2}}


def test_a_default_that_its_type_would_parse_is_shown_as_it_is_written() -> None:
    class Parsed(BaseModel):
        needed: int
        limit: Decimal = 0  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # pydantic takes it
        digits: int = 2

    workflow = define_workflow("w", input=None).pipe(staged("parsed", Parsed)).build()
    assert workflow.default_config() == {"parsed": {"limit": 0, "digits": 2}}


def test_defaults_use_the_names_that_are_stored() -> None:
    class Aliased(BaseModel):
        needed: int
        max_items: int = Field(default=3, alias="maxItems")

    workflow = define_workflow("w", input=None).pipe(staged("a", Aliased)).build()
    assert workflow.default_config() == {"a": {"maxItems": 3}}


def test_a_config_may_be_a_dict_type() -> None:
    workflow = define_workflow("w", input=None).pipe(staged("a", dict[str, int])).build()
    assert workflow.default_config() == {"a": {}}
    assert workflow.validate_config({"a": {"x": 1}}) == {"a": {"x": 1}}
    with pytest.raises(InvalidConfigError) as caught:
        workflow.validate_config({"a": {"x": "many"}})
    assert caught.value.problems[0].path == "$.a.x"
