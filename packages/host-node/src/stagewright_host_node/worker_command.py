"""`stagewright worker`: a process that works on runs until it is told to stop."""

import asyncio
import logging
from typing import Final, TypedDict

import click

from stagewright.cli.log_lines import PrintableFormatter
from stagewright.cli.project_table import ProjectTable, read_project_table
from stagewright.cli.settings import CommandSettings, SettingError, read_settings
from stagewright.cli.targets import LoadedTarget, load_target
from stagewright.errors import TransientError
from stagewright.hosting import HOST_DEFAULTS, open_kernel
from stagewright.hosting.assembly import DEFAULT_URL
from stagewright.hosting.settings import HostSettings
from stagewright.plugins import PluginSet
from stagewright.plugins.adapters import redacted
from stagewright.records import Fairness
from stagewright_host_node.backoff import BackOff
from stagewright_host_node.deadline import ExitDeadline
from stagewright_host_node.garbage_collection import settle_garbage_collection
from stagewright_host_node.host import NodeHost
from stagewright_host_node.signals import LEFT_WORK, StopSignals, leave_at_once

__all__ = ["worker_command"]

_LEVELS: Final = ("debug", "info", "warning", "error")
_LAST_CLEAN_UP: Final = 1.0
_log: Final = logging.getLogger("stagewright.host")


class _Stores(TypedDict):
    """What is where, as `open_kernel` takes it."""

    url: str
    blob_store: str | None
    job_transport: str | None


class WorkerSettings(CommandSettings):
    """What a worker may be told."""

    target: str | None = None
    job_transport: str | None = None
    worker_id: str = HOST_DEFAULTS.worker_id
    concurrency: int | None = None
    max_claims_per_tick: int | None = None
    max_suspended_checks_per_tick: int | None = None
    max_outbox_flush_per_tick: int | None = None
    orchestration_interval: str | float | None = None
    poll_interval: str | float | None = None
    stale_lease_threshold: str | float | None = None
    job_absolute_timeout: str | float | None = None
    job_heartbeat_interval: str | float | None = None
    shutdown_timeout: str | float | None = None
    abort_grace: str | float | None = None
    retention: str | float | None = None
    max_concurrent_per_group: int | None = None
    group_by: str | None = None
    log_level: str = "info"
    create_schema: bool | None = None


@click.command("worker")
@click.argument("target", required=False)
@click.option("--url", help=f"Where runs are kept; {DEFAULT_URL} by default.")
@click.option("--blob-store", metavar="URL", help="Where large values are kept, if not at --url.")
@click.option("--job-transport", metavar="URL", help="Where jobs are kept; where runs are by default.")
@click.option(
    "--worker-id", metavar="NAME", help="What to call this worker; machine, process and time are added."
)
@click.option(
    "--concurrency", type=int, metavar="N", help=f"Bodies at a time; {HOST_DEFAULTS.concurrency} by default."
)
@click.option(
    "--shutdown-timeout", metavar="DURATION", help="How long bodies may go on after SIGTERM, such as 25s."
)
@click.option("--job-absolute-timeout", metavar="DURATION", help="Fail jobs that take longer than this.")
@click.option("--job-heartbeat-interval", metavar="DURATION", help="How often leases are renewed.")
@click.option(
    "--stale-lease-threshold", metavar="DURATION", help="When a worker that went silent counts as lost."
)
@click.option("--orchestration-interval", metavar="DURATION", help="How often lost workers are looked after.")
@click.option("--poll-interval", metavar="DURATION", help="How often to look for work without notifications.")
@click.option("--abort-grace", metavar="DURATION", help="How long a body may go on once it was told to stop.")
@click.option("--retention", metavar="DURATION", help="Delete runs that ended so long ago, such as 30d.")
@click.option(
    "--max-concurrent-per-group",
    type=int,
    metavar="N",
    help="How many jobs of one group may run; no cap by default.",
)
@click.option(
    "--group-by", metavar="PATH", help="Where a job's group is in its payload, such as config.tenantId."
)
@click.option("--create-schema/--no-create-schema", default=None, help="Whether a missing schema is made.")
@click.option(
    "--log-level", type=click.Choice(_LEVELS), help="How much to log to standard error; info by default."
)
@click.pass_obj
def worker_command(plugins: PluginSet, /, **flags: object) -> int:
    """Work on the runs of the workflows in TARGET until SIGTERM or Ctrl-C; a second one leaves at once.

    TARGET is path/to/file.py:name or package.module:name, and names a workflow, a list of workflows or a registry.
    Each option can also be set by an environment variable such as STAGEWRIGHT_CONCURRENCY, or under [tool.stagewright]
    in pyproject.toml.
    """
    with StopSignals() as signals:
        settings = read_settings(WorkerSettings, flags)
        if settings.target is None:
            raise SettingError("name the TARGET to work for, such as path/to/file.py:workflow")
        options = _host_settings(settings)
        fairness = _fairness(settings)
        _set_up_logging(settings.log_level)
        loaded = load_target(settings.target)
        if loaded.workflows == ():
            raise SettingError(f"{loaded.text} has no workflows to work for")
        _warn_of_unread(read_project_table())
        url = settings.url or DEFAULT_URL
        if url.startswith("memory:"):
            _log.warning(
                "%s is this process's own and empty; nobody else can give this worker anything to do", url
            )
        if loaded.workflows is not None:
            ids = ", ".join(workflow.id for workflow in loaded.workflows)
            _log.info("works for %s in %s", ids, redacted(url))
        stores = _Stores(url=url, blob_store=settings.blob_store, job_transport=settings.job_transport)
        _run(_Work(loaded, stores, options, plugins, signals, settings.create_schema, fairness))
    return 0


