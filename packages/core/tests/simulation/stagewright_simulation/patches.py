"""Changes to the text of the engine, made while it is imported."""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["Patch", "PatchDoesNotFitError", "apply_patches", "patched_source"]


@dataclass(frozen=True, slots=True)
class Patch:
    """One change: this text, which is there once, becomes that.

    Attributes:
        module: Whose text.
        old: What is there.
        new: What comes in its place.
    """

    module: str
    old: str
    new: str


class PatchDoesNotFitError(Exception):
    """The text that a patch changes isn't there, or more than once."""


def patched_source(source: str, patches: Sequence[Patch]) -> str:
    """The text of a module with its patches.

    Raises:
        PatchDoesNotFitError: If one doesn't fit.
    """
    for patch in patches:
        if source.count(patch.old) != 1:
            raise PatchDoesNotFitError(f"{patch.module} has {source.count(patch.old)} times: {patch.old}")
        source = source.replace(patch.old, patch.new)
    return source


def apply_patches(patches: Sequence[Patch]) -> None:
    """Patch modules that nobody has imported yet.

    Raises:
        PatchDoesNotFitError: If one of them is imported already.
    """
    by_module: dict[str, list[Patch]] = {}
    for patch in patches:
        if patch.module in sys.modules:
            raise PatchDoesNotFitError(f"{patch.module} is imported already")
        by_module.setdefault(patch.module, []).append(patch)
    sys.meta_path.insert(0, _Finder(by_module))


class _Finder(MetaPathFinder):
    def __init__(self, by_module: dict[str, list[Patch]]) -> None:
        self._by_module = by_module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = self._by_module.get(fullname)
        spec = None if patches is None else PathFinder.find_spec(fullname, path, target)
        if patches is None or spec is None or spec.origin is None:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(fullname, spec.origin, patches))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, patches: Sequence[Patch]) -> None:
        super().__init__(fullname, path)
        self._patches = patches

    def get_code(self, fullname: str) -> CodeType:
        """Past the cache of compiled modules."""
        source = patched_source(Path(self.path).read_text(encoding="utf-8"), self._patches)
        return compile(source, self.path, "exec", dont_inherit=True)
