"""Names of a store: which are taken, how far they reach, and what a migration makes of them."""

import re
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext

from stagewright import StageContext, define_stage, define_workflow, open_kernel
from stagewright.errors import InvalidSettingError
from stagewright_persistence_sqlalchemy import create_engine, dialect, schema
from stagewright_persistence_sqlalchemy.engine import another_engine, names_of
from stagewright_persistence_sqlalchemy.named_operations import NamedOperations
from stagewright_persistence_sqlalchemy.names import LONGEST_PREFIX, PLAIN_NAMES, Names
from stagewright_persistence_sqlalchemy.schema_state import VERSION_TABLE
from stagewright_persistence_sqlalchemy.statements import claims, jobs, outbox, reads
from stagewright_persistence_sqlalchemy.tables import PLAIN_TABLES, tables_of

POSTGRESQL = "postgresql+asyncpg://me:s3cret@host/name"
LIMIT = 63


@pytest.mark.parametrize(
    ("url", "given", "words"),
    [
        (POSTGRESQL, {"schema": "My-App"}, "schema='My-App' must be made of lower-case letters"),
        (POSTGRESQL, {"schema": ""}, "schema='' must be made of"),
        (POSTGRESQL, {"schema": "a" * 64}, "schema='a+' has 64 characters; use 63 at the most"),
        (POSTGRESQL, {"schema": "pg_own"}, "schema='pg_own' is a schema of PostgreSQL's own"),
        (POSTGRESQL, {"schema": "a.b"}, "schema='a.b' must be made of"),
        (POSTGRESQL, {"schema": 7}, "schema=7 must be made of"),
        (POSTGRESQL, {"table_prefix": "1x"}, "table_prefix='1x' .* begin with no digit"),
        (POSTGRESQL, {"table_prefix": "x;--"}, "table_prefix='x;--' must be made of"),
        (POSTGRESQL, {"table_prefix": "ü_"}, "table_prefix='ü_' must be made of"),
        (POSTGRESQL, {"table_prefix": "x" * 14}, "table_prefix='x+' has 14 characters; use 13 at the most"),
        (
            POSTGRESQL,
            {"table_prefix": "x_pk_"},
            "table_prefix='x_pk_' ends as names of indexes and keys begin",
        ),
        (f"{POSTGRESQL}?schema=a", {"schema": "b"}, "schema='b' is 'a' in the URL; say it in one"),
        (f"{POSTGRESQL}?schema=A", {}, "schema='A' must be made of"),
        (f"{POSTGRESQL}?table_prefix=a-", {}, "table_prefix='a-' must be made of"),
        ("sqlite:///app.db", {"schema": "app"}, "schema='app' is for PostgreSQL, and .* sqlite; use table_p"),
        ("sqlite:///app.db?schema=app", {}, "schema='app' is for PostgreSQL"),
        (
            "sqlite:///app.db",
            {"table_prefix": "sqlite_"},
            "table_prefix='sqlite_' begins as the names of SQLite's",
        ),
        ("mariadb://host/name?schema=app", {}, "schema='app' is for PostgreSQL, and .* mariadb; use table_p"),
    ],
)
def test_a_name_that_can_not_be_used_is_refused_by_name(url: str, given: Any, words: str) -> None:
    for refuse in (create_engine, schema.sql):
        with pytest.raises(InvalidSettingError, match=words) as refused:
            refuse(url, **given)
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "given"),
    [
        (f"{POSTGRESQL}?schema=app&table_prefix=x_", {}),
        (POSTGRESQL, {"schema": "app", "table_prefix": "x_"}),
        (f"{POSTGRESQL}?schema=app", {"schema": "app", "table_prefix": "x_"}),
        ("postgresql+psycopg://host/name?schema=app&table_prefix=x_", {}),
    ],
)
def test_names_are_given_in_the_url_or_beside_it(url: str, given: dict[str, Any]) -> None:
    engine = create_engine(url, **given)
    assert names_of(engine) == names_of(another_engine(engine)) == Names("app", "x_")


@pytest.mark.parametrize("url", ["sqlite://?table_prefix=x_", "mariadb://host/name?table_prefix=x_"])
def test_a_prefix_is_for_every_kind_of_database(url: str) -> None:
    assert names_of(create_engine(url)) == Names(None, "x_")
    assert names_of(create_engine(url.partition("?")[0])) == PLAIN_NAMES


async def echo(ctx: StageContext[Any]) -> Any:
    return ctx.input


async def test_open_kernel_refuses_names_where_they_name_nothing(tmp_path: Path) -> None:
    flow = define_workflow("echo", input=Any).pipe(define_stage("echo", echo, input=Any, output=Any)).build()
    with pytest.raises(InvalidSettingError, match="schema='app' is for PostgreSQL"):
        async with open_kernel(flow, f"sqlite:///{tmp_path}/app.db", schema="app"):
            pass
    with pytest.raises(
        InvalidSettingError, match="table_prefix='x_' names tables in a database, and memory://"
    ):
        async with open_kernel(flow, "memory://", table_prefix="x_"):
            pass


def names_in_statements(url: str, **given: str) -> set[str]:
    """The names of all that the migrations ever make."""
    made = r"(?:TABLE|INDEX|CONSTRAINT|FUNCTION) (?:IF NOT EXISTS |IF EXISTS )?(?:\"?\w+\"?\.)?(\w+)"
    return set(re.findall(made, schema.sql(url, **given)))


