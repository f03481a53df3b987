"""What an adapter may offer beyond its port. Each is checked once, when a kernel or a host is made."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol, Self, TypeVar, runtime_checkable

from stagewright.ports.persistence import Persistence
from stagewright.records import DequeuedJob, Fairness, HeldLease, NewJob

__all__ = [
    "BorrowsSessions",
    "CallersThread",
    "DeliversAtOnce",
    "Enlistable",
    "GroupsJobs",
    "HeartbeatChannel",
    "MayLoseJobs",
    "OpensHeartbeats",
    "WorkNotifier",
]

R = TypeVar("R")


class CallersThread(Protocol):
    """The thread that a session without an event loop belongs to; who called from there waits meanwhile."""

    async def do(self, work: Callable[[], R]) -> R:
        """Do something in that thread; what it raises is raised here."""
        ...


@runtime_checkable
class BorrowsSessions(Protocol):
    """A persistence that can work in a transaction which its caller has opened and will end."""

    def borrow(self, session: object, thread: CallersThread | None = None) -> Self:
        """The same port on the caller's session or connection; whatever enlists in the port goes along.

        It sends everything there and nothing anywhere else, and never commits it or rolls it back. What is done outside
        of `transaction()` is a part of the caller's transaction at once. `transaction()` opens a savepoint: when its
        block raises, what was written since is undone, and the caller's transaction goes on where its database lets it.

        Args:
            session: The caller's; whether it can be used is found out with the first call that uses it.
            thread: Where it is used, for a session that knows no event loop.

        Raises:
            SessionRefusedError: If it is nothing that this persistence can use; so does each call, in that case.
        """
        ...


@runtime_checkable
class Enlistable(Protocol):
    """An adapter that can take part in a transaction of the persistence."""

    def enlist(self, tx: Persistence) -> Self | None:
        """The same port, whose writes are kept or undone with `tx`; None if it lives in another database.

        What is answered depends on the two databases alone, not on the transaction: a kernel asks once, with the
        persistence itself, when it is made, and from then on with each transaction.
        """
        ...


@runtime_checkable
class WorkNotifier(Protocol):
    """An adapter that can wake waiting hosts, in this process and in others."""

    async def notify(self, topic: str) -> None:
        """Tell whoever waits that there is something to do; inside a transaction, once it has committed.

        A notification may be lost or come twice: it saves waiting and is never the only way to learn something.
        """
        ...

    async def wait_for_work(self, timeout: timedelta) -> bool:
        """Wait until there may be something to do that the caller hasn't looked for yet.

        A caller looks, waits, looks again. What is committed after the last call on this adapter returned ends the
        next call at once, and what is committed during a call ends that one. A call that is cancelled takes
        nothing from the next.

        An adapter that can't have heard everything answers True once, as soon as it hears again: when it begins to
        listen with its first call, and after a lost connection. So nothing is slept through that came between a
        caller's first look and its first wait. While it can't listen, a call still ends at its time.

        The adapter remembers once for all its callers: those that wait side by side are all woken, and one that
        looks meanwhile isn't. A host with several loops lets one task wait and wakes the loops itself.

        Returns:
            True when there was a notification, or one may have gone unheard; False when the time was over.
        """
        ...

    def is_listening(self) -> bool:
        """Whether notifications get through at this moment, as far as can be told without asking anybody.

        While they don't, or before anybody waited, a host looks for work by itself.
        """
        ...


@runtime_checkable
class GroupsJobs(Protocol):
    """A job transport that can keep any group of jobs from taking all workers.

    Without `Fairness` it delivers as every transport does. With it, `dequeue` obeys one rule more: no group ever has
    more than `max_concurrent_per_group` jobs RUNNING, however many callers there are and whatever transactions they are
    in, as long as all of them are given the same fairness. A group that is at its cap is passed over, also within one
    batch; of the others the order is the same as ever. A job that leaves RUNNING, in whatever way, frees its place at
    the commit, and whoever waits for work is woken then, if the transport is a `WorkNotifier`.

    A group from which another transaction is claiming at this moment may be passed over, and isn't waited for; that
    transaction wakes those who wait once it has committed.

    A job is of the group that `stagewright.records.group_of` says when it is enqueued, and stays in it when it is
    suspended, resumed, released or tried again. Jobs that were enqueued without fairness are of the group without a
    value, unless they were given a `group_key`. The group is no part of what `dequeue` and the listings give.
    """

    @property
    def fairness(self) -> Fairness | None:
        """What it was given; None where groups don't matter."""
        ...

    def with_fairness(self, fairness: Fairness | None) -> Self:
        """Another handle on the same jobs, with that fairness or with none; this one stays as it is."""
        ...


@runtime_checkable
class DeliversAtOnce(Protocol):
    """A job transport that can make jobs which their worker has already.

    So who ends a stage, or sets a run going, needs no claim for what it executes next. A kernel uses it where the
    transport is `Enlistable` and has no `Fairness`.
    """

    async def enqueue_delivered(self, jobs: Sequence[NewJob], *, worker_id: str) -> list[DequeuedJob]:
        """Enqueue jobs as `enqueue_parallel` does, and deliver them to `worker_id` in the same step.

        Each is RUNNING with one delivery and a lease that begins now, is nobody else's at any time, and passes those
        that wait. A `due_at` is of no account.

        Returns:
            The jobs, in the order given, each with the fence of this delivery.
        """
        ...


class HeartbeatChannel(Protocol):
    """Renews leases from any thread, whatever the event loops of the process are busy with.

    It has a connection of its own and needs no event loop of the caller's. Its methods block, so they are called from
    threads in which no event loop runs; calls from several threads wait for each other.
    """

    def renew_many(self, leases: Sequence[HeldLease]) -> list[bool]:
        """Renew leases, each as `JobLeases.touch` does, on the transport's own clock.

        A job whose row somebody holds at this moment isn't waited for: what is committed decides whether it is still
        owned, and the next call renews it.

        Returns:
            For each lease, in the order given, whether its delivery still owns the job; where not, nothing is written.

        Raises:
            TransientError: If the store can't be reached, also on a new connection. Leases may be renewed or not then;
                calling again later is safe.
            RuntimeError: If the channel is closed, or an event loop runs in the calling thread.
        """
        ...

    def close(self) -> None:
        """Close the connection; no lease is changed by it, and closing again does nothing."""
        ...


@runtime_checkable
class OpensHeartbeats(Protocol):
    """A job transport whose leases can be renewed past a blocked event loop."""

    def open_heartbeats(self) -> HeartbeatChannel | None:
        """A channel of its own for the caller, who closes it; it connects at its first renewal.

        None where a second connection would not see the same jobs, such as in a database that lives in one connection,
        or inside a transaction.
        """
        ...


@runtime_checkable
class MayLoseJobs(Protocol):
    """A job transport whose store may come back without some of its jobs, and that can tell when it may have.

    Whoever keeps the runs looks then which stages are without a job, and gives them one.
    """

    async def possible_losses(self) -> str | None:
        """A text as long as jobs may be missing that were enqueued: the store was emptied, started anew or replaced.

        It is the same for all callers until it is given to `losses_replaced`, or jobs may have been lost once more.

        Returns:
            None when nothing is missing. A loss that the store doesn't know of isn't told.
        """
        ...

    async def losses_replaced(self, losses: str) -> None:
        """What may have been lost then is there again; what was lost since goes on to be told.

        Args:
            losses: What `possible_losses` answered.
        """
        ...
