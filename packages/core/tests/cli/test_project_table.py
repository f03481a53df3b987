"""The table `[tool.stagewright]` of the nearest pyproject.toml."""

from pathlib import Path

import pytest

from stagewright.cli.project_table import ProjectTable, ProjectTableError, read_project_table


def test_the_nearest_file_is_read_also_from_a_folder_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.stagewright]\nconcurrency = 3\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert read_project_table() == ProjectTable(file, {"concurrency": 3})
    nearer = below / "pyproject.toml"
    nearer.write_text("[project]\n")
    assert read_project_table() == ProjectTable(nearer, {})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"tool = 3", "tool = 3, which must be a table"),
        (b"[tool]\nstagewright = 'x'", "tool.stagewright = 'x', which must be a table"),
        (b"\xff\xfe", "can't be read: 'utf-8' codec"),
        (b"[tool.stagewright", "can't be read: "),
    ],
)
def test_what_is_no_table_is_told_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_bytes(content)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProjectTableError) as refused:
        read_project_table()
    assert str(file) in str(refused.value)
    assert problem in str(refused.value)


def test_names_that_nobody_reads_are_told_with_what_may_be_meant() -> None:
    table = ProjectTable(
        None, {"concurency": 9, "poll-interval": "2s", "zebra": 1, "url": "x", "mine": {"a": 1}}
    )
    assert table.unread(["concurrency", "poll_interval", "url"]) == (
        "concurency (do you mean concurrency?)",
        "poll-interval (do you mean poll_interval?)",
        "zebra",
    )
