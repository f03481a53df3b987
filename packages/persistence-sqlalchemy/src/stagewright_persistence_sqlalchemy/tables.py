"""The tables, under the names of one store; and what is built once for them."""

from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Column, ColumnElement, Constraint, Index, MetaData, Table
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql import quoted_name

from stagewright_persistence_sqlalchemy import table_definitions as of
from stagewright_persistence_sqlalchemy.mariadb_types import TABLE_OPTIONS
from stagewright_persistence_sqlalchemy.names import PLAIN_NAMES, Names
from stagewright_persistence_sqlalchemy.partial_indexes import FlagWhereIndexed

__all__ = [
    "PLAIN_TABLES",
    "Tables",
    "for_tables",
    "names_of_table",
    "tables_of",
]

P = ParamSpec("P")
R = TypeVar("R")
_NAMES: Final = "stagewright_names"


class Tables:
    """The tables of one store: statements are built on them, and so carry its names wherever they are sent.

    Args:
        names: What the tables are called.

    Attributes:
        names: The names that were given.
        metadata: All tables together.
        by_name: Each table by what it is called without a prefix.
        built: What `for_tables` keeps, by the functions that build it.
    """

    def __init__(self, names: Names = PLAIN_NAMES) -> None:
        self.names: Final = names
        self.metadata: Final = MetaData(schema=names.schema, naming_convention=_conventions(names))
        self.by_name: Final[dict[str, Table]] = {}
        self.built: Final[dict[Callable[..., Any], Callable[..., Any]]] = {}
        self.runs: Final = of.define_runs(self._define)
        self.definitions: Final = of.define_definitions(self._define)
        self.stages: Final = of.define_stages(self._define, self.runs)
        self.steps: Final = of.define_steps(self._define)
        self.step_signals: Final = of.define_step_signals(self._define, self.runs)
        self.logs: Final = of.define_logs(self._define, self.runs)
        self.annotations: Final = of.define_annotations(self._define, self.runs, self.stages)
        self.jobs: Final = of.define_jobs(self._define)
        self.group_locks: Final = of.define_group_locks(self._define)
        self.outbox: Final = of.define_outbox(self._define, self.runs)
        self.idempotency_keys: Final = of.define_idempotency_keys(self._define)
        self.signals: Final = of.define_signals(self._define)
        self.blobs: Final = of.define_blobs(self._define)
        self.tombstones: Final = of.define_tombstones(self._define)
        self.ai_calls: Final = of.define_ai_calls(self._define)
        for table in self.by_name.values():
            for index in table.indexes:
                index.name = quoted_name(names.of(str(index.name)), None)

    def wants_a_job(self) -> ColumnElement[bool]:
        """Whether a stage waits for a job that no transport has yet."""
        return of.wants_a_job(self.stages)

    @property
    def told_of_jobs(self) -> list[Column[Any]]:
        """The columns of jobs that anybody is told; databases from before there were groups have no others."""
        return [column for column in self.jobs.c if column.name != "group_key"]

    def is_pending(self) -> ColumnElement[bool]:
        """Whether an event waits, such that its index is used."""
        return FlagWhereIndexed(f"{self.names.qualified('outbox_events')}.pending")

    def _define(self, name: str, *items: SchemaItem, since: str = "") -> Table:
        info = {_NAMES: self.names, "since": since}
        table = Table(self.names.of(name), self.metadata, *items, info=info, **TABLE_OPTIONS)
        self.by_name[name] = table
        return table


@lru_cache(maxsize=128)
def tables_of(names: Names) -> Tables:
    """The tables of these names, the same ones each time."""
    return PLAIN_TABLES if names == PLAIN_NAMES else Tables(names)


def names_of_table(table: Table) -> Names:
    """The names that a table's is one of."""
    names: Names = table.info[_NAMES]
    return names


def for_tables(
    *, maxsize: int
) -> Callable[[Callable[Concatenate[Tables, P], R]], Callable[Concatenate[Tables, P], R]]:
    """Have a function build what it builds once for the same tables and arguments, which are hashable.

    Args:
        maxsize: For how many arguments it is kept, of each store.
    """

    def keeping(build: Callable[Concatenate[Tables, P], R]) -> Callable[Concatenate[Tables, P], R]:
        @wraps(build)
        def built(tables: Tables, /, *arguments: P.args, **options: P.kwargs) -> R:
            kept = tables.built.get(build)
            if kept is None:
                tables.built[build] = kept = _kept(partial(build, tables), maxsize)
            answer: R = kept(*arguments, **options)
            return answer

        return built

    return keeping


def _kept(build: Callable[..., Any], maxsize: int) -> Callable[..., Any]:  # Any: whatever is built
    return lru_cache(maxsize)(build)


def _conventions(names: Names) -> dict[str, Any]:  # Any: SQLAlchemy takes texts and functions
    def plain_name(_constraint: Constraint | Index, table: Table) -> str:
        return table.name.removeprefix(names.table_prefix)

    return {
        "plain_name": plain_name,
        "ix": names.of("ix_%(plain_name)s_%(column_0_N_name)s"),
        "uq": names.of("uq_%(plain_name)s_%(column_0_N_name)s"),
        "fk": names.of("fk_%(plain_name)s_%(column_0_N_name)s"),
        "pk": names.of("pk_%(plain_name)s"),
    }


PLAIN_TABLES: Final = Tables()
"""The tables of a store that was given no names."""
