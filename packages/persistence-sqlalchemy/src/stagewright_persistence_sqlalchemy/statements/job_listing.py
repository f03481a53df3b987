"""Jobs for people to look at."""

from typing import Any

from sqlalchemy import BigInteger, Integer, Select, Text, bindparam, literal_column, select, union_all

from stagewright.status import Status
from stagewright_persistence_sqlalchemy.tables import Tables, for_tables

__all__ = ["listed_jobs"]


@for_tables(maxsize=256)
def listed_jobs(tables: Tables, statuses: tuple[Status, ...] | None, filters: tuple[str, ...]) -> Select[Any]:
    """Jobs, the last enqueued first.

    Args:
        tables: The tables.
        statuses: Those in one of these; all for None.
        filters: What else is given: `run_id`, `workflow_id`, and `before`, the position that the last page ended with.
    """
    jobs = tables.jobs
    if statuses is None:
        return _page(tables, select(jobs), filters)
    # Each status is read on its own, along its index, as far as the page goes; together they would have to be sorted.
    pages = []
    for status in statuses:
        # Spelled out, not bound: only so a planner sees that a partial index fits.
        of_status = select(jobs.c.position).where(jobs.c.status == literal_column(f"'{status}'"))
        pages.append(_page(tables, of_status, filters).subquery(f"of_{status.lower()}"))
    found = union_all(*(select(page.c.position) for page in pages)).subquery("found")
    listed = select(jobs).where(jobs.c.position.in_(select(found.c.position)))
    return listed.order_by(jobs.c.position.desc()).limit(bindparam("limit", type_=Integer()))


def _page(tables: Tables, statement: Select[Any], filters: tuple[str, ...]) -> Select[Any]:
    jobs = tables.jobs.c
    for name in filters:
        if name == "before":
            statement = statement.where(jobs.position < bindparam(name, type_=BigInteger()))
        else:
            statement = statement.where(jobs[name] == bindparam(name, type_=Text()))
    return statement.order_by(jobs.position.desc()).limit(bindparam("limit", type_=Integer()))
