"""`ctx.ai` in a harness."""

from dataclasses import replace
from typing import Any

from stagewright.errors import AIServicesNotConfiguredError
from stagewright.ports import AICallLogger, KernelServices

__all__ = ["MockedAI"]


class MockedAI:
    """Gives bodies an object of the test's in the place of what the services make.

    Attributes:
        services: What a kernel is to be given.
        stand_in: What `ctx.ai` is; None leaves it to the services.
    """

    def __init__(self, services: KernelServices) -> None:
        self.stand_in: Any = None  # Any: the helper's type is its package's own
        self._make = services.ai
        self.services = replace(services, ai=self._made)

    def _made(self, topic: str, logger: AICallLogger | None) -> Any:
        if self.stand_in is not None:
            return self.stand_in
        if self._make is None:
            raise AIServicesNotConfiguredError("ai")
        return self._make(topic, logger)
