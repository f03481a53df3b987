from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from stagewright.commands import CreateRun
from stagewright.definitions import StageContext, Workflow, WorkflowRegistry, define_workflow, stage
from stagewright.errors import (
    CapabilityMissingError,
    DefinitionError,
    InvalidAdapterError,
    InvalidSettingError,
    KernelClosedError,
    PluginConflictError,
    PortNotServedError,
    UnknownSchemeError,
)
from stagewright.events import Event
from stagewright.hosting.assembly import open_kernel
from stagewright.hosting.drive import drive_run
from stagewright.memory import (
    InMemoryBlobStore,
    InMemoryDatabase,
    InMemoryJobTransport,
    InMemoryPersistence,
    InMemoryStepLedger,
)
from stagewright.plugins import (
    AdapterOpener,
    AdapterOptions,
    AdapterRegistry,
    AdapterSet,
    PluginSet,
    event_plugin,
    hookimpl,
)
from stagewright.status import Status
from stagewright.testing import CollectingEventSink, FakeClock


class Number(BaseModel):
    value: int


@stage("double")
async def double(ctx: StageContext[Number]) -> Number:
    return Number(value=2 * ctx.input.value)


def a_workflow(id: str = "doubling") -> Workflow:
    return define_workflow(id, input=Number).pipe(double).build()


NONE = PluginSet()


class Journal:
    """A plugin whose adapters note when they are opened and closed."""

    def __init__(self, **openers: AdapterOpener) -> None:
        self.entries: list[str] = []
        self.options: list[AdapterOptions] = []
        self.openers = {"full": self.open_full, "bare": self.open_bare, "broken": self.open_broken, **openers}

    @hookimpl
    def stagewright_register_adapters(self, registry: AdapterRegistry) -> None:
        for scheme, opener in self.openers.items():
            registry.add(scheme, opener)
        registry.add("named", self.open_full, takes_names=True)

    @asynccontextmanager
    async def noted(self, url: str) -> AsyncIterator[None]:
        self.entries.append(f"open {url}")
        try:
            yield
        finally:
            self.entries.append(f"close {url}")

    @asynccontextmanager
    async def open_full(self, url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
        self.options.append(options)
        database = InMemoryDatabase()
        async with self.noted(url):
            yield AdapterSet(
                persistence=InMemoryPersistence(database),
                job_transport=InMemoryJobTransport(database),
                blob_store=InMemoryBlobStore(database),
                step_ledger=InMemoryStepLedger(database),
                event_sink=CollectingEventSink(),
                clock=FakeClock(),
            )

    @asynccontextmanager
    async def open_bare(self, url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
        async with self.noted(url):
            yield AdapterSet(blob_store=InMemoryBlobStore())

    @asynccontextmanager
    async def open_broken(self, url: str, options: AdapterOptions) -> AsyncIterator[AdapterSet]:
        self.entries.append(f"try {url}")
        raise ConnectionError("nobody answers")
        yield AdapterSet()


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def plugins(journal: Journal) -> PluginSet:
    return PluginSet().with_plugin("journal", journal)


async def doubled(workflows: Any, **options: Any) -> object:
    async with open_kernel(workflows, "memory://", plugins=NONE, **options) as kernel:
        created = await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 21}))
        run = await drive_run(kernel, created.run_id)
        assert run.status is Status.COMPLETED
        return run.output


@pytest.mark.guarantee("plugins.one-url-is-enough")
async def test_one_url_is_enough_to_run_a_workflow() -> None:
    assert await doubled(a_workflow()) == {"value": 42}


async def test_workflows_may_be_a_list_a_registry_or_whatever_finds_them() -> None:
    class Finder:
        def get(self, id: str, /) -> Workflow | None:
            return a_workflow() if id == "doubling" else None

    for workflows in (
        [a_workflow(), a_workflow("other")],
        WorkflowRegistry([a_workflow()]),
        Finder(),
        iter([a_workflow()]),
    ):
        assert await doubled(workflows) == {"value": 42}


@pytest.mark.parametrize(
    "workflows", [42, "examples", {"doubling": a_workflow()}, [42], define_workflow("x", input=Number)]
)
async def test_what_is_no_workflow_is_refused(workflows: Any) -> None:
    with pytest.raises(DefinitionError):
        async with open_kernel(workflows, "memory://", plugins=NONE):
            pass


