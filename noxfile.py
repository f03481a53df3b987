"""Everything that can be run: `nox -l` lists it, `nox -s tests` is the command of the README."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from nox.command import CommandFailed

if sys.version_info < (3, 11):
    sys.exit("Stagewright needs Python 3.11 or later; this is " + sys.version.split()[0])

HERE = Path(__file__).resolve().parent
REPORTS = HERE / "build" / "reports"
CONSTRAINTS = ("-c", "constraints.txt")
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
EXTRAS = {
    "packages/core": "[cli]",
    "packages/persistence-sqlalchemy": "[asyncmy,asyncpg,psycopg,pymysql]",
    "tests/support": "[servers]",
}

TEST_TOOLS = ["coverage", "hypothesis", "pytest", "pytest-asyncio", "pytest-xdist", "sybil"]
# The typing tests run the type checkers.
TYPE_TOOLS = ["basedpyright", "mypy", "nox"]
# Installed beside everything else for the session of the benchmark alone.
PEERS = ["celery", "dbos", "dramatiq", "pgqueuer", "procrastinate", "restate-sdk"]
# A program that no index for Python has.
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"
LINT_TOOLS = ["import-linter", "ruff"]
QUICK = "not thorough and not wide and not slow and not soak and not plans"

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False


def _prepare_environment() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("UV_COMPILE_BYTECODE", "1")
    os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
    cache = Path(os.environ.get("UV_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    standing = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if not os.access(standing, os.W_OK):
        os.environ.setdefault("UV_NO_CACHE", "1")
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    if versions.is_dir():
        names = [path.name for path in versions.iterdir() if re.fullmatch(r"3\.1[1-9]\.\d+", path.name)]
        # pyenv's shims answer only for selected versions.
        if names:
            names.sort(key=lambda name: [int(part) for part in name.split(".")])
            os.environ["PYENV_VERSION"] = ":".join(names)


_prepare_environment()


def distributions() -> list[str]:
    return [
        *sorted(path.parent.as_posix() for path in Path("packages").glob("*/pyproject.toml")),
        "conformance",
    ]


def source_folders() -> list[str]:
    return [f"{folder}/src" for folder in (*distributions(), "tests/support")]


def test_folders() -> list[str]:
    folders = [f"{folder}/tests" for folder in distributions()]
    folders += sorted(path.as_posix() for path in Path("tests").iterdir() if path.name != "support")
    return [folder for folder in folders if any(Path(folder).rglob("*.py"))]


def install_everything(session: nox.Session, *tools: str) -> None:
    members = [f"./{folder}{EXTRAS.get(folder, '')}" for folder in (*distributions(), "tests/support")]
    editable = [argument for member in members for argument in ("-e", member)]
    session.install(*CONSTRAINTS, *editable, *tools)


def run_pytest(session: nox.Session, *arguments: str, name: str | None = None) -> None:
    report = REPORTS / f"{name or session.name}.xml"
    session.run("python", "-m", "pytest", f"--junitxml={report}", *arguments)


def in_parallel(by: str = "loadfile") -> list[str]:
    return ["-n", str(min(4, os.cpu_count() or 1)), "--dist", by]


def check_style(session: nox.Session) -> None:
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


def check_types(session: nox.Session) -> None:
    # Each checker keeps one core busy, and knows nothing of the other.
    with ThreadPoolExecutor(max_workers=1) as beside:
        other = beside.submit(
            session.run, "basedpyright", "--pythonpath", f"{session.bin}/python", silent=True
        )
        # Same-named test files are one module to mypy, so each tests folder has a run of its own.
        session.run("mypy", *source_folders(), "benchmarks", "examples", "noxfile.py", "conftest.py")
        for folder in test_folders():
            session.run("mypy", folder)
    print(other.result())  # noqa: T201


@nox.session
def tests(session: nox.Session) -> None:
    """Style, types, imports, and all tests and documents, on the Python that started nox.

    With arguments after `--`, pytest alone, with them.
    """
    install_everything(session, *TEST_TOOLS, *TYPE_TOOLS, *LINT_TOOLS)
    if session.posargs:
        run_pytest(session, *session.posargs)
        return
    check_style(session)
    check_types(session)
    session.run("lint-imports", "--no-cache", "--no-logo")
    run_pytest(session, "-m", QUICK, *in_parallel())


@nox.session
def lint(session: nox.Session) -> None:
    """Style and the one-way imports: what pre-commit calls."""
    install_everything(session, *LINT_TOOLS)
    check_style(session)
    session.run("lint-imports", "--no-cache", "--no-logo")


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Puts the code in order."""
    session.install(*CONSTRAINTS, "ruff")
    session.run("ruff", "check", "--fix", ".")
    session.run("ruff", "format", ".")


