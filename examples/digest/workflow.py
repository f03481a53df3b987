"""A digest of a folder of text files: words, links and repeated paragraphs, in one Markdown report.

stagewright run examples/digest/workflow.py:workflow --input folder=docs
"""

import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import unquote
from uuid import uuid4

from pydantic import BaseModel, Field

from stagewright import BlockingStageContext, NonRetryableError, define_workflow, stage

V = TypeVar("V")

# What goes in


class DigestRequest(BaseModel):
    """Which folder to read and where to write; relative paths start where the process runs."""

    folder: Path
    output: Path = Path("build/digest/report.md")


class ListConfig(BaseModel):
    """Which files count."""

    patterns: list[str] = ["*.md", "*.txt", "*.rst"]
    max_bytes: int = Field(default=5_000_000, gt=0)


class FilesConfig(BaseModel):
    """How many seconds to rest at each file, so that the work can be watched."""

    pause: float = Field(default=0.0, ge=0.0)


class WordsConfig(FilesConfig):
    """How many words to show, and how long they must be."""

    top: int = Field(default=20, ge=0)
    min_letters: int = Field(default=4, ge=1)


class DuplicatesConfig(FilesConfig):
    """Shorter paragraphs may repeat."""

    min_words: int = Field(default=8, ge=1)


# What the stages hand on


class TextFile(BaseModel):
    """A file that can be read as text."""

    name: str
    size: int
    encoding: str


class SkippedFile(BaseModel):
    """A file that was left out."""

    name: str
    reason: str


class FileList(BaseModel):
    """The files of the folder, by name."""

    folder: Path
    files: list[TextFile]
    skipped: list[SkippedFile]


class FileWords(BaseModel):
    """The size of one file."""

    name: str
    lines: int
    words: int


class CountedFile(BaseModel):
    """One file, and how often it has each word."""

    size: FileWords
    frequency: dict[str, int]


class WordCounts(BaseModel):
    """The sizes of all files, and their most frequent words."""

    files: list[FileWords]
    total: int
    distinct: int
    frequent: list[tuple[str, int]]


class Link(BaseModel):
    """A link, and whether it leads nowhere; other sites are not asked."""

    name: str
    line: int
    target: str
    kind: Literal["web", "mail", "file", "heading"]
    broken: bool = False


class Links(BaseModel):
    """The links of all files."""

    links: list[Link]


class Place(BaseModel):
    """Where a paragraph begins."""

    name: str
    line: int


class Paragraph(BaseModel):
    """A paragraph, its spaces evened out."""

    text: str
    line: int


class Duplicate(BaseModel):
    """A paragraph that stands in several places."""

    beginning: str
    words: int
    places: list[Place]


class Duplicates(BaseModel):
    """The repeated paragraphs, the longest first."""

    paragraphs: list[Duplicate]


class Findings(BaseModel):
    """What the three stages in parallel found: their outputs by stage id."""

    words: WordCounts
    links: Links
    duplicates: Duplicates


class Digest(BaseModel):
    """The figures, and where the report is."""

    report_path: Path
    files: int
    skipped: int
    words: int
    links: int
    broken_links: int
    duplicates: int


# The stages


@stage("list", name="List files")
def list_files(ctx: BlockingStageContext[DigestRequest, ListConfig]) -> FileList:
    folder = ctx.input.folder.resolve()
    if not folder.is_dir():
        raise NonRetryableError(f"{folder} is not a folder")
    report = ctx.input.output.resolve()
    files: list[TextFile] = []
    skipped: list[SkippedFile] = []
    for path in _candidates(folder, ctx.config.patterns, report):
        ctx.abort.raise_if_set()
        found = _examined(path, folder, ctx.config.max_bytes)
        if isinstance(found, TextFile):
            files.append(found)
        else:
            skipped.append(found)
            ctx.log("warn", "skipped a file", file=found.name, reason=found.reason)
    if not files:
        patterns = ", ".join(ctx.config.patterns)
        why = f"; skipped {skipped[0].name}: {skipped[0].reason}" if skipped else ""
        raise NonRetryableError(f"{folder} holds no text file to digest (looked for {patterns}){why}")
    ctx.log("info", "listed the folder", folder=str(folder), files=len(files), skipped=len(skipped))
    ctx.progress(100, f"{len(files)} files")
    return FileList(folder=folder, files=files, skipped=skipped)


@stage("words", name="Count words")
def count_words(ctx: BlockingStageContext[FileList, WordsConfig]) -> WordCounts:
    frequency: Counter[str] = Counter()
    files: list[FileWords] = []
    for _, counted in _each_file(ctx, _counted, CountedFile):
        frequency.update(counted.frequency)
        files.append(counted.size)
    shown = Counter({word: count for word, count in frequency.items() if len(word) >= ctx.config.min_letters})
    frequent = sorted(shown.items(), key=lambda item: (-item[1], item[0]))[: ctx.config.top]
    return WordCounts(files=files, total=frequency.total(), distinct=len(frequency), frequent=frequent)


