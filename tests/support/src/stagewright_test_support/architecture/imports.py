"""What a shipped module may import, and where the statement stands."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from stagewright_test_support.architecture.repository import Distribution, Module, Repository

__all__ = ["imports_of_own_root", "local_imports", "undeclared_imports"]

# What a distribution brings under another name than its own.
_BROUGHT = {"pydantic": {"pydantic", "pydantic_core", "typing_extensions"}}


def local_imports(repository: Repository, allowed: Mapping[str, str]) -> list[str]:
    """Imports inside functions, except in the files that `allowed` maps to their reason."""
    found: list[str] = []
    used: set[str] = set()
    for module in repository.source_modules:
        lines = [
            node.lineno
            for function in ast.walk(module.tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        if lines and module.where in allowed:
            used.add(module.where)
        elif lines:
            found.append(f"{module.where}:{lines[0]}: an import inside a function")
    gone = sorted(set(allowed) - used)
    found.extend(f"{where}: is allowed local imports but has none" for where in gone)
    return found


def imports_of_own_root(repository: Repository) -> list[str]:
    """Imports of names from the `__init__` of a package that the module is in; submodules may be named."""
    found: list[str] = []
    for distribution in repository.distributions:
        source = distribution.folder / "src"
        for module in _modules_of(repository, distribution):
            ancestors = _ancestors(module.path, source)
            for line, target, names in _imports(module.tree):
                folder = source.joinpath(*target.split("."))
                facade_names = names is None or any(not _is_submodule(folder, name) for name in names)
                if target in ancestors and facade_names:
                    found.append(f"{module.where}:{line}: imports its own package {target}")
    return found


def undeclared_imports(repository: Repository) -> list[str]:
    """Third-party imports that the distribution's own dependencies don't bring.

    An extra's packages may be imported only in the sub-package that bears the extra's name.
    """
    found: list[str] = []
    for distribution in repository.distributions:
        own = {package.name for package in distribution.packages}
        always = {*sys.stdlib_module_names, "_typeshed"} | own | _modules_from(distribution.dependencies)
        for module in _modules_of(repository, distribution):
            inside = set(module.path.relative_to(distribution.folder).with_suffix("").parts)
            known = always.union(
                *(_modules_from(needs) for extra, needs in distribution.extras.items() if extra in inside)
            )
            found.extend(
                f"{module.where}:{line}: imports {target}, which {distribution.name} doesn't depend on"
                for line, target, names in _imports(module.tree)
                if not all(_is_of(whole, known) for whole in _whole_names(target, names))
            )
    return found


def _whole_names(target: str, names: list[str] | None) -> list[str]:
    """The modules that an import may mean: of `from a import b` that is `a.b`."""
    return [target] if names is None else [f"{target}.{name}" for name in names]


def _is_of(whole: str, known: set[str]) -> bool:
    """Whether a module is of a known package; of several below one name, each is known as `google_auth` is."""
    parts = whole.split(".")
    return any("_".join(parts[:end]) in known for end in range(1, len(parts) + 1))


def _modules_of(repository: Repository, distribution: Distribution) -> list[Module]:
    root = f"{distribution.where}/src/"
    return [module for module in repository.source_modules if module.where.startswith(root)]


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, list[str] | None]]:
    """Line, module, and the names taken from it; `None` for a plain `import`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, None
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module, [alias.name for alias in node.names]


def _ancestors(path: Path, source: Path) -> set[str]:
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    parts = folder.relative_to(source).parts if folder != source else ()
    return {".".join(parts[:end]) for end in range(1, len(parts) + 1)}


def _is_submodule(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def _modules_from(requirements: list[str]) -> set[str]:
    modules: set[str] = set()
    for requirement in requirements:
        matched = re.match(r"[A-Za-z0-9._-]+", requirement)
        name = matched.group(0) if matched else requirement
        module = name.lower().replace("-", "_").replace(".", "_")
        modules |= _BROUGHT.get(name, {"stagewright"} if name == "stagewright-core" else {module})
    return modules
