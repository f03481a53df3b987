"""`stagewright runs`: what a store knows of its runs, and where a command's settings come from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("stagewright_persistence_sqlalchemy")

Called = Callable[..., Any]
URL = "sqlite:///runs.db"


@pytest.fixture
def ran(called: Called, workflows: Path) -> str:
    """A database with one run that completed and one that failed; the id of the first."""
    done = called("run", "flows.py:orders", "--input", "name=pen", "--url", URL, "-q")
    assert done.returncode == 0
    assert called("run", "flows.py:orders", "--input", "name=bad", "--url", URL, "-q").returncode == 1
    listed = called("runs", "list", "--url", URL, "--status", "completed")
    [row] = [line for line in listed.stdout.splitlines() if "COMPLETED" in line]
    return str(row.split()[0])


@pytest.mark.guarantee("cli.runs-are-shown")
def test_runs_are_listed_and_shown(called: Called, ran: str) -> None:
    listed = called("runs", "list", "--url", URL)
    assert listed.returncode == 0
    rows = [line for line in listed.stdout.splitlines() if "orders" in line]
    assert ["FAILED" in row for row in rows] == [True, False], "the newest first"
    assert "nobody sells bad" in rows[0]

    shown = called("runs", "show", ran, "--url", URL, "--events", "--logs")
    assert shown.returncode == 0
    assert f"run {ran} of orders: COMPLETED" in shown.stdout
    assert "stage:completed  price" in shown.stdout
    assert '"label": "2 EUR"' in shown.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_ids_whole(
    ran: str, on_terminal: Callable[..., tuple[int, str]], columns: int
) -> None:
    code, shown = on_terminal("runs", "list", "--url", URL, columns=columns)
    assert code == 0
    [row] = [line for line in shown.splitlines() if ran in line]
    assert "COMPLETED" in row
    assert ("nobody sells" in shown) is (columns == 120)


def test_lists_are_filtered_and_limited(called: Called, ran: str) -> None:
    limited = called("runs", "list", "--url", URL, "--limit", "1")
    assert "there are more" in limited.stdout
    assert ran not in limited.stdout
    assert ran not in called("runs", "list", "--url", URL, "--workflow", "other").stdout
    assert ran not in called("runs", "list", "--url", URL, "--status", "FAILED").stdout
    assert called("runs", "list", "--url", URL, "--status", "lost").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "nothing", "--url", URL), 1, "no run has the id 'nothing'"),
        (("list", "--url", "memory://"), 2, "a store in memory ends with its process"),
        (("list", "--url", "sqlite:///other.db"), 1, "there is no such file as sqlite:///other.db names"),
    ],
)
def test_what_is_not_there_is_one_line(
    called: Called, ran: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = called("runs", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert message in done.stderr


@pytest.mark.guarantee("cli.settings-by-precedence")
def test_a_flag_beats_the_environment_which_beats_the_project(
    called: Called, ran: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pyproject.toml").write_text(f'[tool.stagewright]\nurl = "{URL}"\nunheard_of = 1\n')
    assert ran in called("runs", "list").stdout
    monkeypatch.setenv("STAGEWRIGHT_URL", "sqlite:///environment.db")
    assert "environment.db" in called("runs", "list").stderr
    assert "flag.db" in called("runs", "list", "--url", "sqlite:///flag.db").stderr
    monkeypatch.setenv("STAGEWRIGHT_URL", "")
    assert ran in called("runs", "list").stdout


@pytest.mark.parametrize("text", ["[tool.stagewright\n", "tool = 3", "[tool]\nstagewright = 3"])
def test_a_project_file_that_can_not_be_used_is_told(called: Called, tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    done = called("runs", "list")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert str(tmp_path / "pyproject.toml") in done.stderr
