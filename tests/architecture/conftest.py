from functools import partial
from pathlib import Path

import pytest

from stagewright_test_support.architecture.made_up import MakeTree, make_tree
from stagewright_test_support.architecture.repository import Repository


@pytest.fixture(scope="session")
def repository() -> Repository:
    """This checkout."""
    return Repository(Path(__file__).resolve().parents[2])


@pytest.fixture
def made_up(tmp_path: Path) -> MakeTree:
    """Makes a tree of the files given by path and text."""
    return partial(make_tree, tmp_path)
