"""What a running stage touches: its context, its storage, its reports, and the thread or task that it runs in."""

__all__: list[str] = []
