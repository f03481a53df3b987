from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.protocols import wide_protocols
from stagewright_test_support.architecture.repository import Repository


def protocol(name: str, methods: int, bases: str = "Protocol") -> str:
    body = "".join(f"    async def m{number}(self) -> None: ...\n" for number in range(methods))
    return f"class {name}({bases}):\n{body or '    ...'}\n"


def test_ports_of_this_repository_are_small(repository: Repository) -> None:
    expect_none(wide_protocols(repository))


def test_a_wide_protocol_is_found_and_a_union_is_not(made_up: MakeTree) -> None:
    text = (
        protocol("Narrow", 8)
        + protocol("Wide", 9, "Protocol[T]")
        + protocol("Union", 0, "Narrow, Wide, Protocol")
    )
    tree = made_up(
        {
            "packages/a/pyproject.toml": "",
            "packages/a/src/a/ports/queue.py": text,
            "packages/a/src/a/kernel/queue.py": text,
        }
    )
    [fault] = wide_protocols(tree)
    assert "Wide has 9 methods, more than 8" in fault
