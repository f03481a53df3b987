"""Texts name no address outside this checkout, and links inside it lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from stagewright_test_support.architecture.repository import Repository

__all__ = ["broken_links", "outside_addresses"]

_ADDRESS = re.compile(r"(?:https?|git|ssh)(?:\+\w+)?://(?P<host>[^/\s\"'`)>:{\]]*)")
_REGISTRY = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|debian\.org|github\.com|gitlab\.com|anaconda\.org)\b"
)
_HARMLESS = re.compile(
    r"(?:127\.0\.0\.1|localhost|\[::1|json-schema\.org|www\.googleapis\.com|(?:[\w-]+\.)*example(?:\.(?:com|org|net))?|[\w.-]+\.test)"
)
# What XML calls SVG: a name, which nobody fetches.
_SVG = re.compile(re.escape("http://www.w3.org/2000/svg") + r"(?=[\"}])")
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(?P<title>.+?)\s*$", re.MULTILINE)


def outside_addresses(repository: Repository) -> list[str]:
    """Addresses of other hosts, and names of package registries and code hosts."""
    found: list[str] = []
    for path in repository.files():
        for number, line in enumerate(_lines(path), 1):
            hosts = [match["host"] for match in _ADDRESS.finditer(_SVG.sub("", line))]
            named = [host for host in hosts if not _HARMLESS.fullmatch(host)]
            named += [match.group() for match in _REGISTRY.finditer(line)]
            found.extend(f"{repository.where(path)}:{number}: names {host!r}" for host in named)
    return found


def broken_links(repository: Repository) -> list[str]:
    """Relative links in Markdown files to a file, or a heading of one, that isn't there."""
    found: list[str] = []
    for path in repository.files():
        if path.suffix == ".md":
            text = _FENCE.sub("", path.read_text(encoding="utf-8"))
            targets = [match["target"] for match in _LINK.finditer(text)]
            where = repository.where(path)
            found.extend(f"{where}: a link to {t} leads nowhere" for t in targets if not _leads(path, t))
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return


def _leads(path: Path, target: str) -> bool:
    if "://" in target:
        return True
    file, _, fragment = unquote(target).partition("#")
    goal = path.parent / file if file else path
    if not goal.exists():
        return False
    if not fragment or goal.suffix != ".md":
        return True
    headings = _HEADING.finditer(_FENCE.sub("", goal.read_text(encoding="utf-8")))
    return fragment in {_anchor(match["title"]) for match in headings}


def _anchor(title: str) -> str:
    kept = re.sub(r"[^\w\s-]", "", title.lower())
    return re.sub(r"\s", "-", kept)
