"""What `import stagewright` brings, and the names that are imported when they are used."""

import pickle
import subprocess
import sys

import pytest

import stagewright

VENDORS = (
    *(
        "aiosqlite",
        "alembic",
        "asyncmy",
        "asyncpg",
        "boto3",
        "botocore",
        "google.cloud",
        "psycopg",
        "pymysql",
    ),
    *("redis", "sqlalchemy", "sqlite3", "starlette", "httpx", "anthropic", "openai"),
)
OF_THE_TERMINAL = ("click", "rich", "pygments", "pydantic_settings", "dotenv", "stagewright.cli")
OF_TESTS = ("pytest", "_pytest", "hypothesis", "stagewright.testing", "stagewright_conformance")
UNLESS_USED = ("pydantic", "asyncio", "pluggy", "stagewright.definitions", "stagewright.kernel")
TO_RUN_THEM = ("asyncio", "pluggy", "stagewright.kernel", "stagewright.hosting", "stagewright.memory")


def modules_after(code: str, names: tuple[str, ...]) -> list[str]:
    """Which of these modules a new process has imported when it has run the code."""
    script = f"import sys\n{code}\nprint(*(name for name in {names!r} if name in sys.modules))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.guarantee("packaging.names-imported-when-used")
def test_importing_the_package_imports_next_to_nothing() -> None:
    names = (*VENDORS, *OF_THE_TERMINAL, *OF_TESTS, *UNLESS_USED)
    assert modules_after("import stagewright", names) == []


@pytest.mark.guarantee("packaging.names-imported-when-used")
def test_defining_workflows_imports_nothing_that_runs_them() -> None:
    code = "from stagewright import StageContext, Workflow, define_stage, define_workflow, stage"
    assert modules_after(code, (*VENDORS, *OF_THE_TERMINAL, *OF_TESTS, *TO_RUN_THEM)) == []


@pytest.mark.guarantee("packaging.names-imported-when-used")
def test_no_name_brings_a_vendor_the_terminal_or_tests() -> None:
    code = "from stagewright import *\nimport stagewright.commands, stagewright.events, stagewright.records"
    assert modules_after(code, (*VENDORS, *OF_THE_TERMINAL, *OF_TESTS)) == []


def test_every_name_is_found_and_kept() -> None:
    for name in stagewright.__all__:
        value = getattr(stagewright, name)
        assert value.__name__ == name
        assert vars(stagewright)[name] is value
    assert set(stagewright.__all__) <= set(dir(stagewright))


def test_all_names_come_at_once() -> None:
    given: dict[str, object] = {}
    exec("from stagewright import *", given)
    assert set(stagewright.__all__) <= set(given)


def test_modules_are_found_without_importing_them_by_name() -> None:
    code = "import stagewright\nprint(stagewright.commands.CreateRun.__name__, stagewright.Kernel.__name__)"
    assert modules_after(code, ()) == ["CreateRun", "Kernel"]


def test_names_are_pickled_as_what_they_are() -> None:
    for name in ("Status", "RetryPolicy", "define_workflow", "open_kernel"):
        value = getattr(stagewright, name)
        assert pickle.loads(pickle.dumps(value)) is value


def test_any_other_name_is_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="module 'stagewright' has no attribute 'nothing'"):
        _ = stagewright.nothing  # type: ignore[attr-defined]  # that is the point
    with pytest.raises(ImportError, match="nothing"):
        from stagewright import nothing  # type: ignore[attr-defined]  # as above  # noqa: F401
