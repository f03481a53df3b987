"""What goes wrong with a server."""

__all__ = ["ServerError"]


class ServerError(Exception):
    """A server can't be had, didn't start or refused a request.

    Attributes:
        server: The name of the server's kind, such as `postgres`.
        reason: What happened, in one sentence.
        log: The last lines that the server wrote, oldest first; empty where it wrote none.
    """

    def __init__(self, server: str, reason: str, log: str = "") -> None:
        self.server = server
        self.reason = reason
        self.log = log
        told = f"; its last lines:\n{log}" if log else ""
        super().__init__(f"{server}: {reason}{told}")
