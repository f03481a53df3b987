"""The page about adapters is a project: with the methods that it leaves out, it passes the suite."""

import os
import re
import shlex
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

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-an-adapter.md"
FILE = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# The disk need not outlive the tests, and waiting for it is most of what they take.
UNSYNCED = "import os\n\nos.fsync = lambda descriptor: None\n"

BLOB_STORE = '''

def _key(file: IO[bytes]) -> str:
    return file.read(int.from_bytes(file.read(2), "big")).decode()


class _Stream:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    async def read(self, size: int = -1) -> bytes:
        return await in_thread(self._file.read, size)

    async def write(self, data: bytes) -> None:
        await in_thread(self._file.write, bytes(data))


class WholeBlobStore(FolderBlobStore):
    """The page's class, and the methods that it leaves to the docstrings of the port."""

    async def get(self, key: str) -> bytes:
        async with self.open_read(key) as reader:
            return await reader.read()

    async def has(self, key: str) -> bool:
        return await in_thread(self._path(key).exists)

    async def delete(self, key: str) -> None:
        await in_thread(self._path(key).unlink, missing_ok=True)

    async def delete_many(self, keys: Collection[str]) -> None:
        for key in keys:
            await self.delete(key)

    async def list(self, prefix: str) -> AsyncIterator[str]:
        for key in await in_thread(self._keys, prefix):
            yield key

    def _keys(self, prefix: str) -> Sequence[str]:
        keys = []
        for path in self._blobs.iterdir():
            try:
                with path.open("rb") as file:
                    keys.append(_key(file))
            except FileNotFoundError:  # deleted meanwhile
                continue
        return sorted(key for key in keys if key.startswith(prefix))

    @asynccontextmanager
    async def open_read(self, key: str) -> AsyncIterator[_Stream]:
        file = await in_thread(self._open, key)
        try:
            yield _Stream(file)
        finally:
            file.close()

    def _open(self, key: str) -> IO[bytes]:
        try:
            file = self._path(key).open("rb")
        except FileNotFoundError as error:
            raise BlobNotFoundError(key) from error
        _key(file)
        return file

    @asynccontextmanager
    async def open_write(self, key: str, *, content_type: str | None = None) -> AsyncIterator[_Stream]:
        require_blob_key(key)
        with unfinished_file(self._unfinished) as file:
            file.write(_head(key))
            yield _Stream(file)
            await in_thread(publish, file, self._path(key))


FolderBlobStore = WholeBlobStore  # type: ignore[misc]
'''

STEP_LEDGER = """
import builtins
import fcntl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from stagewright.records import StepExpectation, StepPatch, StepRecord, set_fields
from stagewright_folder.files import in_thread, name_of, publish, unfinished_file

STEPS = TypeAdapter(list[StepRecord])


class FolderStepLedger:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(self, stage_record_id: str, step_id: str) -> StepRecord | None:
        return (await in_thread(self._read, name_of(stage_record_id))).get(step_id)

    async def list(self, stage_record_id: str) -> builtins.list[StepRecord]:
        steps = await in_thread(self._read, name_of(stage_record_id))
        return sorted(steps.values(), key=lambda step: (step.seq, step.id))

    async def claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        return await in_thread(self._claim, record)

    async def compare_and_set(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        return await in_thread(self._change, record_id, expectation, patch)

    async def clear(self, stage_record_id: str) -> None:
        await self.clear_except(stage_record_id, ())

    async def clear_except(self, stage_record_id: str, keep: Collection[str]) -> None:
        await in_thread(self._clear, name_of(stage_record_id), keep)

    def _claim(self, record: StepRecord) -> tuple[bool, StepRecord]:
        stage = name_of(record.stage_record_id)
        with self._locked(stage):
            steps = self._read(stage)
            if record.step_id in steps:
                return False, steps[record.step_id]
            self._write("records", name_of(record.id), stage.encode())
            self._keep(stage, {**steps, record.step_id: record})
            return True, self._read(stage)[record.step_id]

    def _change(
        self, record_id: str, expectation: StepExpectation, patch: StepPatch
    ) -> tuple[bool, StepRecord | None]:
        try:
            stage = (self._folder / "records" / name_of(record_id)).read_text()
        except FileNotFoundError:
            return False, None
        with self._locked(stage):
            steps = self._read(stage)
            step = next((one for one in steps.values() if one.id == record_id), None)
            if step is None:
                return False, None
            if step.status != expectation.status or expectation.attempt not in (None, step.attempt):
                return False, step
            self._keep(stage, {**steps, step.step_id: replace(step, **set_fields(patch))})
            return True, self._read(stage)[step.step_id]

    def _clear(self, stage: str, keep: Collection[str]) -> None:
        with self._locked(stage):
            steps = self._read(stage)
            self._keep(stage, {name: step for name, step in steps.items() if name in keep})
            for step in steps.values():
                if step.step_id not in keep:
                    (self._folder / "records" / name_of(step.id)).unlink(missing_ok=True)

    def _read(self, stage: str) -> dict[str, StepRecord]:
        try:
            data = (self._folder / "steps" / stage).read_bytes()
        except FileNotFoundError:
            return {}
        return {step.step_id: step for step in STEPS.validate_json(data)}

    def _keep(self, stage: str, steps: dict[str, StepRecord]) -> None:
        self._write("steps", stage, STEPS.dump_json(list(steps.values())))

    def _write(self, kind: str, name: str, data: bytes) -> None:
        with unfinished_file(self._folder / "unfinished") as file:
            file.write(data)
            publish(file, self._folder / kind / name)

    @contextmanager
    def _locked(self, stage: str) -> Iterator[None]:
        with (self._folder / "locks" / stage).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project of the page, installed for editing as far as plugins are found."""
    folder = tmp_path_factory.mktemp("stagewright-folder")
    files = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    files["src/stagewright_folder/blob_store.py"] += BLOB_STORE
    files["src/stagewright_folder/step_ledger.py"] = STEP_LEDGER
    files |= {"src/stagewright_folder/__init__.py": "", "src/stagewright_folder/py.typed": ""}
    files["tests/conftest.py"] = UNSYNCED
    stated = tomllib.loads(files["pyproject.toml"])["project"]
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


@pytest.mark.guarantee("testing.the-adapter-page-is-enough")
def test_the_adapter_of_the_page_passes_the_suites_of_its_ports(project: Path) -> None:
    done = run_tests(project, "-k", "not Crash and not Crowds")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" \d{3} passed, \d+ deselected in ", done.stdout), done.stdout


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
