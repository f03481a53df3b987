"""What the suite can be pointed at: the targets that installed plugins name."""

from stagewright.plugins import ConformanceTarget, discover_plugins

__all__ = ["installed_targets", "target_lines"]


def installed_targets() -> tuple[ConformanceTarget, ...]:
    """The targets of all installed plugins, by name.

    Raises:
        PluginConflictError: If two plugins give one name to theirs.
    """
    return tuple(sorted(discover_plugins().conformance_targets(), key=lambda target: target.name))


def target_lines(targets: tuple[ConformanceTarget, ...]) -> list[str]:
    """A table of targets: what each is called, its URL, and what it needs."""
    rows = [("target", "URL", "needs")]
    rows += [(target.name, target.url, target.server or "nothing") for target in targets]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
