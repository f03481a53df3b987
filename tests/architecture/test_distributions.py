import tomllib

import pytest

from stagewright_test_support.architecture.distributions import (
    core_needs_more,
    missing_papers,
    telling_metadata,
)
from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.repository import Repository

PROJECT = '[project]\nname = "stagewright-a"\nlicense = "MIT"\nrequires-python = ">=3.11"\n'
WHOLE = {
    "LICENSE": "MIT",
    "packages/a/LICENSE": "MIT",
    "packages/a/README.md": "",
    "packages/a/CHANGELOG.md": "",
    "packages/a/pyproject.toml": PROJECT + 'dependencies = ["stagewright-core>=0.1,<0.2"]\n',
    "packages/a/src/a/__init__.py": "",
    "packages/a/src/a/py.typed": "",
}


def test_distributions_of_this_repository_have_their_papers(repository: Repository) -> None:
    expect_none(missing_papers(repository))


def test_metadata_of_this_repository_names_nobody_and_nowhere(repository: Repository) -> None:
    expect_none(telling_metadata(repository))


@pytest.mark.guarantee("packaging.core-needs-two")
def test_core_depends_on_pydantic_and_pluggy_only(repository: Repository) -> None:
    assert "stagewright-core" in {distribution.name for distribution in repository.distributions}
    expect_none(core_needs_more(repository))


def test_the_support_package_is_never_published(repository: Repository) -> None:
    text = (repository.root / "tests/support/pyproject.toml").read_text(encoding="utf-8")
    assert "Private :: Do Not Upload" in tomllib.loads(text)["project"]["classifiers"]


def test_a_whole_distribution_passes(made_up: MakeTree) -> None:
    tree = made_up(WHOLE)
    assert missing_papers(tree) + telling_metadata(tree) + core_needs_more(tree) == []


@pytest.mark.parametrize(
    "missing", ["LICENSE", "README.md", "CHANGELOG.md", "src/a/py.typed", "src/a/__init__.py"]
)
def test_a_missing_paper_is_found(made_up: MakeTree, missing: str) -> None:
    tree = made_up({where: text for where, text in WHOLE.items() if where != f"packages/a/{missing}"})
    assert missing_papers(tree) == [f"packages/a/{missing}: is missing"]


def test_another_licence_text_is_found(made_up: MakeTree) -> None:
    assert missing_papers(made_up({**WHOLE, "packages/a/LICENSE": "?"})) != []


@pytest.mark.parametrize(
    "project",
    [
        PROJECT + 'authors = [{name = "A"}]\n',
        PROJECT + '[project.urls]\nHome = "x"\n',
        PROJECT.replace("MIT", "BSD"),
        PROJECT.replace("3.11", "3.12"),
        PROJECT.replace("stagewright-a", "a"),
    ],
)
def test_telling_or_different_metadata_is_found(made_up: MakeTree, project: str) -> None:
    assert len(telling_metadata(made_up({**WHOLE, "packages/a/pyproject.toml": project}))) == 1


@pytest.mark.parametrize(
    "project",
    [
        '[project]\nname = "stagewright-core"\ndependencies = ["pluggy>=1.5,<2", "pydantic", "click"]\n',
        '[project]\nname = "stagewright-a"\ndependencies = ["stagewright-core>=0.1"]\n',
        '[project]\nname = "stagewright-a"\ndependencies = []\n',
    ],
)
def test_a_wrong_dependency_is_found(made_up: MakeTree, project: str) -> None:
    assert len(core_needs_more(made_up({"packages/a/pyproject.toml": project}))) == 1
