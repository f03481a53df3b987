"""`stagewright db`."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stagewright.cli.application import run_application
from stagewright_persistence_sqlalchemy import migrating
from stagewright_persistence_sqlalchemy.migration_declarations import oldest_build_of
from stagewright_persistence_sqlalchemy.schema import HEAD

OLDEST = oldest_build_of(migrating.SCRIPTS.get_revision(HEAD))

Db = Callable[..., tuple[int, str, str]]


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Db:
    """Runs `stagewright db` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_application(["db", *arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> str:
    """An empty database."""
    return new_database(request.param)


def test_a_database_from_nothing_to_its_schema(db: Db, url: str) -> None:
    missing = f"{url} has no Stagewright schema yet; run"
    if url.startswith("sqlite"):
        missing = f"there is no such file as {url} names; check its path, or make it with"
    assert db("check", url) == (1, "", f"stagewright: {missing} `stagewright db upgrade '{url}'`\n")
    assert db("current", url) == (0, f"none\nthis build needs: {HEAD}\n", "")
    assert db("upgrade", url) == (0, f"the schema {HEAD} was made\n", "")
    assert db("check", url) == (0, f"the schema is {HEAD}, as needed\n", "")
    builds = f"oldest build that works on it: {OLDEST}\nthis build needs: {HEAD}"
    assert db("current", url) == (0, f"{HEAD}\n{builds}\n", "")
    assert db("upgrade", url) == (0, f"the schema is at {HEAD} already\n", "")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_names_are_given_beside_the_url_or_in_it(db: Db, url: str) -> None:
    named = ("--table-prefix", "x_")
    assert db("upgrade", url, *named) == (0, f"the schema {HEAD} was made\n", "")
    assert db("check", url, *named) == (0, f"the schema is {HEAD}, as needed\n", "")
    builds = f"oldest build that works on it: {OLDEST}\nthis build needs: {HEAD}"
    assert db("current", f"{url}?table_prefix=x_") == (0, f"{HEAD}\n{builds}\n", "")
    assert db("current", url) == (0, f"none\nthis build needs: {HEAD}\n", "")
    other = f"{url}?table_prefix=y_"
    code, _, errors = db("check", url, "--table-prefix", "y_")
    # What it says to do makes the store that was asked for.
    missing = f"{other} has no Stagewright schema yet; run `stagewright db upgrade '{other}'`"
    assert (code, errors) == (1, f"stagewright: {missing}\n")


def test_statements_have_the_names(db: Db) -> None:
    named = ("--schema", "app", "--table-prefix", "x_")
    _, printed, _ = db("sql", "postgresql://any", *named)
    assert printed.index("CREATE SCHEMA IF NOT EXISTS app;") < printed.index(
        "CREATE TABLE app.x_workflow_runs ("
    )
    assert 'FUNCTION "app".x_stagewright_enqueue(' in printed
    assert db("sql", "postgresql://any?schema=app&table_prefix=x_")[1] == printed
    # What is executed by hand has each % once.
    assert "not %L" in printed


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--schema", "app"), "schema='app' is for PostgreSQL"),
        (("--table-prefix", "X"), "table_prefix='X' must be made of"),
    ],
)
@pytest.mark.parametrize("command", ["upgrade", "check", "current", "sql"])
def test_a_wrong_name_is_one_line_and_exits_with_2(
    db: Db, tmp_path: Path, command: str, given: tuple[str, str], words: str
) -> None:
    code, printed, errors = db(command, "sqlite:///some.db", *given)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert words in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["check", "current"])
def test_looking_makes_no_file(db: Db, tmp_path: Path, command: str) -> None:
    db(command, "sqlite:///typo.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "time_type"),
    [
        ("sqlite:///any.db", "created_at TEXT"),
        ("postgres://any", "TIMESTAMP WITH TIME ZONE"),
        ("mariadb://any", "DATETIME(6)"),
    ],
)
def test_the_statements_are_printed(db: Db, tmp_path: Path, url: str, time_type: str) -> None:
    code, printed, errors = db("sql", url)
    assert (code, errors) == (0, "")
    assert "workflow_runs (" in printed
    assert time_type in printed
    assert f"'{HEAD}'" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["upgrade", "check", "current", "sql"])
@pytest.mark.parametrize(
    "url", ["mysql://me:s3cret@somewhere.test/name", "memory://", "no url", "sqlite+nothing://"]
)
def test_a_wrong_url_is_one_line_and_exits_with_2(db: Db, command: str, url: str) -> None:
    code, printed, errors = db(command, url)
    assert (code, printed) == (2, "")
    assert errors.startswith("stagewright: url=")
    assert errors.count("\n") == 1
    assert "s3cret" not in errors


@pytest.mark.parametrize("command", ["upgrade", "check", "current"])
def test_a_database_that_can_not_be_opened_is_one_line_and_exits_with_1(
    db: Db, tmp_path: Path, command: str
) -> None:
    (tmp_path / "notes.db").write_text("no database at all, but long enough to be looked at " * 40)
    assert db(command, "sqlite:///notes.db") == (
        1,
        "",
        "stagewright: sqlite:///notes.db can't be used: file is not a database\n",
    )


def test_the_help_names_the_commands(db: Db) -> None:
    code, printed, _ = db("--help")
    assert code == 0
    for command in ("upgrade", "check", "current", "sql"):
        assert f"\n  {command} " in printed


def test_the_command_works_as_a_process(sqlite_url: str) -> None:
    command = [sys.executable, "-m", "stagewright.cli", "db", "upgrade", sqlite_url]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"the schema {HEAD} was made\n", "")
