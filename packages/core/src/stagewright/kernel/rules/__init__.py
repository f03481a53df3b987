"""Pure decisions over records: no port is called here."""

__all__: list[str] = []