@nox.session
def exports(session: nox.Session) -> None:
    """Writes the frozen list of public names anew."""
    install_everything(session, *TEST_TOOLS)
    session.run("python", "-m", "stagewright_test_support.architecture.public_exports", "--write")


@nox.session
def demo(session: nox.Session) -> None:
    """A worker is killed in the middle of a run, and another one ends it: the digest of this repository's documents."""
    members = ("./packages/core[cli]", "./packages/persistence-sqlalchemy", "./packages/host-node")
    session.install(*CONSTRAINTS, *members)
    session.run("stagewright", "demo", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The conformance suite on every adapter, database and driver, its broken doubles, and the matrix of stores.

    `-- --renew-page` runs the matrix alone and writes its table into docs/conformance.md.
    """
    install_everything(session, *TEST_TOOLS)
    if session.posargs != ["--renew-page"]:
        suites = [
            "conformance/tests",
            *sorted(map(str, Path("packages").glob("*/tests/test_conformance.py"))),
        ]
        options = ["-m", "not soak and not wide", "--conformance-table"]
        run_pytest(session, *suites, *options, *(session.posargs or in_parallel("loadscope")))
        if session.posargs:
            return
    REPORTS.mkdir(parents=True, exist_ok=True)
    table = REPORTS / "conformance-matrix.md"
    # What the page shows is checked in the session of the tests.
    options = ["--conformance-table", f"--conformance-markdown={table}", "-k", "not page"]
    run_pytest(session, "tests/matrix", *options, *in_parallel("load"), name="conformance-matrix")
    if session.posargs:
        page = HERE / "docs" / "conformance.md"
        before, mark, _ = page.read_text(encoding="utf-8").partition("<!-- matrix -->\n")
        page.write_text(f"{before}{mark}\n{table.read_text(encoding='utf-8')}", encoding="utf-8")


@nox.session
def wide(session: nox.Session) -> None:
    """The conformance suite on databases set up in other ways, crashes at more moments, and rehearsals at full size."""
    install_everything(session, *TEST_TOOLS)
    options = ["-m", "wide and not soak", "--conformance-table"]
    run_pytest(session, *options, *(session.posargs or in_parallel("loadscope")))


@nox.session
def crash(session: nox.Session) -> None:
    """Kills of processes and servers, and crowds on one database."""
    install_everything(session, *TEST_TOOLS)
    # Most of them wait most of the time.
    run_pytest(session, "-m", "slow and not soak and not wide", *(session.posargs or in_parallel("load")))


@nox.session
def plans(session: nox.Session) -> None:
    """How hot queries find their rows among those of 200,000 runs."""
    install_everything(session, *TEST_TOOLS)
    run_pytest(session, "-m", "plans", *session.posargs)


@nox.session
def soak(session: nox.Session) -> None:
    """What the crash session does, with more of everything, for longer."""
    install_everything(session, *TEST_TOOLS)
    run_pytest(session, "-m", "soak", *session.posargs)


@nox.session
def simulate(session: nox.Session) -> None:
    """Many processes with faults at every call, out of one number: `-- 10000 0` runs so many seeds from the first one.

    `-- 1 4711` tells the story of one seed, `-- --mutants` breaks the engine and looks which seed notices.
    """
    install_everything(session)
    simulation = HERE / "packages" / "core" / "tests" / "simulation"
    processes = str(max(1, (os.cpu_count() or 1) // 2))
    session.run(
        "python",
        "-m",
        "stagewright_simulation",
        "--processes",
        processes,
        *session.posargs,
        env={"PYTHONPATH": str(simulation)},
    )


@nox.session
def bench(session: nox.Session) -> None:
    """Stagewright, the bare driver and peers in one interleaved run; with `-- --quick` by smaller turns.

    `-- --scaling` measures Stagewright alone, by more processes and over full tables. `-- --publish` measures nothing:
    it puts what both have written into docs/performance.md.
    """
    if "--publish" in session.posargs:
        session.run("python", "-m", "benchmarks.publish")
        return
    install_everything(session)
    target = HERE / "build" / "bench"
    if "--scaling" in session.posargs:
        arguments = [one for one in session.posargs if one != "--scaling"]
        kinds = {"json": "json", "markdown": "md", "svg": "svg"}
        written = [f"--{kind}={target}/scaling.{suffix}" for kind, suffix in kinds.items()]
        session.run("python", "-m", "benchmarks.scaling", *written, *arguments)
        return
    install_peers(session)
    written = [f"--json={target / 'comparison.json'}", f"--markdown={target / 'comparison.md'}"]
    session.run("python", "-m", "benchmarks", *written, *session.posargs)


def install_peers(session: nox.Session) -> None:
    """One by one: who can't be installed is named in the tables, and leaves the others be."""
    for peer in PEERS:
        try:
            session.install(*CONSTRAINTS, "-c", "benchmarks/peers.txt", peer)
        except CommandFailed:
            session.warn(f"{peer} can't be installed; its lines will say so")
    try:
        session.install(*CONSTRAINTS, "-c", "benchmarks/peers.txt", "hypercorn", "uvloop")
        # Without its scripts, which report the installation.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-save"]
        folder = f"{session.virtualenv.location}/npm"
        session.run("npm", "install", *options, "--prefix", folder, RESTATE_SERVER, external=True)
    except CommandFailed:
        session.warn("the server of Restate can't be installed; its lines will say so")


@nox.session
def floor(session: nox.Session) -> None:
    """Three-stage runs against a floor of the bare driver, with what each sends; arguments go to the benchmark."""
    install_everything(session)
    figures = HERE / "build" / "bench" / "floor.json"
    session.run("python", "-m", "benchmarks.three_stages", f"--json={figures}", *session.posargs)


@nox.session
def latency(session: nox.Session) -> None:
    """How soon an idle worker in another process begins; `-- --runs 500` for more."""
    install_everything(session)
    session.run("python", "-m", "benchmarks.idle_latency", *session.posargs)


@nox.session
def replay(session: nox.Session) -> None:
    """What a stage of many durable steps costs, done and replayed; `-- --rounds 5` for more."""
    install_everything(session)
    session.run("python", "-m", "benchmarks.step_replay", *session.posargs)


@nox.session
def jobs(session: nox.Session) -> None:
    """Jobs on Redis beside Dramatiq and a bare stream; arguments after `--` go to `python -m benchmarks.redis_jobs`."""
    install_everything(session, "dramatiq")
    figures = HERE / "build" / "bench" / "jobs.json"
    session.run("python", "-m", "benchmarks.redis_jobs", f"--json={figures}", *session.posargs)


@nox.session(python=PYTHONS)
def matrix(session: nox.Session) -> None:
    """All tests on every Python that is found."""
    install_everything(session, *TEST_TOOLS, *TYPE_TOOLS)
    run_pytest(session, *(session.posargs or ("-m", QUICK, *in_parallel())))


@nox.session
def coverage(session: nox.Session) -> None:
    """All tests with branch coverage; the report is in build/coverage."""
    install_everything(session, *TEST_TOOLS, *TYPE_TOOLS)
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "html", "--directory", "build/coverage/html")
    session.run("coverage", "report")