@stage("links", name="Extract links")
def extract_links(ctx: BlockingStageContext[FileList, FilesConfig]) -> Links:
    find = partial(_links_of, ctx.input.folder)
    links = [link for _, found in _each_file(ctx, find, list[Link]) for link in found]
    broken = sum(link.broken for link in links)
    if broken:
        ctx.log("warn", "links lead nowhere", broken=broken)
    return Links(links=links)


@stage("duplicates", name="Find duplicates")
def find_duplicates(ctx: BlockingStageContext[FileList, DuplicatesConfig]) -> Duplicates:
    places: defaultdict[str, list[Place]] = defaultdict(list)
    find = partial(_long_paragraphs, ctx.config.min_words)
    for file, paragraphs in _each_file(ctx, find, list[Paragraph]):
        for paragraph in paragraphs:
            places[paragraph.text].append(Place(name=file.name, line=paragraph.line))
    repeated = [
        Duplicate(beginning=_cut(text, 80), words=len(text.split()), places=where)
        for text, where in places.items()
        if len(where) > 1
    ]
    repeated.sort(key=lambda duplicate: -duplicate.words)
    return Duplicates(paragraphs=repeated)


@stage("report", name="Write report")
def write_report(ctx: BlockingStageContext[Findings]) -> Digest:
    listed = ctx.require(list_files)
    request = DigestRequest.model_validate(ctx.workflow_input)
    path = request.output.resolve()
    _write_whole(path, "\n".join(_report(listed, ctx.input)) + "\n")
    ctx.log("info", "wrote the report", path=str(path))
    ctx.progress(100, f"report in {path}")
    return Digest(
        report_path=path,
        files=len(listed.files),
        skipped=len(listed.skipped),
        words=ctx.input.words.total,
        links=len(ctx.input.links.links),
        broken_links=sum(link.broken for link in ctx.input.links.links),
        duplicates=len(ctx.input.duplicates.paragraphs),
    )


workflow = (
    define_workflow("digest", input=DigestRequest, name="Digest of a folder")
    .pipe(list_files)
    .parallel(count_words, extract_links, find_duplicates)
    .pipe(write_report)
    .build()
)


# Reading

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_MARKDOWN_LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)\n]*\)")
_BARE_LINK = re.compile(r"(?<![(<\w])<?(https?://[^\s<>)\]\"'`]+)")
_FENCE = re.compile(r"\s*(```|~~~)")
_PASSED_OVER = {"__pycache__", "node_modules"}
_ENCODINGS_BY_MARK = {
    b"\xff\xfe": ("utf-16",),
    b"\xfe\xff": ("utf-16",),
    b"\xef\xbb": ("utf-8-sig", "cp1252", "latin-1"),
}


def _candidates(folder: Path, patterns: list[str], report: Path) -> Iterator[Path]:
    """Files of matching names below the folder, in order, without hidden folders and without the report itself."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
        for name in sorted(names):
            path = Path(parent, name)
            if any(fnmatch(name, pattern) for pattern in patterns) and path.resolve() != report:
                yield path


def _examined(path: Path, folder: Path, max_bytes: int) -> TextFile | SkippedFile:
    # A name that is no UTF-8 can't be stored as JSON, so it is shown escaped.
    name = path.relative_to(folder).as_posix()
    shown = name.encode("utf-8", "backslashreplace").decode("utf-8")
    if name != shown:
        return SkippedFile(name=shown, reason="its name is not UTF-8")
    try:
        if not path.is_file():
            return SkippedFile(name=name, reason="it is no regular file")
        size = path.stat().st_size
        if size > max_bytes:
            return SkippedFile(name=name, reason=f"it has {size:,} bytes, more than {max_bytes:,}")
        encoding = _encoding_of(path.read_bytes())
    except OSError as error:
        return SkippedFile(name=name, reason=error.strerror or str(error))
    if encoding is None:
        return SkippedFile(name=name, reason="it is binary")
    return TextFile(name=name, size=size, encoding=encoding)


def _encoding_of(data: bytes) -> str | None:
    """What a byte-order mark says, else UTF-8 where it fits, else Windows-1252 or Latin-1; None for binary data."""
    for encoding in _ENCODINGS_BY_MARK.get(data[:2], ("utf-8", "cp1252", "latin-1")):
        try:
            return None if "\x00" in data.decode(encoding) else encoding
        except UnicodeDecodeError:
            continue
    return None


def _each_file(
    ctx: BlockingStageContext[FileList, FilesConfig],
    read: Callable[[TextFile, str], V],
    returns: type[V],
) -> Iterator[tuple[TextFile, V]]:
    """What `read` finds in each file, each in a durable step: a worker that takes over reads no file again."""
    files = ctx.input.files
    for number, file in enumerate(files, 1):
        ctx.abort.raise_if_set()
        work = partial(_read, ctx.input.folder, file, read, ctx.config.pause)
        yield file, ctx.step.run(f"read {file.name}", work, returns=returns)
        if number == len(files) or number % max(1, len(files) // 4) == 0:
            ctx.progress(100 * number / len(files), f"{number} of {len(files)} files")


def _read(folder: Path, file: TextFile, read: Callable[[TextFile, str], V], pause: float) -> V:
    time.sleep(pause)
    return read(file, (folder / file.name).read_text(encoding=file.encoding, errors="replace"))


def _counted(file: TextFile, text: str) -> CountedFile:
    words = _WORD.findall(text.casefold())
    size = FileWords(name=file.name, lines=len(text.splitlines()), words=len(words))
    return CountedFile(size=size, frequency=Counter(words))


def _links_of(folder: Path, file: TextFile, text: str) -> list[Link]:
    return [_link(folder, file.name, line, target) for line, target in _targets(text)]


def _long_paragraphs(min_words: int, file: TextFile, text: str) -> list[Paragraph]:
    return [
        Paragraph(text=paragraph, line=line)
        for line, paragraph in _paragraphs(text)
        if len(paragraph.split()) >= min_words
    ]


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside fenced blocks, numbered from 1; a fenced line counts as empty."""
    fence: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        inside = fence is not None
        if mark is not None and fence in (None, mark[1]):
            fence = None if inside else mark[1]
        yield number, "" if inside or mark is not None else line


