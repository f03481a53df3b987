import pytest

from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.imports import (
    imports_of_own_root,
    local_imports,
    undeclared_imports,
)
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.repository import Repository

# File to reason. A vendor that is optional, or slow and not needed by whoever imports the file, is the only good one.
ALLOWED_LOCAL_IMPORTS: dict[str, str] = {
    "conformance/src/stagewright_conformance/plugin.py": "every command loads it, and click comes with an extra",
    "conformance/src/stagewright_conformance/cli/command_line.py": (
        "every command loads it, and only `stagewright conformance` needs pytest"
    ),
    "packages/blob-gcs/src/stagewright_blob_gcs/plugin.py": "every command loads it, and Google's client is slow",
    "packages/blob-s3/src/stagewright_blob_s3/plugin.py": "every command loads it, and boto3 is slow",
    "packages/host-node/src/stagewright_host_node/plugin.py": "every worker loads it, and click comes with an extra",
    "packages/persistence-sqlalchemy/src/stagewright_persistence_sqlalchemy/plugin.py": (
        "every command loads it; SQLAlchemy is slow, and click comes with an extra"
    ),
    "packages/persistence-sqlalchemy/src/stagewright_persistence_sqlalchemy/cli.py": (
        "every command loads it, and only `stagewright db` needs SQLAlchemy"
    ),
    "packages/persistence-sqlalchemy/src/stagewright_persistence_sqlalchemy/schema.py": (
        "every worker loads it, and only migrations need Alembic"
    ),
    "packages/transport-redis/src/stagewright_transport_redis/plugin.py": (
        "every command loads it, and redis-py is slow to import"
    ),
}

PROJECT = """
[project]
name = "stagewright-a"
dependencies = ["stagewright-core>=0.1,<0.2", "some-sdk[async]>=2"]

[project.optional-dependencies]
cli = ["click>=8"]
"""
TREE = {"packages/a/pyproject.toml": PROJECT, "packages/a/src/a/__init__.py": ""}


def test_this_repository_imports_at_the_top(repository: Repository) -> None:
    expect_none(local_imports(repository, ALLOWED_LOCAL_IMPORTS))


def test_no_module_of_this_repository_imports_its_own_package(repository: Repository) -> None:
    expect_none(imports_of_own_root(repository))


@pytest.mark.guarantee("packaging.only-declared-imports")
def test_distributions_of_this_repository_import_only_what_they_declare(repository: Repository) -> None:
    expect_none(undeclared_imports(repository))


def test_an_import_inside_a_function_is_found_unless_listed(made_up: MakeTree) -> None:
    where = "packages/a/src/a/b.py"
    tree = made_up({**TREE, where: "def f():\n    import json\n"})
    assert local_imports(tree, {}) == [f"{where}:2: an import inside a function"]
    assert local_imports(tree, {where: "an optional vendor"}) == []
    assert local_imports(tree, {where: "x", "gone.py": "x"}) == [
        "gone.py: is allowed local imports but has none"
    ]


def test_an_import_of_the_own_package_is_found(made_up: MakeTree) -> None:
    tree = made_up(
        {
            **TREE,
            "packages/a/src/a/rooms/__init__.py": "from a.rooms import door\n",
            "packages/a/src/a/rooms/door.py": "from a import Thing\nfrom a.rooms import window\n",
            "packages/a/src/a/rooms/window.py": "import a\nfrom a.rooms import Door\n",
        }
    )
    assert imports_of_own_root(tree) == [
        "packages/a/src/a/rooms/door.py:1: imports its own package a",
        "packages/a/src/a/rooms/window.py:1: imports its own package a",
        "packages/a/src/a/rooms/window.py:2: imports its own package a.rooms",
    ]


def test_an_undeclared_import_is_found(made_up: MakeTree) -> None:
    tree = made_up(
        {
            **TREE,
            "packages/a/src/a/adapter.py": "import json\nimport some_sdk.aio\nimport a.cli\nimport redis\n",
            "packages/a/src/a/host.py": "from stagewright.ports import Clock\nimport click\n",
            "packages/a/src/a/cli/__init__.py": "import click\n",
        }
    )
    assert undeclared_imports(tree) == [
        "packages/a/src/a/adapter.py:4: imports redis, which stagewright-a doesn't depend on",
        "packages/a/src/a/host.py:2: imports click, which stagewright-a doesn't depend on",
    ]


def test_of_packages_below_one_name_each_is_declared(made_up: MakeTree) -> None:
    project = PROJECT.replace('"some-sdk[async]>=2"', '"google-auth>=2", "google-cloud-storage>=3"')
    tree = made_up(
        {
            **TREE,
            "packages/a/pyproject.toml": project,
            "packages/a/src/a/adapter.py": (
                "import google.auth.iam\nfrom google.cloud import storage\nfrom google.auth import iam\n"
                "from google.cloud import storage, tasks\nimport google.genai\n"
            ),
        }
    )
    where = "packages/a/src/a/adapter.py"
    assert undeclared_imports(tree) == [
        f"{where}:4: imports google.cloud, which stagewright-a doesn't depend on",
        f"{where}:5: imports google.genai, which stagewright-a doesn't depend on",
    ]
