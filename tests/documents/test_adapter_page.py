"""The page about adapters and its template are one project, which passes the suite."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

# What this repository has installed besides, and no adapter of somebody's needs.
LEFT_OUT = [
    f"-pno:{name}"
    for name in ("cacheprovider", "hypothesispytest", "xdist", "xdist.looponfail", "stagewright_test_support")
]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "write-an-adapter.md"
TEMPLATE = ROOT / "examples" / "adapter-template"
FILE = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# The disk need not outlive the tests, and waiting for it is most of what they take.
UNSYNCED = "import os\n\nos.fsync = lambda descriptor: None\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, installed for editing as far as plugins are found."""
    folder = tmp_path_factory.mktemp("stagewright") / TEMPLATE.name
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__", ".*", "dist"))
    files = {"tests/conftest.py": UNSYNCED}
    stated = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = stated["name"].replace("-", "_"), stated["version"]
    points = "".join(f"{key} = {value}\n" for key, value in stated["entry-points"]["stagewright"].items())
    needs = "".join(f"Requires-Dist: {need}\n" for need in stated["dependencies"])
    metadata = f"src/{name}-{version}.dist-info"
    files[f"{metadata}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: {stated['name']}\nVersion: {version}\n{needs}"
    )
    files[f"{metadata}/entry_points.txt"] = f"[stagewright]\n{points}"
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def run_in(project: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
    )


def run_tests(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_in(project, "-m", "pytest", *LEFT_OUT, "--conformance-table", *arguments)


def test_what_the_page_shows_is_in_the_template() -> None:
    shown = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    assert {name for name in shown if (TEMPLATE / name).is_file()} == set(shown)
    assert len(shown) == 5
    for name, text in shown.items():
        whole = (TEMPLATE / name).read_text(encoding="utf-8")
        for part in text.split("\n\n"):
            assert part.strip("\n") in whole, f"{name} of the template differs from the page:\n{part}"


@pytest.mark.guarantee("testing.the-adapter-page-is-enough")
def test_the_adapter_of_the_page_passes_the_suites_of_its_ports(project: Path) -> None:
    done = run_tests(project, "-k", "not Crash and not Crowds and not kill")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" \d{3} passed, \d+ deselected in ", done.stdout), done.stdout


@pytest.mark.wide
def test_the_template_is_whole_after_a_kill(project: Path) -> None:
    done = run_tests(project, "-k", "kill")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 5 passed, " in done.stdout, done.stdout


@pytest.mark.wide
def test_the_adapter_of_the_page_survives_the_loss_of_its_processes(project: Path) -> None:
    done = run_tests(project, "-k", "Crash or Crowds")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.wide
def test_each_command_of_the_page_runs_what_it_says(project: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    lines = re.findall(r"^stagewright (conformance .*?)(?:  +#.*)?$", text, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        done = run_in(project, "-m", "stagewright.cli", *shlex.split(line), "-k", "steps or keys")
        assert done.returncode == 0, line + done.stdout + done.stderr
        assert re.search(r"StepLedgerSuite +\d+", done.stdout), done.stdout


@pytest.mark.guarantee("testing.the-adapter-page-is-enough")
def test_a_clause_that_its_put_breaks_is_told_as_the_page_shows(project: Path) -> None:
    path = project / "src" / "stagewright_folder" / "files.py"
    sound = path.read_text(encoding="utf-8")
    broken = sound.replace("os.link(file.name, path)", "Path(file.name).replace(path)")
    assert broken != sound
    path.write_text(broken, encoding="utf-8")
    try:
        done = run_tests(project, "-k", "first_writers")
    finally:
        path.write_text(sound, encoding="utf-8")
    shown = re.search(
        r"^  (BlobSuite\.test_of_several.*?) \(assert",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    assert shown is not None
    assert done.returncode == 1, done.stdout + done.stderr
    assert " ".join(shown[1].split()) in done.stdout
