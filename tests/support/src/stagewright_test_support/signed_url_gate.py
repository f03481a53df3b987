"""A gate before a Cloud Storage that accepts every signed URL: it checks them as the real one does, by version 4."""

import hashlib
import http.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, quote, urlsplit

__all__ = ["open_gate", "why_refused"]

Verify = Callable[[bytes, bytes], None]
"""Raises `ValueError` unless the signature is of the message."""

_PASSED_ON = ("content-type", "range", "x-goog-hash", "x-upload-content-type", "content-range")


@contextmanager
def open_gate(address: str, verify: Verify) -> Iterator[str]:
    """The URL of a gate before the server at `address`; what isn't signed by query passes unasked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(urlsplit(address).netloc, verify))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def why_refused(
    method: str, path: str, headers: dict[str, str], verify: Verify, *, now: datetime | None = None
) -> str | None:
    """Why a request by a signed URL is refused; None where it isn't.

    Args:
        method: Of the request.
        path: With the query, as it was sent.
        headers: Of the request, by names in lower case.
        verify: Checks signatures.
        now: The time; the machine's by default.
    """
    place, _, query = path.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    signature = given.pop("X-Goog-Signature")
    begun = datetime.strptime(given["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if (now or datetime.now(UTC)) > begun + timedelta(seconds=int(given["X-Goog-Expires"])):
        return "it has expired"
    signed = given["X-Goog-SignedHeaders"].split(";")
    if "host" not in signed:
        return "the host isn't signed"
    canonical_query = "&".join(
        f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(given.items())
    )
    said = [f"{name}:{headers.get(name, '').strip()}" for name in signed]
    canonical = [method, place, canonical_query, *said, "", ";".join(signed), "UNSIGNED-PAYLOAD"]
    scope = given["X-Goog-Credential"].partition("/")[2]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    message = "\n".join(["GOOG4-RSA-SHA256", given["X-Goog-Date"], scope, digest])
    try:
        verify(bytes.fromhex(signature), message.encode())
    except ValueError:
        return "the signature is of something else"
    return None


def _handler(place: str, verify: Verify) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if "X-Goog-Algorithm" in self.path:
                refused = why_refused(self.command, self.path, headers, verify)
                if refused is not None:
                    self._answer(403, refused.encode(), {})
                    return
            elif not self.path.startswith(("/storage/", "/upload/", "/download/")):
                self._answer(403, b"nobody may do this without a signature", {})
                return
            there = http.client.HTTPConnection(place, timeout=30)
            kept = {name: headers[name] for name in _PASSED_ON if name in headers}
            there.request(self.command, self.path, body=data or None, headers=kept)
            answer = there.getresponse()
            body = answer.read()
            there.close()
            self._answer(answer.status, body, dict(answer.getheaders()))

        def do_PUT(self) -> None:
            self.do_GET()

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler
