"""What the tests of every Stagewright distribution share."""

from stagewright_test_support.services import need_backend

__all__ = ["need_backend"]
