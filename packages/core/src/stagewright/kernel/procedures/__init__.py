"""What two handlers or more do in the same way, inside a unit of work."""

__all__: list[str] = []
