import re

from stagewright_test_support.architecture.repository import Repository

PIN = re.compile(r"[a-z0-9-]+==[\w.]+( ; [\w .='<>!]+)?")


def test_tools_are_pinned_by_name_and_version_only(repository: Repository) -> None:
    lines = (repository.root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins != []
    assert [line for line in pins if not PIN.fullmatch(line)] == []


def test_every_tool_of_the_sessions_is_pinned(repository: Repository) -> None:
    noxfile = (repository.root / "noxfile.py").read_text(encoding="utf-8")
    tools = {
        name
        for listed in re.findall(r"^[A-Z]+_TOOLS = \[(.+)\]", noxfile, re.MULTILINE)
        for name in re.findall(r'"([^"]+)"', listed)
    }
    pinned = (repository.root / "constraints.txt").read_text(encoding="utf-8")
    assert tools >= {"pytest", "mypy", "ruff"}
    assert [name for name in sorted(tools) if f"\n{name}==" not in pinned] == []