async def test_memory_is_new_each_time_whatever_its_name() -> None:
    for _ in range(2):
        async with open_kernel(a_workflow(), "memory://shared", plugins=NONE) as kernel:
            assert (await kernel.runs.list()).items == ()  # nothing of the time before
            await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))


async def test_the_clock_that_is_given_goes_before_the_adapters_and_that_before_the_machines(
    plugins: PluginSet, journal: Journal
) -> None:
    clock = FakeClock()
    async with open_kernel(a_workflow(), "memory://", clock=clock, plugins=NONE) as kernel:
        assert kernel.ports.clock is clock
        created = await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))
        run = await kernel.runs.get(created.run_id)
        assert run is not None
        assert run.created_at == clock.now()
    async with open_kernel(a_workflow(), "full://", plugins=plugins, create_schema=True) as kernel:
        assert isinstance(kernel.ports.clock, FakeClock)
    assert journal.options == [AdapterOptions(create_schema=True, clock=None)]


async def test_names_of_tables_reach_the_adapters_that_take_them(
    plugins: PluginSet, journal: Journal
) -> None:
    names: dict[str, Any] = {"schema": "app", "table_prefix": "x_"}
    async with open_kernel(
        a_workflow(),
        "named://",
        plugins=plugins,
        blob_store="bare://b",
        job_transport="full://j",
        schema="app",
        table_prefix="x_",
    ):
        pass
    assert journal.options == [AdapterOptions(**names), AdapterOptions()]


@pytest.mark.parametrize("names", [{"schema": "app"}, {"table_prefix": "x_"}, {"schema": ""}])
@pytest.mark.guarantee("plugins.names-are-heeded-or-refused")
async def test_names_of_tables_are_refused_where_there_are_none(
    plugins: PluginSet, journal: Journal, names: dict[str, Any]
) -> None:
    [(name, value)] = names.items()
    for url in ("memory://", "full://me:s3cret@host"):
        with pytest.raises(InvalidSettingError, match=f"^{name}='{value}' names tables") as refused:
            async with open_kernel(a_workflow(), url, plugins=plugins, **names):
                pass
        assert "s3cret" not in str(refused.value)
    persistence = InMemoryPersistence(InMemoryDatabase())
    with pytest.raises(InvalidSettingError, match=f"^{name}='{value}' is for a database that is opened by"):
        async with open_kernel(a_workflow(), persistence, plugins=plugins, **names):
            pass
    assert journal.entries == []


@pytest.mark.guarantee("plugins.opened-once-closed-in-reverse")
async def test_each_url_is_opened_once_and_closed_the_last_first(
    plugins: PluginSet, journal: Journal
) -> None:
    async with open_kernel(
        a_workflow(),
        "full://a",
        blob_store="bare://b",
        job_transport="full://a",
        event_sink="full://c",
        plugins=plugins,
    ) as kernel:
        assert isinstance(kernel.ports.event_sink, CollectingEventSink)
        assert journal.entries == ["open full://a", "open bare://b", "open full://c"]
    assert journal.entries[3:] == ["close full://c", "close bare://b", "close full://a"]


async def test_what_was_opened_is_closed_when_a_later_port_fails(
    plugins: PluginSet, journal: Journal
) -> None:
    with pytest.raises(ConnectionError, match="nobody answers"):
        async with open_kernel(a_workflow(), "full://a", blob_store="broken://b", plugins=plugins):
            pytest.fail("it must not get here")
    assert journal.entries == ["open full://a", "try broken://b", "close full://a"]


async def test_what_was_opened_is_closed_when_the_block_raises(plugins: PluginSet, journal: Journal) -> None:
    with pytest.raises(KeyError):
        async with open_kernel(a_workflow(), "full://a", plugins=plugins):
            raise KeyError
    assert journal.entries == ["open full://a", "close full://a"]


async def test_what_was_opened_is_closed_when_the_kernel_refuses_its_settings(
    plugins: PluginSet, journal: Journal
) -> None:
    with pytest.raises(ValueError, match="spill_threshold_bytes"):
        async with open_kernel(a_workflow(), "full://a", spill_threshold_bytes=-1, plugins=plugins):
            pytest.fail("it must not get here")
    assert journal.entries == ["open full://a", "close full://a"]


