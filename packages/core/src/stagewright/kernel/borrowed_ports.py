"""A kernel's ports in a transaction of the caller's."""

from dataclasses import replace
from math import inf
from typing import TypeVar, cast

from stagewright.errors import CapabilityMissingError
from stagewright.kernel.context import KernelPorts
from stagewright.kernel.known_definitions import KnownDefinitions
from stagewright.ports import BorrowsSessions, CallersThread, Enlistable, Persistence

__all__ = ["borrowed_ports"]

P = TypeVar("P")


def borrowed_ports(ports: KernelPorts, session: object, thread: CallersThread | None) -> KernelPorts:
    """The same ports, of which those that can take part work on the caller's session, and nothing is learnt for good.

    Raises:
        CapabilityMissingError: If the persistence can't.
        SessionRefusedError: If it can't use this session.
    """
    if not ports.borrows:
        name = type(ports.persistence).__name__
        fix = "it has no sessions that you could open; use a persistence over your own SQL database"
        raise CapabilityMissingError(name, "BorrowsSessions", fix)
    # What the capability's own type can't say: that the adapter is a persistence as well.
    borrowed = cast(Persistence, cast(BorrowsSessions, ports.persistence).borrow(session, thread))
    settings = ports.settings
    if not ports.blobs_enlist:
        # A blob that is written now would be left over by a rollback: large values stay in their rows.
        settings = replace(settings, spill_threshold_bytes=inf)
    return replace(
        ports,
        persistence=borrowed,
        job_transport=_enlisted(ports.job_transport, borrowed),
        blob_store=_enlisted(ports.blob_store, borrowed),
        step_ledger=_enlisted(ports.step_ledger, borrowed),
        run_reader=_enlisted(ports.run_reader, borrowed),
        settings=settings,
        known_definitions=KnownDefinitions(ports.known_definitions),
        is_borrowed=True,
    )


def _enlisted(port: P, borrowed: Persistence) -> P:
    enlisted = port.enlist(borrowed) if isinstance(port, Enlistable) else None
    return port if enlisted is None else cast(P, enlisted)
