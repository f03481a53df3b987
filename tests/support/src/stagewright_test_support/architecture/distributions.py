"""Every published distribution has its papers, names nobody and nowhere, and needs only what it may."""

from stagewright_test_support.architecture.repository import Distribution, Repository

__all__ = ["CORE_DEPENDENCIES", "core_needs_more", "missing_papers", "telling_metadata"]

CORE_DEPENDENCIES = ["pluggy>=1.5,<2", "pydantic>=2.10,<3"]

_PAPERS = ("README.md", "CHANGELOG.md", "LICENSE")
_TELLING = ("urls", "authors", "maintainers")


def missing_papers(repository: Repository) -> list[str]:
    found: list[str] = []
    licence = repository.root / "LICENSE"
    for distribution in repository.distributions:
        folder = distribution.folder
        found.extend(f"{distribution.where}/{n}: is missing" for n in _PAPERS if not (folder / n).is_file())
        own = folder / "LICENSE"
        if own.is_file() and licence.is_file() and own.read_bytes() != licence.read_bytes():
            found.append(f"{distribution.where}/LICENSE: differs from the root's")
        if not distribution.packages:
            found.append(f"{distribution.where}/src: holds no package")
        found.extend(
            f"{repository.where(package)}/{name}: is missing"
            for package in distribution.packages
            for name in ("__init__.py", "py.typed")
            if not (package / name).is_file()
        )
    return found


def telling_metadata(repository: Repository) -> list[str]:
    """Metadata that names people or addresses, or that disagrees on licence and Python."""
    found: list[str] = []
    for distribution in repository.distributions:
        project, where = distribution.project, f"{distribution.where}/pyproject.toml"
        found.extend(f"{where}: project.{key} has no place here" for key in _TELLING if key in project)
        if project.get("license") != "MIT":
            found.append(f'{where}: project.license is "MIT"')
        if project.get("requires-python") != ">=3.11":
            found.append(f'{where}: project.requires-python is ">=3.11"')
        if not distribution.name.startswith("stagewright-"):
            found.append(f"{where}: the name starts with stagewright-")
    return found


def core_needs_more(repository: Repository) -> list[str]:
    """Core depends on pydantic and pluggy; every other distribution pins core by a compatible range."""
    found: list[str] = []
    for distribution in repository.distributions:
        where = f"{distribution.where}/pyproject.toml"
        if distribution.name == "stagewright-core":
            if sorted(distribution.dependencies) != CORE_DEPENDENCIES:
                found.append(f"{where}: core depends on exactly {', '.join(CORE_DEPENDENCIES)}")
        elif not _pins_core(distribution):
            found.append(f"{where}: depends on stagewright-core by a range with both ends")
    return found


def _pins_core(distribution: Distribution) -> bool:
    ranges = [need for need in distribution.dependencies if need.startswith("stagewright-core")]
    return len(ranges) == 1 and ">=" in ranges[0] and "<" in ranges[0].replace(">=", "")
