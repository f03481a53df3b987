import sys
from collections.abc import Awaitable, Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stagewright import Status, open_kernel
from stagewright.commands import CreateRun
from stagewright.hosting import drive_run
from stagewright.records import LogRecord, RunRecord

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "digest" / "workflow.py"

Digest = Callable[..., Awaitable[RunRecord]]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = spec_from_file_location("digest_workflow", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["digest_workflow"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lines() -> list[LogRecord]:
    return []


@pytest.fixture
def digest(example: ModuleType, tmp_path: Path, lines: list[LogRecord]) -> Digest:
    async def run(
        folder: Path, config: dict[str, Any] | None = None, output: Path | None = None
    ) -> RunRecord:
        async with open_kernel(example.workflow, "memory://") as kernel:
            request = {"folder": str(folder), "output": str(output or tmp_path / "out" / "report.md")}
            created = await kernel.dispatch(
                CreateRun(workflow_id="digest", input=request, config=config or {})
            )
            record = await drive_run(kernel, created.run_id)
            lines.extend((await kernel.runs.logs(created.run_id)).items)
            return record

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    (folder / "deep" / "er").mkdir(parents=True)
    return folder


def output_of(record: RunRecord) -> dict[str, Any]:
    assert record.status is Status.COMPLETED, record.error
    assert isinstance(record.output, dict)
    return record.output


def report_of(output: dict[str, Any]) -> str:
    return Path(output["report_path"]).read_text(encoding="utf-8")


def write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


REPEATED = "A paragraph of more than eight words that stands in two places at once."


async def test_words_links_and_repeated_paragraphs_are_found(digest: Digest, folder: Path) -> None:
    (folder / "one.md").write_text(
        f"# One\n\nSee [two](deep/two.md), [gone](gone.md#x), [here](#one) and <mailto:a@b.example>.\n\n{REPEATED}\n\n"
        "```\n[not](a-link.md)\n```\n\nRead https://example.com/a_(b), or [it](https://example.com/c).\n",
        encoding="utf-8",
    )
    (folder / "deep" / "two.md").write_text(
        f"Other words\n\n{REPEATED.replace(' ', chr(10), 2)}\n", encoding="utf-8"
    )

    output = output_of(await digest(folder))
    assert (output["files"], output["broken_links"], output["duplicates"]) == (2, 1, 1)
    assert output["links"] == 5
    report = report_of(output)
    assert "one.md:3 | gone.md#x" in report
    assert "a-link.md" not in report
    assert "| 14 | one.md:5, deep/two.md:3 |" in report
    assert "| paragraph | 2 |" in report


async def test_odd_files_are_read_or_skipped_with_a_reason(
    digest: Digest, folder: Path, lines: list[LogRecord]
) -> None:
    (folder / "latin.txt").write_bytes("Überraschung naïve café".encode("cp1252"))
    (folder / "wide.txt").write_bytes("Überraschung wide".encode("utf-16"))
    (folder / "marked.txt").write_bytes("Überraschung marked".encode("utf-8-sig"))
    (folder / "empty.txt").write_bytes(b"")
    (folder / "binary.txt").write_bytes(b"PK\x03\x04\x00\x00")
    (folder / "big.txt").write_bytes(b"word " * 200)
    (folder / "dangling.txt").symlink_to(folder / "nowhere")
    (folder / "pipe | name.txt").write_text("Überraschung", encoding="utf-8")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.txt").write_text("hidden", encoding="utf-8")
    (folder / "code.py").write_text("x = 1", encoding="utf-8")

    output = output_of(await digest(folder, {"list": {"max_bytes": 500}}))
    report = report_of(output)
    assert (output["files"], output["skipped"]) == (5, 3)
    assert "| überraschung | 4 |" in report
    assert "latin.txt | 3 | 1 | cp1252" in report
    assert "binary.txt | it is binary" in report
    assert "big.txt | it has 1,000 bytes, more than 500" in report
    assert "pipe \\| name.txt" in report
    assert "hidden" not in report
    assert {str(line.fields["file"]) for line in lines if line.level == "WARN"} == {
        "binary.txt",
        "big.txt",
        "dangling.txt",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
async def test_a_name_that_is_no_utf8_is_skipped(digest: Digest, folder: Path) -> None:
    write(Path(str(folder), "caf\udce9.txt"), "text")
    (folder / "fine.txt").write_text("text", encoding="utf-8")
    output = output_of(await digest(folder))
    assert (output["files"], output["skipped"]) == (1, 1)
    assert "not UTF-8" in report_of(output)


async def test_a_second_run_does_not_read_its_own_report(digest: Digest, folder: Path) -> None:
    (folder / "one.md").write_text("some words", encoding="utf-8")
    first = output_of(await digest(folder, output=folder / "report.md"))
    second = output_of(await digest(folder, output=folder / "report.md"))
    assert first == second
    assert files_in(folder) == ["one.md", "report.md"]


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "only-binary"])
async def test_a_folder_without_text_fails_at_once_and_says_why(
    digest: Digest, folder: Path, kind: str
) -> None:
    where = folder
    if kind == "missing":
        where = folder / "gone"
    elif kind == "file":
        where = folder / "x.txt"
        where.write_text("x", encoding="utf-8")
    elif kind == "only-binary":
        (folder / "x.txt").write_bytes(b"\x00")

    record = await digest(where)
    assert record.status is Status.FAILED
    assert record.error is not None
    assert record.error.type == "NonRetryableError"
    assert record.error.stage_id == "list"
    assert str(where.resolve()) in record.error.message
    assert ("it is binary" in record.error.message) == (kind == "only-binary")


async def test_a_report_that_can_not_be_written_fails_and_says_why(digest: Digest, folder: Path) -> None:
    (folder / "one.md").write_text("some words", encoding="utf-8")
    record = await digest(folder, output=folder / "one.md" / "report.md")
    assert record.error is not None
    assert (record.error.type, record.error.stage_id) == ("NonRetryableError", "report")
    assert (folder / "one.md").read_text(encoding="utf-8") == "some words"


async def test_the_documents_of_this_repository_are_digested(digest: Digest) -> None:
    folder = ROOT / "docs"
    output = output_of(await digest(folder, {"list": {"patterns": ["*.md"]}}))
    assert output["files"] == len(list(folder.rglob("*.md")))
    assert output["words"] > 100
    assert output["links"] > 0
