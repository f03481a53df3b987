from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

__all__ = ["DispatchMiddleware"]

# Any: a command and its result have one type per command, which a function around all of them can't name.
DispatchMiddleware: TypeAlias = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
"""`async def middleware(command, call_next)`: what runs around every dispatch."""