async def test_objects_are_used_as_they_are_and_not_closed() -> None:
    database = InMemoryDatabase()
    persistence = InMemoryPersistence(database)
    transport, blobs = InMemoryJobTransport(database), InMemoryBlobStore(database)
    for _ in range(2):
        async with open_kernel(
            a_workflow(), persistence, job_transport=transport, blob_store=blobs, plugins=NONE
        ) as kernel:
            assert kernel.ports.persistence is persistence
            assert kernel.ports.job_transport is transport
            assert kernel.ports.blob_store is blobs
            assert kernel.ports.step_ledger is None
            await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))
    async with open_kernel(
        a_workflow(), persistence, job_transport=transport, blob_store=blobs, plugins=NONE
    ) as kernel:
        assert len((await kernel.runs.list()).items) == 2


async def test_a_port_that_nobody_serves_is_named(plugins: PluginSet) -> None:
    with pytest.raises(
        PortNotServedError, match="'bare://user:.*@b' can't serve as persistence; it serves 'blob_store'"
    ) as caught:
        async with open_kernel(a_workflow(), "bare://user:hunter2@b", plugins=plugins):
            pass
    assert "hunter2" not in str(caught.value)
    with pytest.raises(PortNotServedError, match="can't serve as job_transport"):
        async with open_kernel(a_workflow(), "full://", job_transport="bare://", plugins=plugins):
            pass
    with pytest.raises(PortNotServedError, match="'InMemoryPersistence' can't serve as job_transport"):
        async with open_kernel(a_workflow(), InMemoryPersistence(), plugins=NONE):
            pass


async def test_an_unknown_scheme_lists_known_ones_and_failed_plugins() -> None:
    plugins = PluginSet().with_plugin("broken", object())
    with pytest.raises(UnknownSchemeError) as caught:
        async with open_kernel(a_workflow(), plugins=plugins):
            pass
    assert caught.value.known == ("file", "memory")
    assert caught.value.failed_plugins == ("application:broken",)
    assert str(caught.value) == (
        "no installed adapter opens 'sqlite+aiosqlite:///stagewright.db'; install an adapter that opens sqlite URLs, "
        "or use file:// or memory://; plugins that failed to load: 'application:broken'"
    )


async def test_a_plugin_that_claims_memory_is_a_conflict_with_core() -> None:
    plugins = PluginSet().with_plugin("mine", Journal(memory=Journal().open_full))
    with pytest.raises(PluginConflictError, match="'stagewright-core' and 'application:mine'"):
        async with open_kernel(a_workflow(), "memory://", plugins=plugins):
            pass
    async with open_kernel(a_workflow(), "full://", plugins=plugins):
        pass


class Listener:
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name = name
        self.seen = seen

    @hookimpl
    def stagewright_event_plugins(self) -> list[object]:
        @event_plugin(self.name, on=["workflow:completed"])
        async def note(event: Event) -> None:
            self.seen.append(f"{self.name}: {event.type}")

        return [note]

    @hookimpl
    def stagewright_middleware(self) -> list[object]:
        async def middleware(command: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            if command.type == "run.create":
                self.seen.append(f"{self.name}: {command.type}")
            return await call_next(command)

        return [middleware]


@pytest.mark.guarantee("plugins.used-by-default")
async def test_event_plugins_and_middleware_of_plugins_are_used_by_default() -> None:
    seen: list[str] = []

    async def own(command: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        if command.type == "run.create":
            seen.append("own: run.create")
        return await call_next(command)

    plugins = PluginSet().with_plugin("a", Listener("a", seen)).with_plugin("b", Listener("b", seen))
    async with open_kernel(a_workflow(), "memory://", plugins=plugins, middleware=[own]) as kernel:
        created = await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))
        await drive_run(kernel, created.run_id)
    assert seen == [
        "a: run.create",
        "b: run.create",
        "own: run.create",
        "a: workflow:completed",
        "b: workflow:completed",
    ]


async def test_a_sink_that_is_given_is_the_only_one() -> None:
    seen: list[str] = []
    sink = CollectingEventSink()
    plugins = PluginSet().with_plugin("a", Listener("a", seen))
    async with open_kernel(a_workflow(), "memory://", plugins=plugins, event_sink=sink) as kernel:
        created = await kernel.dispatch(CreateRun(workflow_id="doubling", input={"value": 1}))
        await drive_run(kernel, created.run_id)
    assert "workflow:completed" in sink.types(created.run_id)
    assert "a: workflow:completed" not in seen


