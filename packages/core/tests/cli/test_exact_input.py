"""What is typed reaches the input exactly, or is refused by name."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.cli.run_input import InputError, read_config, read_input
from stagewright.definitions import StageContext, Workflow, define_workflow, stage
from stagewright.json_values import Json

Call = Callable[..., Any]

LONG = "123456789012345678.90"


class Line(BaseModel):
    price: Decimal = Decimal(0)
    weight: float = 0.0


class Bill(BaseModel):
    amount: Decimal = Decimal(0)
    maybe: Decimal | None = None
    real: float = 0.0
    whole: int = 0
    count: int | float = 0
    text: str = ""
    either: float | str = 0
    either_whole: int | str = 0
    anything: Any = None
    lines: list[Line] = []
    pair: tuple[int, Decimal] = (0, Decimal(0))
    rates: dict[str, Decimal] = {}
    nested: "Bill | None" = None


def workflow_of(type_: object) -> Workflow:
    @stage("one")
    async def one(ctx: StageContext[None, Line]) -> int:
        return 1

    return define_workflow("w", input=type_).pipe(one).build()


BILL = workflow_of(Bill)


def same(left: Json, right: Json) -> bool:
    return repr(left) == repr(right)


@pytest.mark.guarantee("cli.input-exact-or-refused")
@pytest.mark.parametrize(
    ("pair", "value"),
    [
        (f"amount={LONG}", LONG),
        ("amount=1.10", "1.10"),
        ("amount=1.1", 1.1),
        ("amount=5", 5),
        ("amount=-0", "-0"),
        ("amount=123456789012345678901234567890", "123456789012345678901234567890"),
        ("amount=1E+2", "1E+2"),
        ("amount=1e-400", "1e-400"),
        (f'amount="{LONG}"', LONG),
        (f"amount=+{LONG}", f"+{LONG}"),
        ("amount=NaN", "NaN"),
        (f"maybe={LONG}", LONG),
        ("maybe=null", None),
        ("real=1.10", 1.1),
        ("real=1e5", 100000.0),
        ("real=10000000000000000000000", 10**22),
        ("real=.5", ".5"),
        ("whole=123456789012345678901234567890", 123456789012345678901234567890),
        ("count=123456789012345678901234567890", 123456789012345678901234567890),
        (f"text={LONG}", LONG),
        ('text="1.10"', '"1.10"'),
        ("text=[[", "[["),
        ('text={"a":1,"a":2}', '{"a":1,"a":2}'),
        (f"either={LONG}", LONG),
        ("either=1.5", 1.5),
        ('either="1.5"', "1.5"),
        ('either_whole="3"', "3"),
        ("anything=1.10", 1.1),
        ("anything=123456789012345678901234567890", 123456789012345678901234567890),
        (f'anything="{LONG}"', LONG),
        ('lines=[{"price": 1.10, "weight": 1.10}]', [{"price": "1.10", "weight": 1.1}]),
        (f"pair=[1, {LONG}]", [1, LONG]),
        (f'rates={{"EUR": {LONG}}}', {"EUR": LONG}),
        (f'nested={{"nested": {{"amount": {LONG}}}}}', {"nested": {"amount": LONG}}),
    ],
)
def test_a_number_arrives_as_it_was_typed(pair: str, value: Json) -> None:
    read = read_input(BILL, None, [pair])
    assert same(read, {pair.partition("=")[0]: value})


@pytest.mark.guarantee("cli.input-exact-or-refused")
@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (
            f"real={LONG}",
            f"--input real={LONG}: as a float it would become 1.2345678901234568e+17; write 1.23",
        ),
        (f"real=+{LONG}", f"--input real=+{LONG}: as a float"),
        (f"real=0{LONG}", "declare the field as Decimal"),
        (
            "real=9007199254740993",
            "--input real=9007199254740993: as a float it would become 9007199254740992.0",
        ),
        ("real=1e400", "--input real=1e400: it is beyond every number here"),
        ("real=1e99999999999999999999", "it is beyond every number here"),
        (f"count={LONG}", f"--input count={LONG}: "),
        (f"anything={LONG}", "or give it as text, in double quotes"),
        (f"anything={{'a': {LONG}}}".replace("'", '"'), f"--input anything.a={LONG}: "),
        ("anything=" + "9" * 5000, "9…: it is beyond"),
        (f'lines=[{{"weight": {LONG}}}]', f"--input lines[0].weight={LONG}: "),
        ('rates={"EUR": 1, "EUR": 2}', "--input rates: an object has the key 'EUR' twice"),
        ("lines=" + "[" * 100_000, "--input lines: it is nested too deeply"),
    ],
)
def test_a_number_that_would_lose_digits_is_refused_by_name(pair: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read_input(BILL, None, [pair])
    assert problem in caught.value.format_message()


@pytest.mark.parametrize("type_", [dict[str, Decimal], list[Decimal], Decimal, list[tuple[Decimal, str]]])
def test_a_document_is_read_by_its_schema(type_: object) -> None:
    document = {
        dict[str, Decimal]: '{"a": 1.10}',
        list[Decimal]: "[1.10]",
        Decimal: "1.10",
        list[tuple[Decimal, str]]: '[[1.10, "x"]]',
    }[type_]  # type: ignore[index] # types are keys
    assert "1.10" in str(read_input(workflow_of(type_), document, []))


def test_a_document_keeps_what_else_it_holds() -> None:
    document: Json = {"whole": 3, "text": "1.10", "anything": [True, None, {"x": 2.5}], "unknown": 1.5}
    assert same(read_input(BILL, json.dumps(document), []), document)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (f'{{"nested": {{"real": {LONG}}}}}', f"--input-json $.nested.real={LONG}: as a float"),
        (f'{{"anything": [{LONG}]}}', f"--input-json $.anything[0]={LONG}: "),
        ('{"whole": 1, "whole": 2}', "--input-json: an object has the key 'whole' twice"),
        ('{"real": NaN}', "--input-json is no JSON: NaN is no JSON number"),
        ("[" * 100_000, "--input-json: it is nested too deeply"),
    ],
)
def test_a_document_that_can_not_be_kept_is_refused_by_name(document: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read_input(BILL, document, [])
    assert problem in caught.value.format_message()


def test_config_is_exact_too() -> None:
    assert read_config(BILL, ["one.price=1.10"]) == {"one": {"price": "1.10"}}
    with pytest.raises(InputError, match=r"--config one\.weight=123456789012345678\.90: "):
        read_config(BILL, [f"one.weight={LONG}"])


@pytest.mark.parametrize(
    ("read", "pairs", "problem"),
    [
        (lambda pairs: read_input(BILL, None, pairs), ["whole=1", "whole=2"], "--input whole is given twice"),
        (
            lambda pairs: read_config(BILL, pairs),
            ["one.weight=1", "one.weight=1"],
            "--config one.weight is given",
        ),
    ],
)
def test_a_member_is_given_once(read: Callable[[list[str]], Json], pairs: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(pairs)


def test_a_choice_of_objects_has_the_members_of_all() -> None:
    class Card(BaseModel):
        number: str

    class Cash(BaseModel):
        coins: Decimal

    chosen = workflow_of(Card | Cash)
    assert read_input(chosen, None, ["coins=1.10"]) == {"coins": "1.10"}
    with pytest.raises(InputError, match="there are number, coins"):
        read_input(chosen, None, ["cheque=1"])


def test_a_decimal_reaches_the_body_digit_for_digit(called: Call, tmp_path: Path) -> None:
    (tmp_path / "bills.py").write_text(
        "from decimal import Decimal\nfrom pydantic import BaseModel\n"
        "from stagewright import StageContext, define_workflow, stage\n"
        "class Bill(BaseModel):\n    amount: Decimal\n"
        "@stage('show')\nasync def show(ctx: StageContext[Bill]) -> str: return str(ctx.input.amount)\n"
        "bills = define_workflow('bills', input=Bill).pipe(show).build()\n",
        encoding="utf-8",
    )
    for given in (
        ["--input", f"amount={LONG}"],
        ["--input", f'amount="{LONG}"'],
        ["--input-json", f'{{"amount": {LONG}}}'],
    ):
        done = called("run", "bills.py:bills", "-q", *given)
        assert (done.returncode, done.stdout) == (0, f'"{LONG}"\n')
    assert called("run", "bills.py:bills", "-q", "--input", "amount=1.10").stdout == '"1.10"\n'


@pytest.mark.parametrize("depth", [200, 900, 100_000])
def test_a_document_that_is_too_deep_is_one_line(called: Call, workflows: Path, depth: int) -> None:
    document = '{"name": "x", "tags": ' + "[" * depth + "]" * depth + "}"
    done = called("run", "flows.py:orders", "--input-json", document)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert len(done.stderr) < 2_000
