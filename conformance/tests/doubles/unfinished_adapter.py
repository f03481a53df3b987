"""An adapter's test class that gives no store; collected by an inner run alone."""

from stagewright_conformance import BlobStreamSuite


class TestNothingGiven(BlobStreamSuite):
    pass
