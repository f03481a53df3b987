"""Making sure that the suite deletes nothing that matters, and emptying what it was given."""

from typing import Final

from stagewright.errors import PortNotServedError, StagewrightError
from stagewright.plugins import AdapterOptions, AdapterRegistry, AdapterSet
from stagewright.plugins.adapters import redacted
from stagewright.records import JobQuery, RunQuery
from stagewright_conformance.errors import CannotBeEmptiedError, StoreInUseError
from stagewright_conformance.places import Place, Store

__all__ = ["empty_store", "refuse_what_is_in_use", "served_ports"]

_LOOKED_INTO: Final = ("run_reader", "job_transport", "blob_store")


async def refuse_what_is_in_use(place: Place, registry: AdapterRegistry, *, erase: bool) -> None:
    """Make sure that each store of a place may be emptied; changes nothing.

    Args:
        place: Where the suite is to run.
        registry: The adapters.
        erase: Whether all that is there may be deleted.

    Raises:
        StoreInUseError: If there is something, and it may not be.
        CannotBeEmptiedError: If no target says how a store is emptied.
        StagewrightError: Whatever looking at a URL raises.
    """
    for store in place.stores:
        # A URL that nobody opens is told as such, and not as one that nobody empties.
        registry.opener_of(store.url)
        if store.is_new_each_time:
            continue
        if store.target is None or store.target.empty is None:
            raise CannotBeEmptiedError(redacted(store.url))
        held = None if erase else await _held(store, registry)
        if held is not None:
            raise StoreInUseError(redacted(store.url), held)


async def empty_store(store: Store) -> None:
    """Delete what a test left, and make what the next one needs; nothing where each test has a store of its own."""
    if not store.is_new_each_time and store.target is not None and store.target.empty is not None:
        await store.target.empty(store.url)


async def served_ports(place: Place, registry: AdapterRegistry, folder: str) -> tuple[str, ...]:
    """The ports with suites that a place serves; it is opened, and closed again.

    Raises:
        PortNotServedError: If a URL that was given for one port doesn't serve it.
        StagewrightError: Whatever opening a URL raises.
    """
    for store in place.stores:
        await empty_store(store)
    async with place.opened(registry, folder) as opened:
        for port, store in place.apart.items():
            if getattr(opened.sets[store.url], port) is None:
                raise PortNotServedError(port, redacted(store.url), opened.sets[store.url].served)
        return opened.served


async def _held(store: Store, registry: AdapterRegistry) -> str | None:
    if store.target is not None and store.target.holds is not None:
        return await store.target.holds(store.url)
    try:
        # Nothing is made there, for want of which nothing could be lost.
        async with registry.open(store.url, AdapterOptions(create_schema=False)) as served:
            return await _held_by_ports(served)
    except StagewrightError as error:
        return f"what can't be looked at ({error})"


async def _held_by_ports(served: AdapterSet) -> str | None:
    if all(getattr(served, port) is None for port in _LOOKED_INTO):
        return f"what none of its ports lists ({', '.join(served.served) or 'it serves none'})"
    if served.run_reader is not None:
        runs = await served.run_reader.list_runs(RunQuery(), limit=1, cursor=None)
        if runs.items:
            return f"runs, such as {runs.items[0].id!r}"
    if served.job_transport is not None:
        jobs = await served.job_transport.list_jobs(JobQuery(), limit=1)
        if jobs.items:
            return f"jobs, such as {jobs.items[0].id!r}"
    if served.blob_store is not None:
        async for key in served.blob_store.list(""):
            return f"blobs, such as {key!r}"
    return None
