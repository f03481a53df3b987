"""Dramatiq on Redis, as its users run it. It is there in the session of this benchmark alone."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

__all__ = ["DramatiqJobs", "is_dramatiq_here"]


def is_dramatiq_here() -> bool:
    """Whether the package is installed."""
    return importlib.util.find_spec("dramatiq") is not None


class DramatiqJobs:
    """An actor on a broker of its own, with the usual middleware.

    Args:
        url: The server's database.
        work: The actor's body, called with the number of the job by the thread that does it.
        ended: Called with the number of every job that was acknowledged.
    """

    def __init__(self, url: str, work: Callable[[int], None], ended: Callable[[int], None]) -> None:
        # By name, as nothing else of this repository needs it to be checked or to run.
        dramatiq: Any = importlib.import_module("dramatiq")
        brokers: Any = importlib.import_module("dramatiq.brokers.redis")

        def after_ack(_middleware: object, _broker: object, message: Any) -> None:
            ended(message.args[0])

        hearing: Any = type("Hearing", (dramatiq.Middleware,), {"after_ack": after_ack})
        self._broker = brokers.RedisBroker(url=url)
        self._broker.add_middleware(hearing())
        self._actor = dramatiq.actor(work, actor_name="bench", queue_name="bench", broker=self._broker)
        self._make_worker = dramatiq.Worker
        self._worker: Any = None

    def put(self, number: int) -> None:
        """Enqueue one job."""
        self._actor.send(number)

    def start(self, threads: int) -> None:
        """Begin to do jobs, by so many threads."""
        self._worker = self._make_worker(self._broker, worker_threads=threads)
        self._worker.start()

    def left(self) -> int:
        """How many jobs are not acknowledged."""
        return int(self._broker.do_qsize("bench"))

    def close(self) -> None:
        """Stop doing jobs, and close the connections."""
        if self._worker is not None:
            self._worker.stop()
        self._broker.close()
        # It leaves them open.
        self._broker.client.connection_pool.disconnect()
