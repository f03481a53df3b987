"""Adds up the tests of the given reports; a report that is missing or ran nothing is a failure."""

import sys
from pathlib import Path
from xml.etree import ElementTree


def count(path: Path) -> tuple[int, int, int]:
    """Passed, failed (errors too) and skipped."""
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def main(reports: list[Path]) -> int:
    passed = failed = skipped = 0
    silent: list[Path] = []
    for path in reports:
        counts = count(path) if path.is_file() else (0, 0, 0)
        if counts[0] + counts[1] == 0:
            silent.append(path)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    for path in silent:
        print(f"{path}: no test ran")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or silent else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
