"""Ports are small: at most eight methods a Protocol. A union of Protocols counts only its own."""

import ast

from stagewright_test_support.architecture.repository import Repository

__all__ = ["MOST_METHODS", "wide_protocols"]

MOST_METHODS = 8


def wide_protocols(repository: Repository) -> list[str]:
    found: list[str] = []
    for module in repository.source_modules:
        if "/ports/" not in module.where:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and any(_is_protocol(base) for base in node.bases):
                count = len(_methods(node))
                if count > MOST_METHODS:
                    found.append(
                        f"{module.where}:{node.lineno}: {node.name} has {count} methods, more than {MOST_METHODS}"
                    )
    return found


def _is_protocol(base: ast.expr) -> bool:
    if isinstance(base, ast.Subscript):
        base = base.value
    return ast.unparse(base) in {"Protocol", "typing.Protocol"}


def _methods(node: ast.ClassDef) -> set[str]:
    return {child.name for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)}
