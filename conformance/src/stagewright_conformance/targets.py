"""What the suite can be pointed at: the targets of core and of installed plugins, and which one describes a URL."""

from collections.abc import Iterable
from urllib.parse import parse_qsl

from stagewright.hosting import built_in_targets
from stagewright.plugins import ConformanceTarget, PluginSet, discover_plugins
from stagewright.plugins.adapters import scheme_of

__all__ = ["installed_targets", "target_lines", "target_of"]


def installed_targets(plugins: PluginSet | None = None) -> tuple[ConformanceTarget, ...]:
    """The targets of core and of all installed plugins, by name.

    Args:
        plugins: What is installed; None finds out.

    Raises:
        PluginConflictError: If two plugins give one name to theirs.
    """
    installed = discover_plugins() if plugins is None else plugins
    targets = (*built_in_targets(), *installed.conformance_targets())
    return tuple(sorted(targets, key=lambda target: target.name))


def target_of(url: str, targets: Iterable[ConformanceTarget]) -> ConformanceTarget | None:
    """The target that describes a URL; None if nobody does.

    It is of the URL's scheme, or else of the part of it before `+`, and every parameter in the target's URL is in this
    one too. Of several, the one with the most parameters is meant, then the one whose own scheme it is.
    """
    exact = scheme_of(url)
    parameters = _parameters(url)
    found: list[tuple[int, int, ConformanceTarget]] = []
    for target in targets:
        own = scheme_of(target.url)
        wanted = _parameters(target.url)
        names = (own, *target.schemes)
        closeness = (
            4 * (exact == own)
            or 3 * (exact in names)
            or 2 * (_plain(exact) in names)
            or 1 * (_plain(exact) in map(_plain, names))
        )
        if closeness and wanted <= parameters:
            found.append((len(wanted), closeness, target))
    return max(found, key=lambda one: one[:2])[2] if found else None


def target_lines(targets: tuple[ConformanceTarget, ...]) -> list[str]:
    """A table of targets: what each is called, its URL, and what it needs."""
    rows = [("target", "URL", "needs")]
    rows += [(target.name, target.url, target.server or "nothing") for target in targets]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _parameters(url: str) -> set[tuple[str, str]]:
    return set(parse_qsl(url.partition("?")[2], keep_blank_values=True))


def _plain(scheme: str) -> str:
    return scheme.partition("+")[0]
