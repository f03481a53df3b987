"""What a durable step is made of."""

__all__: list[str] = []
