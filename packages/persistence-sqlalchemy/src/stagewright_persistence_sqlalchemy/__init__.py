"""Stagewright's stores on SQLite and PostgreSQL."""

from stagewright_persistence_sqlalchemy.blob_store import SqlAlchemyBlobStore
from stagewright_persistence_sqlalchemy.database import Database
from stagewright_persistence_sqlalchemy.engine import create_engine
from stagewright_persistence_sqlalchemy.job_transport import SqlAlchemyJobTransport
from stagewright_persistence_sqlalchemy.persistence import SqlAlchemyPersistence
from stagewright_persistence_sqlalchemy.step_ledger import SqlAlchemyStepLedger

__all__ = [
    "Database",
    "SqlAlchemyBlobStore",
    "SqlAlchemyJobTransport",
    "SqlAlchemyPersistence",
    "SqlAlchemyStepLedger",
    "create_engine",
]
