"""What a TARGET on the command line names: a workflow, several of them, or a registry."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import click

from stagewright.definitions import Workflow, WorkflowBuilder, WorkflowRegistry
from stagewright.errors import DefinitionError, UnknownWorkflowError
from stagewright.ports import EnumerableRegistry
from stagewright.ports import WorkflowRegistry as RegistryPort

__all__ = ["LoadedTarget", "TargetError", "load_target"]

_OWN_FOLDER: Final = Path(__file__).resolve().parents[1]
_NOTHING: Final = object()


class TargetError(click.ClickException):
    """The command line names something that isn't there or is no workflow."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """What a target named.

    Attributes:
        text: The target as it was written.
        registry: Where its workflows are found by id.
        workflows: All of them; None when the registry can't list them.
    """

    text: str
    registry: RegistryPort[Workflow]
    workflows: tuple[Workflow, ...] | None

    def choose(self, workflow_id: str | None) -> Workflow:
        """The workflow of that id, or the only one there is.

        Raises:
            TargetError: If there is none of that id, or several to choose from.
        """
        known = None if self.workflows is None else tuple(workflow.id for workflow in self.workflows)
        if workflow_id is not None:
            chosen = self.registry.get(workflow_id)
            if chosen is None:
                raise TargetError(f"{self.text}: {UnknownWorkflowError(workflow_id, known)}")
            return chosen
        if self.workflows is None:
            raise TargetError(
                f"{self.text} is a registry that can't list its workflows; choose with --workflow ID"
            )
        if len(self.workflows) != 1:
            listed = ", ".join(known or ())
            raise TargetError(
                f"{self.text} has {len(self.workflows)} workflows; choose one with --workflow ID: {listed}"
                if listed
                else f"{self.text} has no workflows"
            )
        return self.workflows[0]


def load_target(text: str) -> LoadedTarget:
    """Import what `path/to/file.py:name` or `package.module:name` names.

    The file's folder, or the current folder for a module, becomes the first on the path of imports, as for a script.

    Raises:
        TargetError: If it can't be imported, isn't there, or is no workflow; with the reason.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise TargetError(f"{text!r} is no target; write path/to/file.py:name or package.module:name")
    module = _imported(where)
    try:
        value = _named(module, name)
        if value is _NOTHING:
            raise TargetError(f"{where} has no {name!r}{_candidates(module)}")
        return _as_target(text, value)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"looking at {text} raised {_described(error)}") from error


def _named(module: ModuleType, name: str) -> object:
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, _NOTHING)
    return value


def _imported(where: str) -> ModuleType:
    try:
        return _imported_file(Path(where)) if where.endswith(".py") else _imported_module(where)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        raise TargetError(f"importing {where} raised {_described(error)}") from error


def _imported_file(path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise TargetError(f"there is no file {path}")
    sys.path.insert(0, str(path.parent))
    # A file called like a module that is loaded already must not replace it.
    taken = path.stem in sys.modules or path.stem in sys.stdlib_module_names
    name = f"_stagewright_target_{path.stem}" if taken else path.stem
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported_module(name: str) -> ModuleType:
    if name.startswith("."):
        hint = "; a file is written with its .py" if "/" in name else ""
        raise TargetError(f"{name!r} is no module; write path/to/file.py:name or package.module:name{hint}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            hint = "; a file is written with its .py" if "/" in name or Path(f"{name}.py").is_file() else ""
            raise TargetError(f"there is no module {error.name!r}{hint}") from error
        raise


def _as_target(text: str, value: object) -> LoadedTarget:
    if isinstance(value, Workflow):
        return _listed(text, [value])
    if isinstance(value, WorkflowBuilder):
        raise TargetError(f"{text} is a builder; a builder becomes a workflow with .build()")
    if callable(getattr(value, "get", None)) and not isinstance(value, dict):
        registry = cast(RegistryPort[Workflow], value)
        listed = tuple(cast(EnumerableRegistry[Workflow], value).list()) if hasattr(value, "list") else None
        return LoadedTarget(text, registry, listed)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        return _listed(text, cast("Iterable[Workflow]", value))
    raise TargetError(
        f"{text} is of type {type(value).__name__}; it must be a Workflow, a list of them or a registry"
    )


def _listed(text: str, values: Iterable[Workflow]) -> LoadedTarget:
    try:
        registry = WorkflowRegistry(values)
    except DefinitionError as error:
        raise TargetError(f"{text}: {error}") from error
    return LoadedTarget(text, registry, tuple(registry.list()))


def _candidates(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Workflow))
    return f"; it has the workflow{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""


def _described(error: BaseException) -> str:
    """The error in words, with the innermost line that raised it outside of this package and of the import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not Path(frame.filename).is_relative_to(_OWN_FOLDER)
    ]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"