def names_that_git_would_clone() -> list[str]:
    """Tracked files and those that could be; nothing where git can't tell."""
    if shutil.which("git") is None:
        return []
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=HERE,
        capture_output=True,
        check=False,
    )
    return [name for name in listed.stdout.decode().split("\0") if (HERE / name).is_file()]


def copy_of_the_clone(folder: Path) -> Path:
    copy = folder / "fresh clone"
    names = names_that_git_would_clone()
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(HERE / name, copy / name)
    if "README.md" not in names:
        ignored = shutil.ignore_patterns(".*", "build", "dist", "__pycache__")
        shutil.copytree(HERE, copy, ignore=ignored, dirs_exist_ok=True)
    return copy


@nox.session
def newcomer(session: nox.Session) -> None:
    """Core alone from a fresh clone in a fresh environment, and the README's script on it."""
    with tempfile.TemporaryDirectory(prefix="stagewright newcomer ") as name:
        clone = copy_of_the_clone(Path(name))
        session.install(str(clone / "packages" / "core"))
        session.chdir(name)
        session.run("python", str(clone / "tests" / "newcomer" / "first_steps.py"), str(clone / "README.md"))
        session.chdir(HERE)


@nox.session
def dist(session: nox.Session) -> None:
    """Builds wheels and sdists, checks what is in them, installs the wheels, and holds an adapter to their suite."""
    target = HERE / "build" / "dist"
    shutil.rmtree(target, ignore_errors=True)
    session.install(*CONSTRAINTS, "build")
    for folder in distributions():
        session.run("python", "-m", "build", "--outdir", str(target), folder)
    session.run("python", "tests/packaging/check_archives.py", str(target))
    session.install(*CONSTRAINTS, *(str(wheel) for wheel in sorted(target.glob("*.whl"))))
    imports = "import stagewright, stagewright_conformance, stagewright_host_node; "
    imports += "from stagewright_blob_gcs import GcsBlobStore; from stagewright_blob_s3 import S3BlobStore"
    session.run("python", "-I", "-c", imports)
    session.run("python", "-I", "tests/packaging/use_conformance.py")
