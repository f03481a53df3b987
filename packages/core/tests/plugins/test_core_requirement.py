from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from stagewright.plugins.core_requirement import newer_core_needed


def needed(folder: Path, requirement: str, running: str | None) -> str | None:
    metadata = folder / "x-1.dist-info"
    metadata.mkdir()
    text = f"Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Dist: {requirement}\n"
    (metadata / "METADATA").write_text(text, encoding="utf-8")
    return newer_core_needed(PathDistribution(metadata), running)


@pytest.mark.parametrize(
    ("requirement", "running"),
    [
        ("stagewright-core>=0.2", "0.1.9"),
        ("stagewright-core>=0.10", "0.9"),
        ("Stagewright_Core (>=0.2,<0.3)", "0.1"),
        ("stagewright-core[cli] ~= 0.2.1", "0.2.0"),
        ("stagewright-core==0.2.*", "0.1"),
        ("stagewright-core>=1.0", "1.0rc1"),
        ("stagewright-core>=1.0rc2", "1.0rc1"),
        ("stagewright-core>=1.0a1", "1.0.dev3"),
        ("stagewright-core>=1!0.1", "5.0"),
        ("stagewright-core<9,>=0.2", "0.1"),
    ],
)
def test_a_newer_core_is_needed(tmp_path: Path, requirement: str, running: str) -> None:
    assert (needed(tmp_path, requirement, running) or "").startswith("stagewright-core")


@pytest.mark.parametrize(
    ("requirement", "running"),
    [
        ("stagewright-core", "0.1"),
        ("stagewright-core>=0.1", "0.1.0"),
        ("stagewright-core>=0.1.0", "0.1"),
        ("stagewright-core>=0.1,<0.2", "0.1.5+local"),
        ("stagewright-core>=1.0rc1", "1.0"),
        ("stagewright-core>=9", None),
        ("stagewright-core>=9", "unheard-of"),
        ("stagewright-core>=soon", "0.1"),
        ("stagewright-core!=9", "0.1"),
        ('stagewright-core>=9 ; extra == "new"', "0.1"),
        ("another-core>=9", "0.1"),
    ],
)
def test_the_running_core_will_do(tmp_path: Path, requirement: str, running: str | None) -> None:
    assert needed(tmp_path, requirement, running) is None