def _run(work: "_Work") -> None:
    with asyncio.Runner() as runner:
        try:
            runner.run(work.done())
        except BaseException:
            if work.has_ended:
                raise
            # A task of a body's own raised SystemExit or KeyboardInterrupt, which end a loop whoever raises them. Were
            # its job handed back, it would end one worker after the other; a lease that ends counts as a loss.
            _log.critical(
                "a body ended the event loop; this worker leaves at once, and leases bring its jobs to others",
                exc_info=True,
            )
            leave_at_once(LEFT_WORK)


class _Work:
    def __init__(
        self,
        loaded: LoadedTarget,
        stores: _Stores,
        options: HostSettings,
        plugins: PluginSet,
        signals: StopSignals,
        create_schema: bool | None,
        fairness: Fairness | None,
    ) -> None:
        self._loaded = loaded
        self._stores = stores
        self._options = options
        self._plugins = plugins
        self._signals = signals
        self._create_schema = create_schema
        self._fairness = fairness
        self.has_ended = False

    async def done(self) -> None:
        """Open the store and work; a signal that comes before is the end of it."""
        loop, working = asyncio.get_running_loop(), asyncio.create_task(self._work())

        def tell() -> None:
            loop.call_soon_threadsafe(working.cancel)

        self._signals.tell(tell)
        try:
            await working
        except asyncio.CancelledError:
            if self._signals.received is None:
                raise
            _log.info("stopped before it began to work")
        finally:
            self.has_ended = True
        # All is said and done. What still holds the process are threads that nobody waits for, such as a library's own
        # pools; they don't keep it from leaving.
        ExitDeadline(_LAST_CLEAN_UP, 0).arm()

    async def _work(self) -> None:
        backoff = BackOff()
        while True:
            try:
                await self._work_on_store()
            except TransientError as error:
                pause = backoff.failed()
                _log.warning("the store can't be reached; another try in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
            else:
                return

    async def _work_on_store(self) -> None:
        opening = open_kernel(
            self._loaded.registry,
            **self._stores,
            plugins=self._plugins,
            create_schema=self._create_schema,
            fairness=self._fairness,
        )
        async with opening as kernel:
            host = NodeHost.with_settings(kernel, self._options)
            settle_garbage_collection()
            await host.run(signals=self._signals)
            # A store's client may still wait for a server that hangs, for longer than whoever stops this worker does.
            ExitDeadline(_LAST_CLEAN_UP, 0).arm()


def _warn_of_unread(table: ProjectTable) -> None:
    # Other commands may read what this one doesn't, so it is no error.
    unread = table.unread(tuple(WorkerSettings.model_fields))
    if unread:
        _log.warning(
            "%s has settings under [tool.stagewright] that a worker doesn't know: %s",
            table.file,
            ", ".join(unread),
        )


def _host_settings(settings: WorkerSettings) -> HostSettings:
    own = {
        "target",
        "url",
        "blob_store",
        "job_transport",
        "log_level",
        "create_schema",
        "max_concurrent_per_group",
        "group_by",
    }
    return HOST_DEFAULTS.having(
        {
            name: value if name == "retention" else _read(value)
            for name, value in settings.model_dump(exclude=own).items()
            if name != "worker_id"
        }
        | {"worker_id": settings.worker_id}
    )


def _fairness(settings: WorkerSettings) -> Fairness | None:
    cap, path = settings.max_concurrent_per_group, settings.group_by
    if cap is not None:
        return Fairness(max_concurrent_per_group=cap, group_by=path)
    if path is not None:
        problem = "needs max_concurrent_per_group, which says how many jobs of one group may run"
        raise SettingError(f"group_by={path!r} {problem}")
    return None


def _read(value: object) -> object:
    """A duration may be a number of seconds, which a variable of the environment has as text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _set_up_logging(level: str) -> None:
    if level not in _LEVELS:
        raise SettingError(f"log_level={level!r} is none of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # Libraries have much to say at these levels that is of no use to a worker's operator.
    for name in ("alembic", "aiosqlite", "asyncio"):
        logging.getLogger(name).setLevel(logging.WARNING)
