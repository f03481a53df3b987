"""Restate: its server, a process that serves handlers, and callers that await them, each on a connection of its own."""

import http.client
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.figures import Figures, Pace, Request, Stopwatch
from benchmarks.peers.restate_server import serving_restate, wait_for_answer
from benchmarks.peers.restate_service import SERVICE

from stagewright_test_support.servers.launch import free_port, launch

__all__ = ["steps", "three_steps"]

_ROOT = Path(__file__).resolve().parents[2]
_STEPS_FIRST = 20


def three_steps(request: Request) -> Figures:
    """Handlers of three durable steps, called by as many threads as there are slots."""
    with _called(request) as (call, server), ThreadPoolExecutor(request.slots) as threads:
        pace = Pace(request, 2 * request.slots)
        while not pace.is_found:
            watch = Stopwatch(apart=server)
            ended = list(threads.map(lambda number: call("three", number), range(pace.size)))
            figures = watch.stop(pace.size)
            assert ended == [number + 3 for number in range(pace.size)]
            pace.note(figures)
        return pace.figures


def steps(request: Request) -> Figures:
    """One handler of so many durable steps, one after the other."""
    with _called(request) as (call, server):
        pace = Pace(request, _STEPS_FIRST)
        while not pace.is_found:
            watch = Stopwatch(apart=server)
            assert call("steps", pace.size) == sum(range(pace.size + 1))
            pace.note(watch.stop(pace.size))
        return pace.figures


@contextmanager
def _called(request: Request) -> Iterator[tuple[Callable[[str, int], int], int]]:
    """What calls a handler and awaits it, on a connection of its thread, and the number of the server's process."""
    folder, own = Path(request.folder), threading.local()
    with ExitStack() as opened:
        server = opened.enter_context(serving_restate(folder))
        port = opened.enter_context(_service(folder / "service.log"))
        server.register(port)

        def call(handler: str, value: int) -> int:
            if not hasattr(own, "connection"):
                own.connection = http.client.HTTPConnection("127.0.0.1", server.ingress)
                opened.callback(own.connection.close)
            headers = {"content-type": "application/json"}
            own.connection.request("POST", f"/{SERVICE}/{handler}", str(value), headers)
            answer = own.connection.getresponse()
            told = answer.read()
            assert answer.status == http.HTTPStatus.OK, told
            return int(told)

        yield call, server.process


@contextmanager
def _service(log: Path) -> Iterator[int]:
    port = free_port()
    process = launch(
        [sys.executable, "-m", "benchmarks.peers.restate_service", str(port)],
        log=log,
        account=None,
        farewell=signal.SIGKILL,
        environment=dict(os.environ) | {"PYTHONPATH": str(_ROOT)},
    )
    try:
        wait_for_answer(lambda: socket.create_connection(("127.0.0.1", port)).close(), process, log)
        yield port
    finally:
        process.kill()
        process.wait()
