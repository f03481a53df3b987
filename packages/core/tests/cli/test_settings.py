"""What a command is told, and where from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from stagewright.cli.settings import CommandSettings, SettingError, read_settings


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes the pyproject.toml of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STAGEWRIGHT_URL", raising=False)

    def write(text: str) -> Path:
        path = tmp_path / "pyproject.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("url", ["", "  "])
def test_an_empty_url_is_refused_and_not_taken_for_the_default(
    project: Callable[[str], Path], url: str
) -> None:
    with pytest.raises(SettingError, match=f"--url='{url}': write a URL such as"):
        read_settings(CommandSettings, {"url": url})
    file = project(f'[tool.stagewright]\nurl = "{url}"\n')
    with pytest.raises(SettingError) as refused:
        read_settings(CommandSettings, {})
    assert str(refused.value).startswith(f"url='{url}' under [tool.stagewright] in {file}: write a URL")


def test_a_value_of_the_environment_is_told_with_its_variable(
    project: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    project('[tool.stagewright]\nurl = "sqlite:///project.db"\n')
    monkeypatch.setenv("STAGEWRIGHT_URL", " ")
    with pytest.raises(SettingError, match="STAGEWRIGHT_URL=' ': write a URL"):
        read_settings(CommandSettings, {"url": None})


class CountSettings(CommandSettings):
    count: int | None = None
    flag: bool | None = None


def test_a_truth_value_is_taken_where_one_is_meant_only(project: Callable[[str], Path]) -> None:
    project("[tool.stagewright]\nflag = true\ncount = 2\n")
    settings = read_settings(CountSettings, {})
    assert (settings.flag, settings.count) == (True, 2)
    project("[tool.stagewright]\ncount = true\n")
    with pytest.raises(SettingError, match=r"count=True under .*: a truth value is no value for this"):
        read_settings(CountSettings, {})