@pytest.mark.parametrize("url", ["sqlite://", "postgresql://host/name", "mariadb://host/name"])
def test_every_name_has_the_prefix_and_room_for_it(url: str) -> None:
    plain, prefix = names_in_statements(url), "p" * LONGEST_PREFIX
    assert {"workflow_runs", "ix_workflow_runs_pending", VERSION_TABLE} <= plain
    assert names_in_statements(url, table_prefix=prefix) == {prefix + name for name in plain}
    assert max(map(len, plain)) + LONGEST_PREFIX <= LIMIT
    # Or what one store makes could have a name of another one's, whose prefix ends as a name begins.
    begun = {one.removesuffix(other) for one in plain for other in plain if one.endswith(other)}
    assert begun <= {"", "ix_", "uq_", "pk_", "fk_"}


def test_stores_have_channels_and_locks_of_their_own() -> None:
    given = [
        (None, ""),
        ("app", ""),
        (None, "app"),
        ("app", "x_"),
        ("appx_", ""),
        ("app", "x"),
        ("x_", "app"),
    ]
    names = [Names(*one) for one in given]
    assert names[0] == PLAIN_NAMES
    assert names[0].channel == "stagewright_work"
    assert len({one.channel for one in names}) == len({one.schema_lock for one in names}) == len(names)
    assert all(len(one.channel) <= LIMIT and -(2**63) <= one.schema_lock < 2**63 for one in names)


def test_statements_are_built_once_for_each_store() -> None:
    named = tables_of(Names("app", "x_"))
    assert tables_of(Names("app", "x_")) is named
    assert tables_of(PLAIN_NAMES) is PLAIN_TABLES
    assert reads.lock_runs(named, 2) is reads.lock_runs(named, 2)
    assert reads.lock_runs(named, 2) is not reads.lock_runs(PLAIN_TABLES, 2)
    assert reads.lock_runs(named, 2) is not reads.lock_runs(named, 3)


def test_what_a_statement_says_in_text_has_the_names_too() -> None:
    tables = tables_of(Names("app", "x_"))
    first: Any = outbox.first_pending_events(tables)
    shown = str(first.compile(dialect=create_engine(POSTGRESQL).dialect))
    assert '"app".x_outbox_events.pending' in shown
    hinted = claims.claim_pending_runs(tables, dialect.SQLITE, None).chosen
    assert set(hinted._hints.values()) == {
        "INDEXED BY x_ix_workflow_runs_pending",
        "FORCE INDEX (x_ix_workflow_runs_pending)",
    }
    locked: Any = jobs.lock_jobs_at_rest(tables, 1)
    assert list(locked._hints.values()) == ["FORCE INDEX (x_uq_job_queue_run_id_stage_id)"]
    ordered: Any = reads.lock_runs(tables, 1)
    assert list(ordered._hints.values()) == ["FORCE INDEX (PRIMARY)"]


def operations() -> NamedOperations:
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True})
    return NamedOperations(context, Names("app", "x_"))


def test_a_migration_says_plain_names(capsys: pytest.CaptureFixture[str]) -> None:
    op = operations()
    op.add_column("job_queue", sa.Column("color", sa.Text()))
    op.alter_column("job_queue", "color", nullable=False)
    op.create_index("ix_job_queue_color", "job_queue", ["color"], postgresql_where=sa.text("color = 'red'"))
    op.drop_index("ix_job_queue_color", "job_queue")
    op.create_unique_constraint("uq_job_queue_color", "job_queue", ["color"])
    op.drop_constraint("uq_job_queue_color", "job_queue")
    op.execute("UPDATE {job_queue} SET color = '{}' WHERE id ~ '^.{8}$'")
    op.drop_column("job_queue", "color")
    op.drop_table("job_queue")
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert said == [
        "ALTER TABLE app.x_job_queue ADD COLUMN color TEXT;",
        "ALTER TABLE app.x_job_queue ALTER COLUMN color SET NOT NULL;",
        "CREATE INDEX x_ix_job_queue_color ON app.x_job_queue (color) WHERE color = 'red';",
        "DROP INDEX app.x_ix_job_queue_color;",
        "ALTER TABLE app.x_job_queue ADD CONSTRAINT x_uq_job_queue_color UNIQUE (color);",
        "ALTER TABLE app.x_job_queue DROP CONSTRAINT x_uq_job_queue_color;",
        "UPDATE \"app\".x_job_queue SET color = '{}' WHERE id ~ '^.{8}$';",
        "ALTER TABLE app.x_job_queue DROP COLUMN color;",
        "DROP TABLE app.x_job_queue;",
    ]


def test_what_can_not_be_given_names_is_refused() -> None:
    op = operations()
    with pytest.raises(TypeError, match="has to execute text"):
        op.execute(sa.text("DELETE FROM job_queue"))
    with pytest.raises(TypeError, match="BulkInsertOp doesn't know the names"):
        op.bulk_insert(sa.table("job_queue", sa.column("id")), [{"id": "1"}])
    with pytest.raises(
        TypeError, match="run_id: a migration has to refer to tables by a ForeignKeyConstraint"
    ):
        op.add_column("job_queue", sa.Column("run_id", sa.Text(), sa.ForeignKey("workflow_runs.id")))