def _targets(text: str) -> Iterator[tuple[int, str]]:
    for number, line in _prose(text):
        yield from ((number, target) for target in _MARKDOWN_LINK.findall(line))
        rest = _MARKDOWN_LINK.sub("", line)
        yield from ((number, target.rstrip(".,;:!?")) for target in _BARE_LINK.findall(rest))


def _link(folder: Path, name: str, line: int, target: str) -> Link:
    if target.startswith("#"):
        return Link(name=name, line=line, target=target, kind="heading")
    if target.startswith("mailto:"):
        return Link(name=name, line=line, target=target, kind="mail")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", target) or target.startswith("//"):
        return Link(name=name, line=line, target=target, kind="web")
    goal = folder / Path(name).parent / unquote(target.partition("#")[0])
    try:
        broken = not goal.exists()
    except (OSError, ValueError):
        broken = True
    return Link(name=name, line=line, target=target, kind="file", broken=broken)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Blocks of lines between empty ones, their white space evened out, with the line that they begin in."""
    block: list[str] = []
    start = 0
    for number, line in [*_prose(text), (0, "")]:
        if line.strip():
            start = start if block else number
            block.append(line)
        elif block:
            yield start, " ".join(" ".join(block).split())
            block = []


# Writing


def _report(listed: FileList, found: Findings) -> Iterator[str]:
    links = found.links.links
    broken = [link for link in links if link.broken]
    yield f"# Digest of {listed.folder.name or listed.folder}"
    yield ""
    yield (
        f"{len(listed.files)} files, {found.words.total:,} words ({found.words.distinct:,} distinct), "
        f"{len(links)} links ({len(broken)} broken), {len(found.duplicates.paragraphs)} repeated paragraphs."
    )
    encodings = {file.name: file.encoding for file in listed.files}
    rows = [
        (file.name, f"{file.words:,}", f"{file.lines:,}", encodings[file.name]) for file in found.words.files
    ]
    yield from _table("Files", ("file", "words", "lines", "encoding"), rows)
    yield from _table(
        "Frequent words", ("word", "times"), [(word, f"{n:,}") for word, n in found.words.frequent]
    )
    kinds = Counter(link.kind for link in links)
    yield from _table(
        "Links", ("kind", "links"), [(kind, str(count)) for kind, count in sorted(kinds.items())]
    )
    yield from _table("Broken links", ("where", "target"), [(f"{x.name}:{x.line}", x.target) for x in broken])
    repeated = [
        (
            item.beginning,
            str(item.words),
            ", ".join(f"{place.name}:{place.line}" for place in item.places),
        )
        for item in found.duplicates.paragraphs
    ]
    yield from _table("Repeated paragraphs", ("beginning", "words", "where"), repeated)
    yield from _table("Skipped", ("file", "reason"), [(item.name, item.reason) for item in listed.skipped])


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    lines = [" | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row) for row in rows]
    if lines:
        yield from ("", f"## {title}", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}")
        yield from (f"| {line} |" for line in lines)


def _write_whole(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader never sees half a report."""
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise NonRetryableError(f"the report can't be written to {path}: {error.strerror}") from error
    finally:
        # Where the parent is a file, there is nothing to unlink and the attempt itself raises.
        with suppress(OSError):
            beside.unlink()
