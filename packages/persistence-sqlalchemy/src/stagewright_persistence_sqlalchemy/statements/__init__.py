"""The SQL, each statement in a function named for its intent, written once in SQLAlchemy Core."""

__all__: list[str] = []
