"""A proxy before a server that speaks HTTP, whose requests and answers can be lost, cut or garbled on their way."""

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

__all__ = ["Fault", "FaultyHttp", "SeenRequest", "open_faulty_http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the next request that it fits, and to no other.

    Attributes:
        method: The request's method; empty fits all.
        within: What stands in the request's path or query; empty fits all.
        status: The proxy answers this itself, and the server hears nothing; 0 passes the request on.
        body: What it answers then.
        loses_answer: The server does what it is asked for, and the connection ends without an answer.
        garbles_request: One byte of the request's body arrives as another.
        garbles_answer: One byte of the answer's body arrives as another.
        cuts_answer: The connection ends in the middle of the answer's body.
        holds: The request is passed on once this is set; `FaultyHttp.seen` has it before.
    """

    method: str = ""
    within: str = ""
    status: int = 0
    body: bytes = b""
    loses_answer: bool = False
    garbles_request: bool = False
    garbles_answer: bool = False
    cuts_answer: bool = False
    holds: Event | None = None

    def fits(self, method: str, path: str) -> bool:
        """Whether a request is meant."""
        return self.method in ("", method) and self.within in path


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that came by."""

    method: str
    path: str
    headers: dict[str, str]
    size: int


class FaultyHttp:
    """The proxy.

    Attributes:
        address: Its URL.
        seen: The requests that came by, the oldest first.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.address = ""
        self.seen: list[SeenRequest] = []
        self._faults: list[Fault] = []
        self._lock = Lock()

    def expect(self, *faults: Fault) -> None:
        """Add faults, each for one request."""
        with self._lock:
            self._faults.extend(faults)

    @property
    def left(self) -> int:
        """How many faults haven't come to pass."""
        return len(self._faults)

    def wait_for(self, method: str, within: str = "", seconds: float = 30.0) -> None:
        """Returns once such a request has come by."""
        deadline = time.monotonic() + seconds
        while not any(one.method == method and within in one.path for one in tuple(self.seen)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {method} with {within!r} came by within {seconds:g} s")
            time.sleep(0.005)

    def see(self, request: SeenRequest) -> Fault:
        """Note a request, and tell what becomes of it."""
        with self._lock:
            self.seen.append(request)
            for fault in self._faults:
                if fault.fits(request.method, request.path):
                    self._faults.remove(fault)
                    return fault
        return Fault()


@contextmanager
def open_faulty_http(upstream: str) -> Iterator[FaultyHttp]:
    """A proxy before the server at a URL, until the block ends."""
    proxy = FaultyHttp(upstream)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    proxy.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(proxy: FaultyHttp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = proxy.see(SeenRequest(self.command, self.path, dict(self.headers.items()), len(data)))
            if fault.holds is not None:
                fault.holds.wait(60)
            if fault.status:
                self._answer(fault.status, {"Content-Type": "application/xml"}, fault.body, fault)
                return
            if fault.garbles_request:
                data = _garbled(data)
            status, headers, body = _ask(proxy, self, data)
            if fault.loses_answer:
                self.close_connection = True
                return
            self._answer(status, headers, _garbled(body) if fault.garbles_answer else body, fault)

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_PUT(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def _answer(self, status: int, headers: dict[str, str], body: bytes, fault: Fault) -> None:
            size = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", size)
            self.end_headers()
            if fault.cuts_answer:
                body = body[: len(body) // 2]
                self.close_connection = True
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


def _ask(
    proxy: FaultyHttp, request: BaseHTTPRequestHandler, data: bytes
) -> tuple[int, dict[str, str], bytes]:
    """What the server answers; where it names itself, it names the proxy."""
    there = http.client.HTTPConnection(urlsplit(proxy.upstream).netloc, timeout=60)
    there.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers.items():
        if name.lower() not in ("expect", "connection"):
            there.putheader(name, value)
    there.endheaders(data or None)
    answer = there.getresponse()
    body = answer.read()
    there.close()
    headers = {name: value.replace(proxy.upstream, proxy.address) for name, value in answer.getheaders()}
    return answer.status, headers, body


def _garbled(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
