"""A folder on the path: the benchmarks are no distribution, and are run from the root of the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
