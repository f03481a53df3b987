"""Run by a fresh environment that holds core alone: what came with it, and does the README's script run?

Usage: `python first_steps.py README.md`. Needs the standard library only.
"""

import re
import subprocess
import sys
from importlib.metadata import distribution, distributions
from pathlib import Path

MARK = "<!-- ten-line script -->"
# What an environment may bring of its own.
ENVIRONMENT = {"pip", "setuptools", "wheel"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str) -> set[str]:
    """The names that installing `name` brings, itself included; extras and markers left out."""
    found = {plain(name)}
    for requirement in distribution(name).requires or []:
        head, _, marker = requirement.partition(";")
        matched = re.match(r"[A-Za-z0-9._-]+", head)
        if matched and not marker:
            found |= needs(matched.group())
    return found


def check_what_came_with_it() -> None:
    installed = {plain(found.metadata["Name"]) for found in distributions()} - ENVIRONMENT
    allowed = {"stagewright-core", "pluggy"} | needs("pydantic")
    if installed != allowed:
        sys.exit(f"core alone should bring {sorted(allowed)}, but here are {sorted(installed)}")
    print("installed:", ", ".join(sorted(installed)))


def script_of(readme: Path) -> str:
    text = readme.read_text(encoding="utf-8")
    matched = re.search(re.escape(MARK) + r"\s*```python\n(.*?)```", text, re.DOTALL)
    if matched is None:
        sys.exit(f"{readme.name} has no Python block after {MARK}")
    return matched.group(1)


def run_the_script(script: str) -> None:
    path = Path("first_steps_of_the_readme.py").resolve()
    path.write_text(script, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-I", "-W", "error", str(path)], capture_output=True, text=True, check=False
    )
    sys.stderr.write(ended.stderr)
    if ended.returncode != 0 or not ended.stdout.strip():
        sys.exit(f"the README's script ended with {ended.returncode} and printed {ended.stdout!r}")
    print("the README's script printed:", ended.stdout.strip())


def run_the_command_line() -> None:
    """Without its extra, the command says how to get it and ends with 2."""
    command = Path(sys.executable).with_name("stagewright")
    ended = subprocess.run([str(command), "plugins"], capture_output=True, text=True, check=False)
    if ended.returncode != 2 or "cli" not in ended.stderr or "Traceback" in ended.stderr:
        sys.exit(f"stagewright ended with {ended.returncode} and said {ended.stderr!r}")
    print("stagewright said:", ended.stderr.strip())


if __name__ == "__main__":
    check_what_came_with_it()
    run_the_script(script_of(Path(sys.argv[1])))
    run_the_command_line()
