"""Stagewright's stores on SQLite and PostgreSQL. A name is imported, and SQLAlchemy with it, when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stagewright_persistence_sqlalchemy.ai_call_logger import SqlAlchemyAICallLogger
    from stagewright_persistence_sqlalchemy.blob_store import SqlAlchemyBlobStore
    from stagewright_persistence_sqlalchemy.database import Database
    from stagewright_persistence_sqlalchemy.engine import create_engine, prepare_sqlite
    from stagewright_persistence_sqlalchemy.job_transport import SqlAlchemyJobTransport
    from stagewright_persistence_sqlalchemy.persistence import SqlAlchemyPersistence
    from stagewright_persistence_sqlalchemy.step_ledger import SqlAlchemyStepLedger
else:
    _HOMES = {
        "Database": "database",
        "SqlAlchemyAICallLogger": "ai_call_logger",
        "SqlAlchemyBlobStore": "blob_store",
        "SqlAlchemyJobTransport": "job_transport",
        "SqlAlchemyPersistence": "persistence",
        "SqlAlchemyStepLedger": "step_ledger",
        "create_engine": "engine",
        "prepare_sqlite": "engine",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOMES})


__all__ = [
    "Database",
    "SqlAlchemyAICallLogger",
    "SqlAlchemyBlobStore",
    "SqlAlchemyJobTransport",
    "SqlAlchemyPersistence",
    "SqlAlchemyStepLedger",
    "create_engine",
    "prepare_sqlite",
]
