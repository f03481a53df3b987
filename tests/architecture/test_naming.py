import pytest

from stagewright_test_support.architecture.faults import expect_none
from stagewright_test_support.architecture.made_up import MakeTree
from stagewright_test_support.architecture.naming import init_files_that_do_more, vague_names
from stagewright_test_support.architecture.repository import Repository

INIT = "packages/a/src/a/__init__.py"

# File to reason. A vendor that is slow to import, behind a plugin that every command loads, is the only good one.
ALLOWED_TO_DO_MORE = {
    "conformance/src/stagewright_conformance/__init__.py": (
        "its names bring pytest, which the plugin beside it must not"
    ),
    "packages/blob-gcs/src/stagewright_blob_gcs/__init__.py": (
        "its names bring Google's client, which the plugin beside it must not"
    ),
    "packages/blob-s3/src/stagewright_blob_s3/__init__.py": (
        "its names bring boto3, which the plugin beside it must not"
    ),
    "packages/core/src/stagewright/__init__.py": "its names bring all of the core, which few users need at once",
    "packages/persistence-sqlalchemy/src/stagewright_persistence_sqlalchemy/__init__.py": (
        "its names bring SQLAlchemy, which the plugin beside it must not"
    ),
    "packages/transport-redis/src/stagewright_transport_redis/__init__.py": (
        "its names bring redis-py, which the plugin beside it must not"
    ),
}


def test_modules_of_this_repository_have_telling_names(repository: Repository) -> None:
    expect_none(vague_names(repository))


def test_init_files_of_this_repository_only_re_export(repository: Repository) -> None:
    expect_none(init_files_that_do_more(repository, ALLOWED_TO_DO_MORE))


@pytest.mark.parametrize(
    "where", ["packages/a/src/a/utils.py", "packages/a/src/a/helpers/order.py", "tests/base.py"]
)
def test_a_vague_name_is_found(made_up: MakeTree, where: str) -> None:
    [fault] = vague_names(made_up({where: ""}))
    assert where in fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("from a.b import c\n", "1: has no explicit __all__"),
        ('from a.b import c, d\n\n__all__ = ["c"]\n', "1: __all__ and the imports differ: d"),
        ('from a.b import c\n\n__all__ = ["c"]\n\ndef f(): ...\n', "5: only re-exports belong here"),
        ('from a.b import c\n\n__all__ = ["c"] + a.__all__\n', "1: has no explicit __all__"),
    ],
)
def test_an_init_file_that_does_more_is_found(made_up: MakeTree, text: str, fault: str) -> None:
    assert init_files_that_do_more(made_up({INIT: text}), {}) == [f"{INIT}:{fault}"]


@pytest.mark.parametrize(
    "text", ["", '"""Rules."""\n', "__all__: list[str] = []\n", 'from a.b import c as d\n\n__all__ = ["d"]\n']
)
def test_an_init_file_that_only_re_exports_passes(made_up: MakeTree, text: str) -> None:
    assert init_files_that_do_more(made_up({INIT: text}), {}) == []


def test_an_init_file_that_does_more_passes_where_that_is_allowed_and_done(made_up: MakeTree) -> None:
    tree = made_up({INIT: "def f(): ...\n"})
    assert init_files_that_do_more(tree, {INIT: "a reason"}) == []
    assert init_files_that_do_more(tree, {INIT: "a reason", "gone.py": "x"}) == [
        "gone.py: may do more than re-export but doesn't"
    ]
