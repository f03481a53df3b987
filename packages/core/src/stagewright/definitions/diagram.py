"""A workflow drawn as Mermaid text."""

from collections.abc import Sequence
from typing import Any

from stagewright.definitions.stage import Stage

__all__ = ["mermaid_flowchart"]


def mermaid_flowchart(groups: Sequence[Sequence[Stage[Any, Any, Any]]]) -> str:
    """A flowchart of the groups, from input to output; stages that run concurrently share a box."""
    lines = ["flowchart TD", "    start([input])"]
    before, number = ["start"], 0
    for group_number, group in enumerate(groups, start=1):
        nodes: list[str] = []
        indent = "    "
        if len(group) > 1:
            lines.append(f'    subgraph g{group_number}["group {group_number}"]')
            indent = "        "
        for stage in group:
            number += 1
            nodes.append(f"s{number}")
            label = stage.id if stage.name == stage.id else f"{stage.name} ({stage.id})"
            lines.append(f'{indent}s{number}["{_escaped(label)}"]')
        if len(group) > 1:
            lines.append("    end")
        lines.extend(f"    {source} --> {target}" for source in before for target in nodes)
        before = nodes
    lines.append("    finish([output])")
    lines.extend(f"    {source} --> finish" for source in before)
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    """Text that Mermaid shows as it is: what has a meaning in its syntax goes as a character number."""
    plain = " ".join(label.split())
    return "".join(char if char.isalnum() or char in " _-.,()" else f"#{ord(char)};" for char in plain)
