"""Runs the Python blocks of the Markdown files, and takes time limits off generated examples.

The blocks of one file share a namespace and a folder.
"""

import contextlib
import tempfile
from typing import Any

from hypothesis import HealthCheck, settings
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# A machine that is busy is no fault of what is tested.
settings.register_profile(
    "unhurried", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")


def _enter(namespace: dict[str, Any]) -> None:
    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stagewright-docs-"))
    stack.enter_context(contextlib.chdir(folder))
    namespace["__name__"] = "__main__"
    namespace["_leave"] = stack.close


def _leave(namespace: dict[str, Any]) -> None:
    namespace["_leave"]()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["*.md"],
    setup=_enter,
    teardown=_leave,
).pytest()
