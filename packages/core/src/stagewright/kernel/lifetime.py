"""Whether a kernel may still be used, and where."""

from stagewright.errors import KernelClosedError
from stagewright.system import HomeProcess

__all__ = ["Lifetime"]


class Lifetime(HomeProcess):
    """The process that a kernel was made in, up to its end."""

    __slots__ = ("_is_over",)

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def end(self) -> None:
        """What is asked for from now on is refused."""
        self._is_over = True

    def require(self, what: str) -> None:
        """Refuse to go on in another process, and after the end.

        Raises:
            ForkedProcessError: If this process was forked off.
            KernelClosedError: If it has ended.
        """
        super().require(what)
        if self._is_over:
            raise KernelClosedError
