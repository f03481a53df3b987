"""Where the console script begins, with or without what the extra `cli` brings."""

import sys

try:
    from stagewright.cli.application import run_application
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"click", "pydantic_settings", "rich"}:
        raise
    from stagewright.cli.missing_extra import run_application
except KeyboardInterrupt:
    # Whoever interrupts while the command is still being loaded sees what an interrupt later shows.
    from stagewright.cli.interrupted import run_application

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and exit."""
    sys.exit(run_application(sys.argv[1:]))
