"""The public names, frozen: `python -m stagewright_test_support.architecture.public_exports --write`."""

import importlib
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["PUBLIC_MODULES", "SNAPSHOT", "exports_of", "main", "read_snapshot", "written_as"]

SNAPSHOT = Path("tests/architecture/public_exports.json")

PUBLIC_MODULES = (
    "stagewright",
    "stagewright.blob_keys",
    "stagewright.commands",
    "stagewright.conventions",
    "stagewright.errors",
    "stagewright.events",
    "stagewright.executors",
    "stagewright.filesystem",
    "stagewright.hosting",
    "stagewright.memory",
    "stagewright.plugins",
    "stagewright.ports",
    "stagewright.records",
    "stagewright.system",
    "stagewright.testing",
    "stagewright_conformance",
)


def exports_of(modules: Iterable[str]) -> dict[str, list[str]]:
    """The sorted `__all__` of each module that exists.

    Raises:
        AttributeError: A module has no `__all__`, or a name in it that it doesn't hold.
    """
    exports: dict[str, list[str]] = {}
    for name in modules:
        if importlib.util.find_spec(name) is None:
            continue
        module = importlib.import_module(name)
        names = sorted(module.__all__)
        for exported in names:
            getattr(module, exported)
        exports[name] = names
    return exports


def written_as(exports: dict[str, list[str]]) -> str:
    return json.dumps(exports, indent=2, sort_keys=True) + "\n"


def read_snapshot(path: Path) -> dict[str, list[str]]:
    snapshot: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return snapshot


def main(arguments: list[str]) -> int:
    text = written_as(exports_of(PUBLIC_MODULES))
    if arguments == ["--write"]:
        SNAPSHOT.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
