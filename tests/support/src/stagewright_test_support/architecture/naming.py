"""Modules are nouns or verb phrases; a package's `__init__.py` only re-exports."""

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

from stagewright_test_support.architecture.repository import Module, Repository

__all__ = ["init_files_that_do_more", "vague_names"]

_VAGUE = {"base", "common", "helper", "helpers", "misc", "util", "utils", "utilities"}


def vague_names(repository: Repository) -> list[str]:
    found: list[str] = []
    for module in repository.modules:
        path = PurePosixPath(module.where)
        parts = {*path.parts[:-1], path.stem}
        found.extend(f"{module.where}: {name!r} says nothing" for name in sorted(parts & _VAGUE))
    return found


def init_files_that_do_more(repository: Repository, allowed: Mapping[str, str]) -> list[str]:
    """`__init__.py` holds a docstring, imports, and an `__all__` that names exactly what it imports.

    Files that `allowed` maps to their reason are left out; one of them that does nothing more is told too.
    """
    found: list[str] = []
    used: set[str] = set()
    for module in repository.modules:
        if PurePosixPath(module.where).name != "__init__.py":
            continue
        faults = [f"{module.where}:{line}" for line in _faults(module)]
        if faults and module.where in allowed:
            used.add(module.where)
        else:
            found.extend(faults)
    gone = sorted(set(allowed) - used)
    return [*found, *(f"{where}: may do more than re-export but doesn't" for where in gone)]


def _faults(module: Module) -> list[str]:
    imported: set[str] = set()
    exported: list[str] | None = None
    faults: list[str] = []
    body = list(module.tree.body)
    if body and _is_docstring(body[0]):
        body.pop(0)
    for statement in body:
        match statement:
            case ast.ImportFrom(names=names) | ast.Import(names=names):
                imported.update(alias.asname or alias.name for alias in names)
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value)
            ):
                exported = _strings(value)
            case _:
                faults.append(f"{statement.lineno}: only re-exports belong here")
    if body and exported is None:
        faults.append("1: has no explicit __all__")
    elif exported is not None and set(exported) != imported:
        odd = ", ".join(sorted(set(exported) ^ imported))
        faults.append(f"1: __all__ and the imports differ: {odd}")
    return faults


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _strings(value: ast.expr) -> list[str] | None:
    if not isinstance(value, ast.List | ast.Tuple):
        return None
    return [
        item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)
    ]