async def test_failed_plugins_are_logged_and_the_kernel_opens(caplog: pytest.LogCaptureFixture) -> None:
    class Late:
        @hookimpl
        def stagewright_event_plugins(self) -> list[object]:
            raise OSError("no network")

    plugins = PluginSet().with_plugin("broken", object()).with_plugin("late", Late())
    async with open_kernel(a_workflow(), "memory://", plugins=plugins):
        pass
    assert "application:late is not used: stagewright_event_plugins raised OSError: no network" in caplog.text
    assert "application:broken is not used: it implements no hook" in caplog.text


async def test_a_persistence_that_can_not_be_read_for_people_is_told() -> None:
    class Unreadable:
        async def transaction(self) -> None: ...

    database = InMemoryDatabase()
    with pytest.raises(CapabilityMissingError):
        async with open_kernel(
            a_workflow(),
            Unreadable(),  # type: ignore[arg-type] # the error is under test
            job_transport=InMemoryJobTransport(database),
            blob_store=InMemoryBlobStore(database),
            plugins=NONE,
        ):
            pass


@pytest.mark.guarantee("plugins.wrong-port-told")
@pytest.mark.parametrize(
    "given",
    [
        {"url": 5},
        {"url": None},
        {"url": InMemoryPersistence},
        {"url": b"x://me:hunter2@host"},
        {"url": "memory://", "job_transport": 5},
        {"url": "memory://", "blob_store": object()},
        {"url": "memory://", "step_ledger": []},
        {"url": "memory://", "event_sink": object()},
    ],
)
async def test_what_is_neither_a_url_nor_a_port_is_told(given: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidSettingError, match="must be a URL, such as 'memory://', or an object"
    ) as caught:
        async with open_kernel(a_workflow(), **given, plugins=NONE):
            pass
    assert caught.value.setting == list(given)[-1]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("setting", "value"), [("spill_threshold_bytes", "64k"), ("middleware", [None])])
async def test_a_setting_that_the_kernel_refuses_is_told(setting: str, value: Any) -> None:
    with pytest.raises(InvalidSettingError, match=setting):
        async with open_kernel(a_workflow(), "memory://", plugins=NONE, **{setting: value}):
            pass


def gives_none(url: str, options: AdapterOptions) -> None: ...


async def gives_a_coroutine(url: str, options: AdapterOptions) -> AdapterSet:
    return AdapterSet()


def takes_too_little(url: str) -> None: ...


@asynccontextmanager
async def yields_nothing(url: str, options: AdapterOptions) -> AsyncIterator[None]:
    yield


@pytest.mark.guarantee("plugins.adapter-that-is-none-told")
@pytest.mark.parametrize(
    ("opener", "problem"),
    [
        (
            gives_none,
            "its opener returned None, and an async context manager is needed; decorate it with @async",
        ),
        (gives_a_coroutine, "its opener returned an object of type coroutine, and"),
        (takes_too_little, "its opener takes other arguments than a URL and AdapterOptions: too many"),
        (yields_nothing, "it gave None, and an AdapterSet is needed"),
    ],
)
async def test_an_adapter_that_is_none_is_told_with_plugin_and_scheme(opener: Any, problem: str) -> None:
    plugins = PluginSet().with_plugin("mine", Journal(far=opener))
    with pytest.raises(InvalidAdapterError, match=problem) as caught:
        async with open_kernel(a_workflow(), "far+driver://host", plugins=plugins):
            pass
    assert (caught.value.plugin, caught.value.scheme) == ("application:mine", "far+driver")


async def test_a_kernel_is_of_no_use_after_its_block() -> None:
    async with open_kernel(a_workflow(), "memory://", plugins=NONE) as kernel:
        run_id = (await kernel.dispatch(CreateRun("doubling", {"value": 1}))).run_id
    for use in (
        kernel.dispatch(CreateRun("doubling", {"value": 1})),
        kernel.dispatch({"type": "run.cancel", "run_id": run_id}),
        kernel.runs.get(run_id),
        kernel.runs.signals(run_id),
        kernel.runs.output_of(run_id, "s"),
        kernel.annotations.attach(run_id, {"k": 1}),
        kernel.annotations.list(run_id),
    ):
        with pytest.raises(KernelClosedError, match="async with open_kernel"):
            await use
